"""A node's journal: of many at once, one is let through."""

import multiprocessing
import threading

import pytest

from support.machine import full_disk
from tacit.errors import ConfigError, InputError, PartyError
from tacit.federated.journal import Journal, open_journal

TRIES = 8


def enter_once(file, gate, found):
    gate.wait()
    try:
        Journal(file).enter(1, b"mask")
        found.put("entered")
    except PartyError:
        found.put("refused")


@pytest.mark.parametrize(
    ("make", "barrier", "queue"),
    [
        (threading.Thread, threading.Barrier, multiprocessing.SimpleQueue),
        (multiprocessing.Process, multiprocessing.Barrier, multiprocessing.SimpleQueue),
    ],
    ids=["threads", "processes"],
)
def test_of_many_at_once_one_enters(tmp_path, make, barrier, queue):
    gate, found = barrier(TRIES), queue()
    workers = [make(target=enter_once, args=(tmp_path / "one", gate, found)) for _ in range(TRIES)]
    for worker in workers:
        worker.start()
    answers = [found.get() for _ in workers]
    for worker in workers:
        worker.join()
    assert sorted(answers) == ["entered"] + ["refused"] * (TRIES - 1)


def test_rounds_that_begin_at_once_have_different_numbers(tmp_path):
    numbers, gate = [], threading.Barrier(TRIES)

    def begin():
        gate.wait()
        numbers.append(Journal(tmp_path / "one").begin(most=TRIES))

    workers = [threading.Thread(target=begin) for _ in range(TRIES)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(numbers) == list(range(1, TRIES + 1))
    with pytest.raises(PartyError, match="more than the 8 rounds"):
        Journal(tmp_path / "one").begin(most=TRIES)


def test_rounds_of_an_earlier_run_are_counted(tmp_path):
    assert Journal(tmp_path / "one").begin(most=5, already=3) == 4
    assert Journal(tmp_path / "one").begin(most=5) == 5


def test_the_same_step_of_another_round_is_another_step(tmp_path):
    journal = Journal(tmp_path / "one")
    journal.enter(1, b"mask")
    journal.enter(2, b"mask")
    journal.enter(1, b"share")
    with pytest.raises(PartyError, match="answered before"):
        journal.enter(2, b"mask")


def test_after_the_end_nothing_is_entered(tmp_path):
    journal = Journal(tmp_path / "one")
    journal.enter(1, b"mask")
    journal.end()
    for late in (journal.end, lambda: journal.begin(most=9), lambda: journal.enter(2, b"mask")):
        with pytest.raises(PartyError, match="a run that this node has ended"):
            late()


def test_a_journal_of_an_older_version_or_a_damaged_one_answers_nothing(tmp_path):
    journal, file = Journal(tmp_path / "one"), tmp_path / "one"
    journal.enter(1, b"mask")
    for content in (bytes(24), file.read_bytes()[:-3]):
        file.write_bytes(content)
        with pytest.raises(InputError, match="answers nothing: its file is not as it should be"):
            journal.enter(1, b"share")
        assert file.read_bytes() == content


def test_nodes_and_runs_have_diaries_of_their_own(tmp_path):
    open_journal(tmp_path / "new", run=1, node=2).enter(1, b"mask")
    open_journal(tmp_path / "new", run=2, node=1).enter(1, b"mask")
    with pytest.raises(PartyError, match="answered before"):
        open_journal(tmp_path / "new", run=1, node=2).enter(1, b"mask")


def test_a_folder_that_others_may_write_is_refused(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(ConfigError, match="must be yours alone to write"):
        open_journal(tmp_path / "open", run=1, node=1)


def test_a_full_disk_lets_nothing_through(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "one")
    with monkeypatch.context() as patch:
        full_disk(patch, "fsync")
        for _ in range(3):
            with pytest.raises(InputError, match="cannot write its journal"):
                journal.begin(most=2)
            with pytest.raises(InputError, match="cannot write its journal"):
                journal.enter(1, b"mask")
    assert journal.begin(most=2) == 1


def test_a_journal_that_cannot_be_opened_is_said_without_its_place(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="answers nothing") as caught:
        Journal(tmp_path / "folder").begin(most=1)
    assert str(tmp_path) not in str(caught.value)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be made"):
        open_journal(tmp_path / "file", run=1, node=1)
