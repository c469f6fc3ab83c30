import os
import stat

import pytest
import torch

from harness import ALICE, BOB, MEETING, ROLES
from tacit.errors import ConfigError, DataError, DisagreementError
from tacit.mpc import PROTOCOLS, compute, make_plan, prepare_material
from tacit.mpc.offline import open_material
from tacit.party import Meeting, run_threads

pytestmark = pytest.mark.filterwarnings("ignore:prepare_material goes:DeprecationWarning")

TWO = Meeting(parties=(ALICE, BOB), job_digest=b"j" * 32, patience=MEETING.patience)
X = torch.tensor([1.5, -2.0, 0.25], dtype=torch.float64)


def program(ops, rows=3):
    x = ops.input("x", owner=ALICE, shape=(rows,), bound=4.0)
    y = ops.relu(ops.mul(x, x))
    return ops.open(ops.mul(y, x), to=(BOB,), what="y", why="test")


def planned(protocol="sealed", **changes):
    return make_plan(lambda ops: program(ops, **changes), PROTOCOLS[protocol], ROLES, frac_bits=16)


def run(plan, files):
    def party(session):
        return compute(session, plan, program, inputs={"x": X}, material=files[session.me])

    return run_threads(dict.fromkeys((ALICE, BOB), party), TWO)


def test_prepared_material_computes_without_a_dealer_in_the_session(tmp_path):
    plan = planned()
    files = prepare_material(plan, tmp_path)
    assert torch.allclose(run(plan, files)[BOB], X**3, atol=1e-3)
    for path in files.values():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.stat().st_size < 32, "the key and the masks are gone when they were used"


def test_material_is_refused_the_second_time(tmp_path):
    plan = planned()
    files = prepare_material(plan, tmp_path)
    copies = {name: path.read_bytes() for name, path in files.items()}
    run(plan, files)
    with pytest.raises(DataError, match="used already"):
        run(plan, files)
    for name, path in files.items():
        path.write_bytes(copies[name])
    with pytest.raises(DataError, match="used already"):
        run(plan, files)


def test_material_is_refused_after_a_run_that_broke_off(tmp_path):
    plan = planned()
    files = prepare_material(plan, tmp_path)

    def crash():
        with open_material(files[BOB], plan, me=BOB) as source:
            source.correction(2, 3)
            raise RuntimeError("the machine stops")

    with pytest.raises(RuntimeError):
        crash()
    with pytest.raises(DataError, match="used already"), open_material(files[BOB], plan, me=BOB):
        pass


def test_the_mark_is_on_the_disk_before_anything_is_taken(tmp_path):
    plan = planned()
    path = prepare_material(plan, tmp_path)[ALICE]
    with open_material(path, plan, me=ALICE):
        copy = path.read_bytes()
    assert b"material 1\nU" in copy
    path.with_name(path.name + ".used").unlink()
    path.write_bytes(copy)
    with pytest.raises(DataError, match="used already"), open_material(path, plan, me=ALICE):
        pass


def test_the_key_is_gone_from_the_disk_while_a_run_lasts(tmp_path):
    plan = planned()
    path = prepare_material(plan, tmp_path)[ALICE]
    head = path.read_bytes().partition(b'"key": "')[2]
    with open_material(path, plan, me=ALICE) as source:
        drawn = source.stream(0).words(4)
        assert head[:32] not in path.read_bytes()
    assert drawn.unique().numel() == 4


@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_a_file_with_two_names_is_used_once(tmp_path, link):
    plan = planned()
    path = prepare_material(plan, tmp_path)[BOB]
    (tmp_path / "elsewhere").mkdir()
    other = tmp_path / "elsewhere" / "bob"
    link(path, other)
    with (
        open_material(path, plan, me=BOB),
        pytest.raises(DataError, match="in use"),
        open_material(other, plan, me=BOB),
    ):
        pass
    with pytest.raises(DataError, match="used already"), open_material(other, plan, me=BOB):
        pass


@pytest.mark.parametrize(
    ("me", "changes", "message"),
    [(ALICE, {"rows": 4}, "made for plan"), (BOB, {}, "material of 'alice', not of 'bob'")],
)
def test_material_of_another_plan_or_party_is_refused_and_stays_fresh(
    tmp_path, me, changes, message
):
    files = prepare_material(planned(), tmp_path)
    with (
        pytest.raises(DataError, match=message),
        open_material(files[ALICE], planned(**changes), me=me),
    ):
        pass
    with open_material(files[ALICE], planned(), me=ALICE):
        pass


@pytest.mark.parametrize("damage", ["truncated", "longer", "header", "magic"])
def test_damaged_material_is_refused_before_it_is_used(tmp_path, damage):
    plan = planned()
    path = prepare_material(plan, tmp_path)[BOB]
    data = bytearray(path.read_bytes())
    if damage == "header":
        data[40] ^= 1
    if damage == "magic":
        data[0] ^= 1
    data = {"truncated": data[:-1], "longer": data + b"x"}.get(damage, data)
    path.write_bytes(bytes(data))
    with pytest.raises(DataError), open_material(path, plan, me=BOB):
        pass
    assert not path.with_name(path.name + ".used").exists()


def test_a_changed_word_is_noticed_when_its_step_is_reached(tmp_path):
    plan = planned()
    files = prepare_material(plan, tmp_path)
    data = bytearray(files[BOB].read_bytes())
    data[-100] ^= 4
    files[BOB].write_bytes(bytes(data))
    with pytest.raises(DataError, match="damaged"):
        run(plan, files)


def test_files_that_were_not_made_together_are_refused(tmp_path):
    plan = planned()
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    first, second = (prepare_material(plan, tmp_path / name) for name in ("one", "two"))
    with pytest.raises(DisagreementError, match="made together"):
        run(plan, {ALICE: first[ALICE], BOB: second[BOB]})


def test_a_file_is_never_overwritten(tmp_path):
    plan = planned()
    prepare_material(plan, tmp_path)
    with pytest.raises(DataError, match="exists"):
        prepare_material(plan, tmp_path)


def test_a_protocol_whose_helper_is_online_has_no_files(tmp_path):
    with pytest.raises(ConfigError, match="while it computes"):
        prepare_material(planned("permuted3"), tmp_path)
    assert os.listdir(tmp_path) == []


def test_two_preparations_of_one_plan_share_nothing(tmp_path):
    plan = planned()
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = (prepare_material(plan, tmp_path / name)[BOB] for name in ("one", "two"))
    left, right = (path.read_bytes()[-400:] for path in (one, two))
    # 400 uniform bytes agree in 16 places or more with chance below 1e-10.
    assert sum(a == b for a, b in zip(left, right, strict=True)) < 16


def test_material_lies_where_nobody_else_can_read_or_change_it(tmp_path):
    plan = planned()
    previous = os.umask(0)
    try:
        files = prepare_material(plan, tmp_path / "new")
    finally:
        os.umask(previous)
    assert oct((tmp_path / "new").stat().st_mode)[-3:] == "700"
    assert {oct(path.stat().st_mode)[-3:] for path in files.values()} == {"600"}
    files[BOB].chmod(0o640)
    with pytest.raises(DataError, match="read by others"), open_material(files[BOB], plan, me=BOB):
        pass
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(DataError, match="others can put files"):
        prepare_material(plan, tmp_path / "open")


def test_who_prepares_material_is_told_that_it_goes(tmp_path):
    with pytest.warns(DeprecationWarning, match="no job and no chat") as warned:
        prepare_material(planned(), tmp_path)
    assert warned[0].filename == __file__
