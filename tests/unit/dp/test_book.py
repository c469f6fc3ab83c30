"""Books of what was spent: whole before a row leaves, one for all names of the file."""

import json
from dataclasses import replace

import pytest

from support.machine import Disk
from support.training import NAMES, OWNERS, KilledError, digits_of, folders_in, killed, make_task
from tacit.dp import (
    ADD_REMOVE_MARKS,
    ADD_REMOVE_RECORD,
    Book,
    Gaussian,
    Ledger,
    Poisson,
    Pure,
    ledger_to_record,
)
from tacit.dp.book import BudgetSpentError, as_drawn, open_book
from tacit.errors import ConfigError, DataError
from tacit.party import Meeting, run_threads
from tacit.training import Privacy, train
from tacit.transport.memory import MemoryLane

TASK = make_task(rows=20, epochs=2, privacy=Privacy(epsilon=4.0, delta=1e-3), show_to=())
EVENT = Pure(epsilon=1.0, relation=ADD_REMOVE_RECORD, mechanism="one")


def test_a_plan_asks_a_book_and_enters_nothing(tmp_path):
    ledger = Ledger()
    ledger.record(EVENT)
    events, book = ledger_to_record(ledger), Book(tmp_path / "book.json", 2.5)
    assert book.foresee(events, 1e-5) == (1, pytest.approx(1.0, abs=1e-4))
    assert not book.path.exists()
    for count in (1, 2):
        assert book.foresee(events, 1e-5) == book.enter(str(count), events, 1e-5, kind="train")
    before = book.path.read_bytes()
    with pytest.raises(ConfigError, match="2 were entered before"):
        book.foresee(events, 1e-5)
    assert book.path.read_bytes() == before


def test_rows_that_the_trainer_draws_in_secret_count_as_drawn_but_those_that_parties_draw_do_not(
    tmp_path,
):
    noise = Gaussian(sigma=1.0, l2_sensitivity=1.0, relation=ADD_REMOVE_RECORD)
    ledger = Ledger()
    ledger.record(Poisson(event=noise, rate=0.01, is_hidden=True))
    events = ledger_to_record(ledger)
    alone, among = (Book(tmp_path / f"{name}.json", 50.0) for name in ("alone", "among"))
    assert alone.foresee(events, 1e-5) == alone.enter("1", events, 1e-5, kind="text")
    drawn = as_drawn(events)
    assert among.foresee(drawn, 1e-5) == among.enter("key", drawn, 1e-5, kind="train")
    (_, secret), (_, seen) = alone.foresee(events, 1e-5), among.foresee(drawn, 1e-5)
    assert 2 * secret < seen


def records(*events):
    ledger = Ledger()
    for event in events:
        ledger.record(event)
    return ledger_to_record(ledger)


def test_what_protects_another_unit_stands_beside_and_is_never_added_up(tmp_path):
    book = Book(tmp_path / "book.json", 1.5)
    marks = records(replace(EVENT, relation=ADD_REMOVE_MARKS))
    assert book.enter("1", records(EVENT), 1e-5, kind="train")[0] == 1
    many, spent = book.enter("2", marks, 1e-5, kind="text")
    assert (many, spent) == (1, pytest.approx(1.0, abs=1e-4))
    for events in (records(EVENT), marks):
        with pytest.raises(BudgetSpentError, match="1 were entered before"):
            book.enter("3", events, 1e-5, kind="train")
    assert {one: len(it) for one, it in book.ledgers().items()} == {
        ADD_REMOVE_RECORD: 1,
        ADD_REMOVE_MARKS: 1,
    }
    with pytest.raises(ConfigError, match="different neighbouring relations"):
        book.enter("4", records(EVENT) + marks, 1e-5, kind="train")


def test_other_rows_are_counted_apart_and_rows_without_a_name_with_all(tmp_path):
    east, west = (Book(tmp_path / "book.json", 1.5, rows=name) for name in ("east", "west"))
    for book in (east, west):
        assert book.enter(book.rows, records(EVENT), 1e-5, kind="train")[0] == 1
    with pytest.raises(BudgetSpentError, match="2 were entered before"):
        Book(tmp_path / "book.json", 1.5).enter("any", records(EVENT), 1e-5, kind="train")
    assert (
        Book(tmp_path / "book.json", 3.5).enter("any", records(EVENT), 1e-5, kind="train")[0] == 3
    )
    for book in (east, west):
        with pytest.raises(BudgetSpentError, match="2 were entered before"):
            book.foresee(records(EVENT), 1e-5)


def test_a_book_of_0_2_is_refused_by_name(tmp_path):
    (tmp_path / "book.json").write_text('{"trainings": {}, "delta": 1e-05}')
    (tmp_path / "rows.csv.ledger").write_text('{"event": {}, "delta": 1e-05}\n')
    for name in ("book.json", "rows.csv.ledger"):
        book = open_book(str(tmp_path / name))
        with pytest.raises(DataError, match=f"{name} is damaged, or no book of this version"):
            book.enter("1", records(EVENT), 1e-5, kind="train")
        with pytest.raises(DataError, match="what was spent is not known"):
            book.foresee(records(EVENT), 1e-5)


@pytest.fixture(scope="module")
def digits():
    return digits_of(60)


def attend(digits, folders, books, *, is_fresh=False):
    """Train with a book at each owner that has one."""

    def party(session):
        mine = {}
        if session.me in OWNERS:
            first = 20 * OWNERS.index(session.me)
            mine = {"rows": digits[0][first : first + 20], "labels": digits[1][first : first + 20]}
        folder, book = folders[session.me], books.get(session.me)
        return train(session, TASK, folder=folder, book=book, is_fresh=is_fresh, **mine)

    return run_threads(dict.fromkeys(NAMES, party), Meeting(parties=NAMES, job_digest=bytes(32)))


def test_no_message_leaves_while_a_power_cut_would_lose_what_it_rests_on(
    digits, tmp_path, monkeypatch
):
    """On 0.2 book, noise key and note of openings were flushed without their folders."""
    disk, put = Disk(monkeypatch, tmp_path), MemoryLane.put
    sent, early, unpaid = [], [], []
    books = {name: Book(tmp_path / "books" / f"{name}.json", 9.0) for name in OWNERS}
    (tmp_path / "books").mkdir()
    disk.forget()

    def leaving(self, packet, *, check):
        tag = packet.head.tag
        sent.append(tag)
        if disk.loose:
            early.append((tag, sorted(disk.loose)))
        is_paid = self._sender not in books or books[self._sender].path.exists()
        if not tag.startswith("setup/") and packet.head.payload_bytes and not is_paid:
            unpaid.append((self._sender, tag))
        put(self, packet, check=check)

    monkeypatch.setattr(MemoryLane, "put", leaving)
    attend(digits, folders_in(tmp_path / "states"), books)
    assert len(sent) > 100
    assert (early, unpaid) == ([], [])
    written = {name for what, name in disk.acts if what == "rename"}
    assert {"noise.key", "opened", "start.json", *(f"{one}.json" for one in OWNERS)} <= written


def test_a_book_behind_a_link_is_one_book(tmp_path):
    """On 0.2 the link became a file of its own: two trainings where one had room."""
    ledger = Ledger()
    ledger.record(EVENT)
    one = ledger_to_record(ledger)
    (tmp_path / "vault").mkdir()
    real, link = tmp_path / "vault" / "book.json", tmp_path / "book.json"
    link.symlink_to(real)
    Book(link, 1.5).enter("one", one, 1e-5, kind="train")
    assert link.is_symlink()
    with pytest.raises(ConfigError, match="1 were entered before"):
        Book(real, 1.5).enter("two", one, 1e-5, kind="train")
    with pytest.raises(ConfigError, match="1 were entered before"):
        Book(link, 1.5).enter("two", one, 1e-5, kind="train")


def trainings(book):
    return len(json.loads(book.path.read_bytes())["tacit book"])


def test_a_training_that_is_killed_before_it_keeps_a_step_is_entered_once(
    digits, tmp_path, monkeypatch
):
    """On 0.2 the next start drew other noise: with room for one training it never ran."""
    books = {name: Book(tmp_path / f"{name}.json", 4.5) for name in OWNERS}
    folders = folders_in(tmp_path)
    with monkeypatch.context() as patch:
        killed(patch, 1, "step")
        with pytest.raises(KilledError):
            attend(digits, folders, books)
    keys = {name: (folder.path / "noise.key").read_bytes() for name, folder in folders.items()}
    ends = attend(digits, folders, books)
    assert ends["bank"].resumed_at == 0
    assert [trainings(book) for book in books.values()] == [1, 1, 1]
    after = {name: (folder.path / "noise.key").read_bytes() for name, folder in folders.items()}
    assert after == keys
    with pytest.raises(ConfigError, match="1 were entered before"):
        attend(digits, folders, books, is_fresh=True)


def test_noise_under_which_a_model_was_opened_is_not_used_for_another(digits, tmp_path):
    """Both computing parties lose their folders: the third owner must not add the same noise."""
    book, folders = Book(tmp_path / "clinic.json", 9.0), folders_in(tmp_path)
    attend(digits, folders, {"clinic": book})
    key = (folders["clinic"].path / "noise.key").read_bytes()
    for name in ("bank", "shop"):
        folders[name].remove()
    attend(digits, folders, {"clinic": book})
    assert (folders["clinic"].path / "noise.key").read_bytes() != key
    assert trainings(book) == 2
