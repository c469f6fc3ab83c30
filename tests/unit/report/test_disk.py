import errno
import os
import stat
import subprocess
import sys

import pytest

from tacit.errors import InputError
from tacit.report.disk import write_whole


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    write_whole(path, "new ε\n")
    assert path.read_text(encoding="utf-8") == "new ε\n"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_file_gets_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "plain").touch()
    write_whole(tmp_path / "ours", "x")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "ours")]
    assert modes[0] == modes[1]


# In a process of its own: the limit holds for everything that a process writes.
SMALL_FILES = """
import resource, sys
from pathlib import Path
from tacit.errors import InputError
from tacit.report.disk import write_whole
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_whole(Path(sys.argv[1]), "x" * 100_000)
except InputError as error:
    print(error)
"""


def test_a_write_that_fails_midway_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    done = subprocess.run(
        [sys.executable, "-c", SMALL_FILES, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"cannot write {path}: File too large; no partial file was left\n"
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        ("fsync", errno.ENOSPC, "No space left on device"),
        ("replace", errno.EACCES, "Permission denied"),
    ],
)
def test_a_refusal_by_the_system_leaves_nothing(tmp_path, monkeypatch, call, code, message):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(InputError, match=message):
        write_whole(tmp_path / "a.txt", "x")
    assert os.listdir(tmp_path) == []


def test_an_interruption_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "a.txt", "x")
    assert os.listdir(tmp_path) == []


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(InputError, match=r"cannot write .*none.*: No such file or directory"):
        write_whole(tmp_path / "none" / "a.txt", "x")


def test_a_path_that_is_no_plain_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(InputError, match="not a plain file"):
            write_whole(path, "x")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
