"""Result folders: whole or not at all, and nobody else's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.errors import InputError
from tacit.jobs import folder
from tacit.jobs.folder import check_target, find_aside, staged, state_of, write_text

RESULT = '{"schema": 1, "version": "0", "parties": []}'


def write_result(path, text=RESULT):
    (path / folder.RESULT).write_text(text)


def names(path):
    return sorted(os.listdir(path))


def test_a_good_end_makes_the_folder(tmp_path):
    with staged(tmp_path / "a" / "out") as stage:
        write_result(stage)
        assert not (tmp_path / "a" / "out").exists()
    assert names(tmp_path / "a") == ["out"]
    assert names(tmp_path / "a" / "out") == [folder.RESULT]


def stop_after(text, out):
    with staged(out) as stage:
        write_result(stage, text)
        raise KeyboardInterrupt


def test_a_bad_end_leaves_nothing_not_even_the_folders_above(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        stop_after(RESULT, tmp_path / "a" / "b" / "out")
    assert names(tmp_path) == []


def test_a_bad_end_keeps_the_old_result(tmp_path):
    with staged(tmp_path / "out") as stage:
        write_result(stage)
    with pytest.raises(KeyboardInterrupt):
        stop_after("new", tmp_path / "out")
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out" / folder.RESULT).read_text() == RESULT


def test_a_new_result_replaces_the_old_one_whole(tmp_path):
    for extra in (folder.PREDICTIONS, folder.REPORT):
        with staged(tmp_path / "out") as stage:
            write_result(stage)
            (stage / extra).write_text("x")
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == [folder.REPORT, folder.RESULT]


@pytest.mark.parametrize(
    "extra", [folder.MODEL, "half-lab.npz", "ledger.json", "weights.safetensors", "notes.txt"]
)
def test_a_result_with_what_cannot_be_made_again_stays_under_a_number(tmp_path, extra):
    out = tmp_path / "out"
    for number in range(3):
        with staged(out) as stage:
            write_result(stage)
            (stage / extra).write_text(str(number))
    assert names(tmp_path) == ["out", "out.1", "out.2"]
    assert [(tmp_path / name / extra).read_text() for name in names(tmp_path)] == ["2", "0", "1"]
    assert find_aside(out) == tmp_path / "out.3"


def test_nothing_is_put_aside_before_the_new_result_is_whole(tmp_path):
    out = tmp_path / "out"
    with staged(out) as stage:
        write_result(stage)
        (stage / "ledger.json").write_text("{}")
    with pytest.raises(KeyboardInterrupt):
        stop_after("new", out)
    assert names(tmp_path) == ["out"]
    assert names(out) == ["ledger.json", folder.RESULT]


def gone():
    """Return the number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def leave(path, kind="part", *, process_id):
    left = path / f".out.{process_id}-{'0a' * 6}.{kind}"
    left.mkdir()
    (left / folder.PREDICTIONS).write_text("row,prediction\n1,1\n")
    return left


def test_what_a_killed_process_left_on_the_way_to_the_same_folder_is_removed(tmp_path):
    left = [leave(tmp_path, process_id=gone()), leave(tmp_path, "old", process_id=gone())]
    (tmp_path / "out").mkdir()
    with staged(tmp_path / "out") as stage:
        assert not any(path.exists() for path in left)
        write_result(stage)
    assert names(tmp_path) == ["out"]


def test_what_may_still_be_in_use_or_is_not_ours_stays(tmp_path):
    kept = [leave(tmp_path, process_id=os.getpid())]
    dead = gone()
    for name in (f".other.{dead}-{'0a' * 6}.part", f".out.{dead}-x.part", ".out.1.part"):
        kept.append(tmp_path / name)
        kept[-1].mkdir()
    with staged(tmp_path / "out") as stage:
        write_result(stage)
    assert names(tmp_path) == sorted(["out", *(path.name for path in kept)])


def test_a_result_that_a_killed_process_had_put_aside_comes_back(tmp_path):
    left = leave(tmp_path, "old", process_id=gone())
    write_result(left)
    with pytest.raises(KeyboardInterrupt):
        stop_after("new", tmp_path / "out")
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out" / folder.RESULT).read_text() == RESULT


KILLED = """
import os, sys
from pathlib import Path
from tacit.jobs.folder import staged
with staged(Path(sys.argv[1])):
    os.kill(os.getpid(), 9)
"""


def test_a_kill_leaves_a_folder_that_the_next_run_finds(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "out")], check=False)
    assert len(names(tmp_path)) == 1
    with staged(tmp_path / "out") as stage:
        write_result(stage)
    assert names(tmp_path) == ["out"]


def test_an_empty_folder_may_be_filled(tmp_path):
    (tmp_path / "out").mkdir()
    with staged(tmp_path / "out") as stage:
        write_result(stage)
    assert names(tmp_path / "out") == [folder.RESULT]


def test_others_cannot_read_a_result(tmp_path):
    with staged(tmp_path / "out") as stage:
        write_result(stage)
    assert (tmp_path / "out").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("files", "word"),
    [
        ({folder.PREDICTIONS: "mine"}, "no result.json"),
        ({folder.RESULT: "{}"}, "no result.json"),
        ({folder.RESULT: "not JSON"}, "no result.json"),
    ],
)
def test_a_folder_that_is_not_ours_is_refused_and_left_alone(tmp_path, files, word):
    out = tmp_path / "out"
    out.mkdir()
    for name, text in files.items():
        (out / name).write_text(text)
    with pytest.raises(InputError, match=word), staged(out):
        pytest.fail("was entered")
    assert {name: (out / name).read_text() for name in names(out)} == files
    assert names(tmp_path) == ["out"]


def test_a_folder_that_was_filled_meanwhile_is_not_replaced(tmp_path):
    out = tmp_path / "out"

    def write_while_another_does():
        with staged(out) as stage:
            write_result(stage)
            out.mkdir()
            (out / "diary").write_text("dear")

    with pytest.raises(InputError, match=r"no result\.json"):
        write_while_another_does()
    assert names(out) == ["diary"]
    assert names(tmp_path) == ["out"]


def test_a_file_or_a_link_is_no_target(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("file", "link", "file/below"):
        with pytest.raises(InputError, match="not a folder"):
            check_target(tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused_early(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="no permission"):
        check_target(tmp_path / "out")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_is_an_input_error():
    with pytest.raises(InputError, match="No space left"):
        write_text(Path("/dev/full"), "x" * 100_000)


@pytest.mark.parametrize("was_there", [False, True])
def test_a_file_is_for_its_owner_alone_whatever_the_umask(tmp_path, was_there):
    out = tmp_path / "answers.csv"
    if was_there:
        out.write_text("a longer text than the new one")
        out.chmod(0o644)
    previous = os.umask(0)
    try:
        write_text(out, "row,prediction\n1,3\n")
    finally:
        os.umask(previous)
    assert out.read_text() == "row,prediction\n1,3\n"
    assert oct(out.stat().st_mode)[-3:] == "600"


def test_what_is_no_file_is_written_to_and_stays_what_it_is(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o644)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "hello")
    assert os.read(reading, 10) == b"hello"
    os.close(reading)
    assert oct(pipe.stat().st_mode)[-3:] == "644"


def test_nothing_that_a_party_keeps_lies_behind_a_link(tmp_path):
    """Whoever hands on a job could have its checkpoints written into a folder of their choice."""
    (tmp_path / ".out-north.state").symlink_to(tmp_path)
    with pytest.raises(InputError, match="is a link"):
        state_of(tmp_path / "out", "north")
    assert state_of(tmp_path / "out", "south") == tmp_path / ".out-south.state"
