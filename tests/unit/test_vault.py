"""Once, Counter, Checkpoint: what was written before a crash is known after it."""

import numpy as np
import pytest

from tacit.errors import DataError, InputError
from tacit.vault import Checkpoint, Counter, Once, UsedError, entries

ARRAYS = {"w": np.arange(4), "b": np.ones((2, 2), np.float32)}


def test_a_name_is_used_once_whoever_opens_the_file(tmp_path):
    Once(tmp_path / "names", "kind").use("a")
    Once(tmp_path / "names", "kind").use("b")
    with pytest.raises(UsedError, match="a was used"):
        Once(tmp_path / "names", "kind").use("a")


def test_names_are_counted_up_to_a_most(tmp_path):
    Counter(tmp_path / "n", "kind", most=5).use("a", 3)
    again = Counter(tmp_path / "n", "kind", most=5)
    with pytest.raises(UsedError) as caught:
        again.use("a", 3)
    assert caught.value.left == 2
    again.use("b", 5)
    again.use("a", 2)
    with pytest.raises(UsedError):
        again.use("a")
    with pytest.raises(UsedError) as caught:
        Counter(tmp_path / "n", "kind", most=1).use("a")  # the most was lowered
    assert caught.value.left == 0


def test_a_block_that_ends_badly_changes_nothing(tmp_path):
    with entries(tmp_path / "any", "kind") as found:
        found["a"] = 1
    with pytest.raises(ZeroDivisionError), entries(tmp_path / "any", "kind") as found:
        found["b"] = 1 / len([one for one in found if one == "b"])
    with entries(tmp_path / "any", "kind") as found:
        assert found == {"a": 1}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"7", b'{"tacit kind": []}', b'{"tacit other": {}}', b"[" * 9000]
)
def test_a_file_of_another_kind_version_or_damaged_is_refused_and_stays(tmp_path, content):
    file = tmp_path / "names"
    file.write_bytes(content)
    for use in (Once(file, "kind").use, Counter(file, "kind", most=9).use):
        with pytest.raises(DataError, match="is damaged, or no kind of this version of tacit"):
            use("a")
    assert file.read_bytes() == content


def test_the_last_two_steps_are_kept(tmp_path):
    kept = Checkpoint(tmp_path / "state", "b")
    assert kept.steps() == []
    for step in (9, 10, 11):
        kept.save(step, ARRAYS)
    assert kept.steps() == [10, 11]
    found = kept.load(11)
    assert found.keys() == ARRAYS.keys()
    assert all((found[name] == one).all() for name, one in ARRAYS.items())
    kept.remove()
    assert kept.steps() == []


def test_a_step_of_another_binding_or_a_damaged_one_is_refused(tmp_path):
    Checkpoint(tmp_path / "state", "b").save(1, ARRAYS)
    with pytest.raises(DataError, match="is damaged"):
        Checkpoint(tmp_path / "state", "c").load(1)
    file = tmp_path / "state" / "step-1.npz"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"step-1.npz is damaged"):
        Checkpoint(tmp_path / "state", "b").load(1)
    with pytest.raises(DataError, match="no such file"):
        Checkpoint(tmp_path / "state", "b").load(2)


def test_a_folder_that_others_can_write_to_is_refused(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(InputError, match="others can write to it"):
        Checkpoint(tmp_path / "open").begin()
