"""What must last is on the disk, with its name, before whoever wrote it goes on."""

import errno
import fcntl
import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from support.machine import Disk, full_disk
from tacit import disk as disk_module
from tacit.disk import DurableFile, durable, make_durable, sole, write_durable, write_whole
from tacit.dp import ADD_REMOVE_MARKS, Book, Pure
from tacit.errors import InputError, PartyError
from tacit.federated.journal import open_journal
from tacit.llm.backend.serving import TokenQuota, enrol
from tacit.split import checkpoint as split
from tacit.text.vote import Budget
from tacit.training import ShareCheckpoint, StateFolder
from tacit.vault import Checkpoint

EVENT = Pure(epsilon=0.25, relation=ADD_REMOVE_MARKS, mechanism="votes")


def chat(user, dealer):
    return SimpleNamespace(key={"user": user, "dealer": dealer}.get)


def begun(path):
    folder = StateFolder(path / "state", "b")
    folder.begin("w", bound=4.0)
    return folder


def count(path, value):
    with durable(path) as file:
        file.write(value)


def keep_step(path):
    begun(path).save(ShareCheckpoint(step=3, attempt=7, shares={"w": torch.arange(4)}, shown=()))


def keep_split(path):
    Checkpoint(path / "split").save(1, split.arrays_of({"w": torch.ones(3)}))


USERS = {
    "a file": lambda path: count(path / "any", b"1"),
    "book": lambda path: Book(path / "book.json", 9.0).enter("one", [], 1e-5, kind="train"),
    "start of a training": begun,
    "checkpoint": keep_step,
    "key of noise": lambda path: begun(path).noise(is_new=True),
    "note of an opening": lambda path: begun(path).note_opening(2),
    "split checkpoint": keep_split,
    "key of labels": lambda path: split.keep_key(Checkpoint(path / "labels"), b"k" * 16),
    "weights of one side": lambda path: split.save_weights(path / "w.npz", torch.nn.Linear(2, 1)),
    "quota": lambda path: TokenQuota(path, "alice", 9)(1, "user"),
    "roster": lambda path: enrol({path / "chat.toml": chat("a", "d")}, path),
    "journal": lambda path: open_journal(path / "nodes", run=1, node=2).enter(1, b"mask"),
    "round": lambda path: open_journal(path / "nodes", run=1, node=2).begin(most=3),
    "budget of a folder": lambda path: Budget(1.0, path=path / "spent.json").spend(EVENT),
}


@pytest.mark.parametrize("act", USERS.values(), ids=USERS)
def test_who_counts_goes_on_only_when_a_power_cut_would_lose_nothing(tmp_path, monkeypatch, act):
    """On 0.2 the file was flushed and its folder was not: the entry was lost in 8 of 8 cuts."""
    tmp_path.chmod(0o700)
    disk = Disk(monkeypatch, tmp_path)
    act(tmp_path)
    assert disk.loose == set()
    kinds = [kind if what != "folder" else "folder" for kind, what in disk.acts]
    assert kinds[-3:] == ["flush", "rename", "folder"]


@pytest.mark.parametrize("fails", ["open", "fsync", "replace"])
@pytest.mark.parametrize("act", USERS.values(), ids=USERS)
def test_on_a_full_disk_nobody_goes_on(tmp_path, monkeypatch, act, fails):
    tmp_path.chmod(0o700)
    full_disk(monkeypatch, fails)
    with pytest.raises(InputError, match="No space left"):
        act(tmp_path)
    assert not list(tmp_path.rglob("*.part"))


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    count(tmp_path / "any", b"before")
    with monkeypatch.context() as patch:
        full_disk(patch, "fsync")
        with pytest.raises(InputError, match=r"cannot write .*any: No space left"):
            count(tmp_path / "any", b"after")
    assert (tmp_path / "any").read_bytes() == b"before"


def test_links_lead_to_one_file_and_stay_links(tmp_path):
    (tmp_path / "far").mkdir()
    real, link = tmp_path / "far" / "book", tmp_path / "book"
    link.symlink_to(real)
    count(link, b"1")
    count(link, b"2")
    assert link.is_symlink()
    assert real.read_bytes() == b"2"
    assert oct(real.stat().st_mode)[-3:] == "600"
    (tmp_path / "turn").symlink_to(tmp_path / "turn")
    with pytest.raises(InputError, match="cannot write"):
        count(tmp_path / "turn", b"1")


def test_a_file_of_two_names_is_refused_before_one_of_them_goes_on_alone(tmp_path):
    count(tmp_path / "book", b"1")
    os.link(tmp_path / "book", tmp_path / "other")
    with durable(tmp_path / "other") as file, pytest.raises(InputError, match="2 names"):
        file.read()


def test_of_many_at_once_each_counts_through_whatever_name(tmp_path):
    names = [tmp_path / "book", *(tmp_path / f"link {n}" for n in range(7))]
    for name in names[1:]:
        name.symlink_to(names[0])
    gate = threading.Barrier(len(names))

    def add(name):
        gate.wait()
        with durable(name) as file:
            file.write((file.read() or b"") + b"1")

    threads = [threading.Thread(target=partial(add, name)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names[0].read_bytes() == b"1" * len(names)


CROWD = 6


def spend_book(path, n):
    Book(path / "book.json", 9.0).enter(f"training {n}", [], 1e-5, kind="train")


def spend_quota(path, n):
    TokenQuota(path, "alice", CROWD - 1)(1, "user")


def enrol_one(path, n):
    enrol({path / f"{n}.toml": chat(f"u{n}", "d")}, path)


def enrol_both_ways(path, n):
    """One half names as user whom the other half names as dealer."""
    user, dealer = ("x", f"d{n}") if n % 2 else (f"u{n}", "x")
    enrol({path / f"{n}.toml": chat(user, dealer)}, path)


def spend_budget(path, n):
    Budget(0.25 * (CROWD - 1), path=path / "spent.json").spend(EVENT)


def entries(path, name, kind):
    return json.loads((path / name).read_bytes())[f"tacit {kind}"]


COUNTS = {
    "book": (
        spend_book,
        lambda path: len(entries(path, "book.json", "book")),
        (CROWD, 0),
    ),
    "quota": (
        spend_quota,
        lambda path: entries(path, "owner.tokens", "quota")["alice"],
        (CROWD - 1, 1),
    ),
    "roster": (enrol_one, lambda path: len(entries(path, "owner.roles", "roster")), (CROWD + 1, 0)),
    "budget": (
        spend_budget,
        lambda path: sum(entries(path, "spent.json", "budget").values()),
        (CROWD - 1, 1),
    ),
}


def at_once(act, path, monkeypatch):
    """Let a crowd read, wait and write; return how many were refused."""
    gate, refused, read = threading.Barrier(CROWD), [], DurableFile.read

    def slow(self):
        content = read(self)
        time.sleep(0.01)  # without a lock all have read by now, and nobody has written
        return content

    def take(n):
        gate.wait()
        try:
            act(path, n)
        except (InputError, PartyError) as error:
            refused.append(error)

    monkeypatch.setattr(DurableFile, "read", slow)
    threads = [threading.Thread(target=take, args=(n,)) for n in range(CROWD)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(refused)


@pytest.mark.parametrize(("act", "count", "wanted"), COUNTS.values(), ids=COUNTS)
def test_of_a_crowd_at_once_each_is_counted_and_the_last_finds_no_room(
    tmp_path, monkeypatch, act, count, wanted
):
    refused = at_once(act, tmp_path, monkeypatch)
    assert (count(tmp_path), refused) == wanted


def test_nobody_is_user_and_dealer_by_being_named_both_at_once(tmp_path, monkeypatch):
    assert at_once(enrol_both_ways, tmp_path, monkeypatch) == CROWD // 2
    roles = {
        one.split()[0] for one in entries(tmp_path, "owner.roles", "roster") if one.endswith(" x")
    }
    assert len(roles) == 1


def test_what_a_killed_start_left_is_swept(tmp_path):
    (tmp_path / ".bo[o]k.0a0b0c0d0e0f.part").write_bytes(b"half")
    (tmp_path / ".other.0a0b0c0d0e0f.part").write_bytes(b"somebody else's")
    count(tmp_path / "bo[o]k", b"1")
    assert [one.name for one in tmp_path.glob(".*.part")] == [".other.0a0b0c0d0e0f.part"]


def test_a_place_that_cannot_be_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot make .*sub"):
        make_durable(tmp_path / "file" / "sub")
    with pytest.raises(InputError, match="not a folder"):
        make_durable(tmp_path / "file")
    with pytest.raises(InputError, match="must be there and writable"):
        count(tmp_path / "none" / "book", b"1")
    with pytest.raises(InputError, match="cannot read"), durable(tmp_path) as file:
        file.read()


def link(path, to):
    path.symlink_to(to)


def fifo(path, to):
    os.mkfifo(path)


@pytest.mark.parametrize("name", [os.link, link])
def test_a_lock_under_somebody_s_name_for_a_file_of_ours_leaves_that_as_it_is(tmp_path, name):
    """Whoever hands on a folder could put such a name where a lock will be."""
    ours, lock = tmp_path / "ours", tmp_path / ".out-north.state.lock"
    ours.write_text("precious")
    name(*((ours, lock) if name is os.link else (lock, ours)))
    with pytest.raises(InputError, match="cannot write"), sole(lock, "the job"):
        pytest.fail("held")
    assert ours.read_text() == "precious"


@pytest.mark.parametrize("name", [link, fifo])
def test_a_lock_makes_no_file_behind_a_link_and_waits_for_no_pipe(tmp_path, name):
    name(tmp_path / ".book.lock", tmp_path / "elsewhere")
    with pytest.raises(InputError, match="cannot write"), durable(tmp_path / "book"):
        pytest.fail("held")
    assert not (tmp_path / "elsewhere").exists()


def test_what_is_counted_in_is_a_file_and_no_pipe_that_never_ends(tmp_path):
    os.mkfifo(tmp_path / "book")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 1 << 40)
    for name in ("book", "zero", "huge"):
        with pytest.raises(InputError, match="cannot read"), durable(tmp_path / name) as file:
            file.read()


def test_a_file_is_not_written_through_a_link(tmp_path):
    ours = tmp_path / "ours"
    ours.write_text("precious")
    (tmp_path / "step-12.npz").symlink_to(ours)
    write_durable(tmp_path / "step-12.npz", b"shares")
    assert ours.read_text() == "precious"
    assert (tmp_path / "step-12.npz").read_bytes() == b"shares"


def test_a_second_start_is_told_who_holds_the_lock(tmp_path):
    lock = tmp_path / "new" / ".out-north.state.lock"
    with sole(lock, "the job"):
        who = f"process {os.getpid()} on {socket.gethostname()}"
        words = rf"the job runs already, as {who}; wait"
        with pytest.raises(InputError, match=words), sole(lock, "the job"):
            pytest.fail("two at once")
        assert lock.exists()
    assert not lock.parent.exists()
    with sole(lock, "the job"):
        pass


def test_a_lock_ends_with_its_process(tmp_path):
    lock = tmp_path / "lock"
    code = (
        "import os, sys; from pathlib import Path; from tacit.disk import sole\n"
        "with sole(Path(sys.argv[1]), 'x'): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(InputError, match=f"process {child.pid} on"), sole(lock, "x"):
            pytest.fail("two at once")
        child.kill()
    assert lock.exists()
    with sole(lock, "x"):
        assert f"process {os.getpid()} " in lock.read_text()
    assert not lock.exists()


def test_a_lock_that_was_removed_before_it_was_tried_is_no_lock(tmp_path, monkeypatch):
    """The first ends and a third begins between the second's opening of the file and its try."""
    first, third = ExitStack(), ExitStack()
    first.enter_context(sole(tmp_path / "lock", "x"))
    real = fcntl.flock

    def late(held, how):
        monkeypatch.setattr(fcntl, "flock", real)
        first.close()
        third.enter_context(sole(tmp_path / "lock", "x"))
        real(held, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with third, pytest.raises(InputError, match="runs already"), sole(tmp_path / "lock", "x"):
        pytest.fail("two at once")


def test_a_folder_that_is_there_and_not_on_the_disk_is_not_taken_for_made(tmp_path, monkeypatch):
    def full(folder):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk_module, "flush_folder", full)
    with pytest.raises(InputError, match=r"cannot make .*new: No space left"):
        disk_module.make_durable(tmp_path / "new")


# Texts for whoever may read new files of this user


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
from tacit.disk import write_whole
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
