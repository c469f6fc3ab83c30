import io
import os
import stat
from pathlib import Path

import pytest
import torch

from support.mpc import ALICE, BOB, ROLES, begun, prepared, run_on
from tacit.errors import ConfigError, DataError, TacitError
from tacit.mpc import PROTOCOLS, make_plan
from tacit.mpc.material.offline import MaterialFacts, open_material, write_material

X = torch.tensor([1.5, -2.0, 0.25], dtype=torch.float64)


def program(ops):
    x = ops.input("x", owner=ALICE, shape=(3,), bound=4.0)
    y = ops.relu(ops.mul(x, x))
    return ops.open(ops.mul(y, x), to=(BOB,), what="y", why="test")


def planned(protocol="sealed"):
    return make_plan(program, PROTOCOLS[protocol], ROLES, frac_bits=16)


def run(files):
    return run_on(planned(), program, files, {"x": X})


def test_material_computes_without_a_dealer_in_the_session(tmp_path):
    files = prepared(planned(), tmp_path)
    assert torch.allclose(run(files)[BOB], X**3, atol=1e-3)
    for path in files.values():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.stat().st_size < 32, "the key and the masks are gone when they were used"


def test_the_rest_is_cut_off_while_a_thread_reads_ahead(tmp_path, monkeypatch):
    """The next pass's material is fetched while one is played, and a user may leave meanwhile."""
    path, opened = prepared(planned(), tmp_path)[BOB], []

    class Disturbed(io.BufferedRandom):
        def seek(self, *where):
            at = super().seek(*where)
            if opened[1:]:
                self.read(64)  # as a thread does that comes between
            return at

    monkeypatch.setattr(Path, "open", lambda path, mode: Disturbed(io.FileIO(path, "r+")))
    with open_material(path, me=BOB) as material:
        material.begin()
        opened += [material, "ends"]
    assert path.stat().st_size < 32


def test_material_is_refused_the_second_time(tmp_path):
    files = prepared(planned(), tmp_path)
    copies = {name: path.read_bytes() for name, path in files.items()}
    run(files)
    with pytest.raises(DataError, match="used already"):
        run(files)
    for name, path in files.items():
        path.write_bytes(copies[name])
    with pytest.raises(DataError, match="used already"):
        run(files)


def test_material_is_refused_after_a_run_that_broke_off(tmp_path):
    path = prepared(planned(), tmp_path)[BOB]

    def crash():
        with begun(path, BOB):
            raise RuntimeError("the machine stops")

    with pytest.raises(RuntimeError):
        crash()
    with pytest.raises(DataError, match="used already"), open_material(path, me=BOB):
        pass


def test_nothing_is_taken_before_the_mark_is_on_the_disk_nor_twice(tmp_path):
    path = prepared(planned(), tmp_path)[BOB]
    with open_material(path, me=BOB) as material:
        with pytest.raises(TacitError, match="used already"):
            material.run(0)
        material.begin()
        copy = path.read_bytes()
        material.run(0)
        for again in (0, -1):
            with pytest.raises(TacitError, match="used once"):
                material.run(again)
    assert b"material 2\nU" in copy
    path.with_name(path.name + ".used").unlink()
    path.write_bytes(copy)
    with pytest.raises(DataError, match="used already"), open_material(path, me=BOB):
        pass


def test_a_file_that_was_opened_and_not_begun_stays_fresh(tmp_path):
    files = prepared(planned(), tmp_path)
    with open_material(files[BOB], me=BOB):
        pass
    assert torch.allclose(run(files)[BOB], X**3, atol=1e-3)


def test_a_mark_that_cannot_be_written_is_no_mark(tmp_path, monkeypatch):
    path = prepared(planned(), tmp_path)[ALICE]

    def full(number):
        raise OSError(28, "No space left on device")

    with open_material(path, me=ALICE) as material:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(DataError, match="cannot mark"):
            material.begin()
        with pytest.raises(TacitError, match="used already"):
            material.run(0)


def test_the_key_is_gone_from_the_disk_while_a_run_lasts(tmp_path):
    path = prepared(planned(), tmp_path)[ALICE]
    head = path.read_bytes().partition(b'"key": "')[2]
    with begun(path, ALICE) as material:
        drawn = material.run(0).stream(0).words(4)
        assert head[:32] not in path.read_bytes()
    assert drawn.unique().numel() == 4


@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_a_file_with_two_names_is_used_once(tmp_path, link):
    path = prepared(planned(), tmp_path)[BOB]
    (tmp_path / "elsewhere").mkdir()
    other = tmp_path / "elsewhere" / "bob"
    link(path, other)
    with begun(path, BOB), pytest.raises(DataError, match="in use"), open_material(other, me=BOB):
        pass
    with pytest.raises(DataError, match="used already"), open_material(other, me=BOB):
        pass


def test_material_of_another_party_is_refused_and_stays_fresh(tmp_path):
    files = prepared(planned(), tmp_path)
    message = "material of 'alice', not of 'bob'"
    with pytest.raises(DataError, match=message), open_material(files[ALICE], me=BOB):
        pass
    with open_material(files[ALICE], me=ALICE):
        pass


@pytest.mark.parametrize("damage", ["truncated", "longer", "header", "magic"])
def test_damaged_material_is_refused_before_it_is_used(tmp_path, damage):
    path = prepared(planned(), tmp_path)[BOB]
    data = bytearray(path.read_bytes())
    if damage == "header":
        data[40] ^= 1
    if damage == "magic":
        data[0] ^= 1
    data = {"truncated": data[:-1], "longer": data + b"x"}.get(damage, data)
    path.write_bytes(bytes(data))
    with pytest.raises(DataError), open_material(path, me=BOB):
        pass
    assert not path.with_name(path.name + ".used").exists()


def test_a_changed_word_is_noticed_when_its_step_is_reached(tmp_path):
    files = prepared(planned(), tmp_path)
    data = bytearray(files[BOB].read_bytes())
    data[-100] ^= 4
    files[BOB].write_bytes(bytes(data))
    with pytest.raises(DataError, match="damaged"):
        run(files)


def test_a_file_is_never_overwritten(tmp_path):
    prepared(planned(), tmp_path)
    with pytest.raises(DataError, match="exists"):
        prepared(planned(), tmp_path)
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("name", ["permuted3", "checked"])
def test_protocols_that_need_more_than_files_refuse_them(tmp_path, name):
    files = prepared(planned(), tmp_path)
    with pytest.raises(ConfigError, match="dealer in the session"):
        run_on(planned(name), program, files, {"x": X})


def test_two_dealings_of_one_plan_share_nothing(tmp_path):
    one, two = (prepared(planned(), tmp_path / name)[BOB] for name in ("one", "two"))
    left, right = (path.read_bytes()[-400:] for path in (one, two))
    # 400 uniform bytes agree in 16 places or more with chance below 1e-10.
    assert sum(a == b for a, b in zip(left, right, strict=True)) < 16


def test_material_lies_where_nobody_else_can_read_or_change_it(tmp_path):
    previous = os.umask(0)
    try:
        files = prepared(planned(), tmp_path / "new")
    finally:
        os.umask(previous)
    assert oct((tmp_path / "new").stat().st_mode)[-3:] == "700"
    assert {oct(path.stat().st_mode)[-3:] for path in files.values()} == {"600"}
    files[BOB].chmod(0o640)
    with pytest.raises(DataError, match="read by others"), open_material(files[BOB], me=BOB):
        pass
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(DataError, match="others can put files"):
        prepared(planned(), tmp_path / "open")


FACTS = {"identity": "1", "party": ALICE, "plans": "", "about": "", "body_bytes": 0}


def test_of_two_that_deal_into_one_file_at_once_one_is_refused(tmp_path):
    path = tmp_path / "both"
    first, second = (
        write_material(path, MaterialFacts(**FACTS | {"identity": name}), name.encode() * 16)
        for name in "12"
    )
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    with pytest.raises(DataError, match="exists"):
        second.__exit__(None, None, None)
    with open_material(path, me=ALICE) as material:
        assert material.facts.identity == "1"
    assert [one.name for one in tmp_path.iterdir()] == ["both"]


def test_what_is_left_of_a_dealing_that_was_cut_off_is_removed(tmp_path):
    (tmp_path / "one.cut off.part").write_bytes(b"half")
    with write_material(tmp_path / "one", MaterialFacts(**FACTS), bytes(16)):
        pass
    assert [one.name for one in tmp_path.iterdir()] == ["one"]


@pytest.mark.parametrize("wrong", [{"body_bytes": "0"}, {"about": 3}, {"plans": None}], ids=str)
def test_facts_of_other_kinds_are_damage(tmp_path, wrong):
    path = tmp_path / "forged"
    with write_material(path, MaterialFacts(**FACTS | wrong), bytes(16)):
        pass
    with pytest.raises(DataError, match="header is damaged"), open_material(path, me=ALICE):
        pass


@pytest.mark.parametrize("kind", ["pipe", "folder", "circle"])
def test_what_is_no_file_is_refused_by_name(tmp_path, kind):
    path = tmp_path / kind
    make = {"pipe": os.mkfifo, "folder": os.mkdir, "circle": lambda at: os.symlink(at, at)}
    make[kind](path)
    with pytest.raises(DataError, match="cannot open"), open_material(path, me=ALICE):
        pass
