import errno
import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from support.mpc import ALICE, BOB, CAROL, MEETING, PARTIES, PATIENCE
from tacit.errors import (
    DataError,
    DisagreementError,
    FrameError,
    LinkClosed,
    LinkTimeout,
    PartyError,
    TacitError,
)
from tacit.party import (
    Fact,
    LeakLedger,
    Meeting,
    Progress,
    Session,
    blame,
    merge,
    run_threads,
    session_over,
)
from tacit.party import session as session_module
from tacit.party.local import _link_all
from tacit.result import Leak

SIZE = Fact(tag="size", count=2, what="rows and columns of {owner}")


def run(program, meeting=MEETING):
    return run_threads(dict.fromkeys(meeting.parties, program), meeting)


def test_each_pair_shares_a_generator_of_its_own():
    def first_words(session):
        return {peer: session.shared(peer).words((4,)).tolist() for peer in session.peers}

    words = run(first_words)
    streams = set()
    for me in PARTIES:
        for peer in PARTIES:
            if me != peer:
                assert words[me][peer] == words[peer][me]
                streams.add(tuple(words[me][peer]))
    assert len(streams) == 3


class Wire:
    """What the exchange of a pair's bytes needs of a session; the peer sends what it is told to."""

    def __init__(self, me, peer, theirs):
        self.me, self.peers, self._theirs, self.sent = me, (peer,), theirs, b""

    def send(self, to, tag, values, *, phase):
        self.sent = bytes(values.tolist())

    def recv(self, sender, tag, shape, *, dtype):
        theirs = self.sent if self._theirs is None else self._theirs
        return torch.frombuffer(bytearray(theirs), dtype=dtype).view(shape)


def pair_word(monkeypatch, me="ann", peer="bob", mine=b"m", theirs=b"t", job=b"j"):
    """Return the first word of a pair's generator."""
    monkeypatch.setattr(session_module.os, "urandom", lambda size: mine * size)
    wire = Wire(me, peer, theirs * 32)
    found = session_module._pair_generators(wire, job * 32)
    return int(found[peer].words((1,)))


@pytest.mark.parametrize("names", [("ann", "bob"), ("bob", "ann")])
@pytest.mark.parametrize("changed", [{"mine": b"M"}, {"theirs": b"T"}, {"job": b"J"}])
def test_a_pair_s_generator_hangs_on_the_bytes_of_either_side_and_on_the_job(
    monkeypatch, names, changed
):
    """So it is secret as long as one side's bytes are, and no job repeats another's masks."""
    me, peer = names
    usual = pair_word(monkeypatch, me, peer)
    assert pair_word(monkeypatch, me, peer, **changed) != usual
    assert pair_word(monkeypatch, peer, me, mine=b"t", theirs=b"m") == usual


def test_a_pair_s_generator_hangs_on_who_the_two_are(monkeypatch):
    assert pair_word(monkeypatch, peer="bob") != pair_word(monkeypatch, peer="cat")


def test_a_peer_that_sends_our_own_bytes_back_is_refused(monkeypatch):
    """The key would be of our bytes alone, and known to whoever knows them."""
    with pytest.raises(DisagreementError, match="sent our own random bytes back"):
        session_module._pair_generators(Wire("ann", "bob", None), b"j" * 32)


def test_generators_are_fresh_in_every_session():
    def word(session):
        return session.shared(session.peers[0]).words((2,)).tolist()

    assert run(word) != run(word)


def test_a_message_of_another_shape_than_expected_is_refused_and_its_sender_named():
    def program(session):
        if session.me == ALICE:
            session.send(BOB, "run/0", torch.zeros(3, dtype=torch.int64))
        elif session.me == BOB:
            session.recv(ALICE, "run/0", (4,))

    with pytest.raises(FrameError, match=r"i64\(4,\), got i64\(3,\)") as caught:
        run(program)
    assert caught.value.party == ALICE


def test_parties_with_different_plans_stop_and_name_each_other():
    def program(session):
        session.agree("plan", hashlib.sha256(session.me.encode()).digest())

    with pytest.raises(DisagreementError, match="another plan"):
        run(program)


def test_public_numbers_reach_everyone():
    def program(session):
        if session.me == ALICE:
            session.publish(SIZE, (569, 30))
            return (569, 30)
        return session.learn(ALICE, SIZE)

    assert set(run(program).values()) == {(569, 30)}


def test_public_numbers_are_in_everyones_ledger_as_a_plan_foresees_them():
    def program(session):
        if session.me == ALICE:
            session.publish(SIZE, (569, 30))
            session.publish(SIZE, (1, 1), to=(BOB,))
        else:
            session.learn(ALICE, SIZE)
        if session.me == BOB:
            session.learn(ALICE, SIZE, to=(BOB,))
        return session.ledger.entries()

    for me, written in run(program).items():
        told = [*SIZE.leaks(ALICE, PARTIES), *(() if me == CAROL else SIZE.leaks(ALICE, (BOB,)))]
        assert written == merge(tuple(told))


def test_public_coins_tell_nothing_and_who_tells_learns_nothing():
    assert SIZE.leaks(ALICE, (ALICE,)) == ()
    assert Fact(tag="coins", count=2, what="").leaks_of_all(PARTIES, PARTIES) == ()
    assert [one.what for one in SIZE.leaks(BOB, (ALICE,))] == ["rows and columns of bob"]


def test_the_error_of_the_party_that_failed_first_is_raised_and_the_others_name_it():
    seen = {}

    def program(session):
        if session.me == BOB:
            session.agree("start", b"s" * 32)  # so that nobody is still opening its session
            raise ZeroDivisionError("secret value 42")
        try:
            session.agree("start", b"s" * 32)
            session.recv(BOB, "run/0", (1,))
        except PartyError as error:
            seen[session.me] = (error.party, error.reason)
            raise

    with pytest.raises(ZeroDivisionError):
        run(program)
    assert {party for party, _ in seen.values()} == {BOB}
    assert all("42" not in reason for _, reason in seen.values()), "reasons carry no secret"


def test_two_parties_are_enough_for_a_session():
    meeting = Meeting(parties=(ALICE, BOB), job_digest=b"x" * 32, patience=PATIENCE)
    assert run(lambda session: session.peers, meeting) == {ALICE: (BOB,), BOB: (ALICE,)}


@pytest.mark.parametrize("when", ["in a run", "before the session is open"])
def test_a_party_that_runs_is_not_told_that_it_was_silent(when, monkeypatch):
    """Of a link that swallows what is sent, the far end says that this one was silent."""
    reason = "was silent for 8.0 s while 'run/0' was wanted"
    agree = Session.agree

    def agreed(self, subject, digest):
        if self.me == ALICE and subject == "job":
            raise LinkTimeout(BOB, reason)
        agree(self, subject, digest)

    def program(session):
        if session.me == ALICE:
            raise LinkTimeout(BOB, reason)
        session.recv(ALICE, "run/0", (4,))

    if when != "in a run":
        monkeypatch.setattr(Session, "agree", agreed)
    meters, links = _link_all(MEETING, lambda me, link: link)

    def take_part(me):
        with session_over(
            me, MEETING, links=links[me], meter=meters[me], progress=Progress()
        ) as session:
            program(session)

    with ThreadPoolExecutor(len(PARTIES)) as pool:
        ends = {me: pool.submit(take_part, me) for me in PARTIES}
    found = {me: one.exception() for me, one in ends.items()}
    assert str(found[BOB]) in [  # carol hears of it from alice, and may be the first to pass it on
        f"party {who!r} failed: says that {BOB!r} failed ({reason}), while {BOB!r} runs; if it "
        "was not heard, see whether it stood still, or whether the link between the two carries "
        "everything, both ways"
        for who in (ALICE, CAROL)
    ]
    assert (found[ALICE].party, found[ALICE].reason) == (BOB, reason)
    assert found[CAROL].party in (ALICE, BOB)  # whoever tells it first


def caused(error, number):
    error.__cause__ = OSError(number, "")
    return error


@pytest.mark.parametrize(
    ("error", "party", "words"),
    [
        (LinkClosed("lab", "went away"), "lab", "went away"),
        (DataError("row 17 of patients.csv has no age"), "hospital", "its own input"),
        (OSError(errno.ENOSPC, "full", "patients.csv"), "hospital", "its disk is full"),
        (OSError(errno.EFBIG, "full", "patients.csv"), "hospital", "its files may not grow"),
        (OSError(errno.EDQUOT, "full", "patients.csv"), "hospital", "its disk is full"),
        (caused(DataError("cannot write patients.csv"), errno.ENOSPC), "hospital", "disk is full"),
        (caused(DataError("cannot read patients.csv"), errno.EACCES), "hospital", "its own input"),
        (OSError(errno.EIO, "patients.csv"), "hospital", "internal error (OSError)"),
        (KeyboardInterrupt(), "hospital", "stopped by its user"),
        (TacitError("step 3 used twice"), "hospital", "internal error (TacitError)"),
        (ZeroDivisionError("1/0"), "hospital", "internal error (ZeroDivisionError)"),
    ],
)
def test_the_others_are_told_who_failed_but_nothing_about_a_partys_data(error, party, words):
    named, reason = blame("hospital", error)
    assert named == party
    assert words in reason
    assert "17" not in reason
    assert "patients" not in reason


def record(ledger, **changes):
    entry = {"to": "bob", "what": "sum", "why": "result", "kind": "output", "elements": 3}
    ledger.record(Leak(**{**entry, **changes}))


def test_repeated_looks_add_up_and_different_ones_stay_apart():
    ledger = LeakLedger()
    record(ledger)
    record(ledger, elements=4)
    record(ledger, to="alice")
    assert [(leak.to, leak.elements) for leak in ledger.entries()] == [("bob", 7), ("alice", 3)]


def test_entries_of_many_threads_are_all_kept():
    ledger = LeakLedger()
    threads = [
        threading.Thread(target=lambda: [record(ledger, elements=1) for _ in range(500)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.entries()[0].elements == 2000
