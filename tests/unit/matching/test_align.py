"""Matching rows over links."""

import pytest
import torch

from tacit.errors import DataError, PartyError
from tacit.matching import align, align_rows, announce_ids, declare_matching
from tacit.matching.align import IDS as COUNT
from tacit.party import Meeting, merge_costs, run_threads, without_setup
from tacit.party.cost import CostTally

IDS = {
    "alice": ["p1", "p2", "p3", "p4", "p9"],
    "bob": ["p9", "p3", "p0", "p2"],
    "carol": ["p2", "x", "p9", "y", "p3", "z"],
}


def run(ids, patch=None):
    meeting = Meeting(parties=tuple(ids), job_digest=b"\0" * 32)

    def party(session):
        found = align_rows(session, tuple(ids), ids[session.me])
        return found, session.ledger.entries(), session.cost()

    return run_threads(dict.fromkeys(ids, patch or party), meeting)


@pytest.mark.parametrize("names", [("alice", "bob"), ("alice", "bob", "carol")])
def test_all_owners_find_the_same_rows_in_the_same_order(names):
    ends = run({name: IDS[name] for name in names})
    rows = {name: [IDS[name][at] for at in ends[name][0]] for name in names}
    assert len({tuple(one) for one in rows.values()}) == 1
    assert set(rows["alice"]) == set.intersection(*(set(IDS[name]) for name in names))


def test_the_ledger_says_what_was_learned():
    entries = run(IDS)["bob"][1]
    mine = {leak.what: leak for leak in entries if leak.to == "bob"}
    assert mine["which of its ids all owners have"].elements == 3
    assert mine["how many ids any two owners have in common"].kind == "protocol"
    assert mine["which of its ids each other owner has"].elements == 4 * 2


def test_the_order_is_the_same_when_rows_are_matched_again():
    ids = {name: [f"p{number}" for number in range(30)] for name in ("alice", "bob")}
    first, second = (run(ids)["alice"][0] for _ in range(2))
    assert first == second


def test_each_point_is_sent_once_per_round_and_owner():
    cost = run({name: IDS[name] for name in ("alice", "bob")})["alice"][2]
    sent = [one for one in cost.traffic if one.sender == "alice" and one.phase == "online"]
    assert sum(one.payload_bytes for one in sent) == 32 * (5 + 4)
    assert cost.online_rounds == 2


@pytest.mark.parametrize("names", [("alice", "bob"), ("carol", "alice", "bob")])
def test_the_matching_sends_what_was_declared(names, monkeypatch):
    monkeypatch.setattr(align, "_CHUNK", 2)  # so that points take several messages
    ids = {name: IDS[name] for name in names}
    ends = run(ids)
    tally = CostTally()
    tally.add(declare_matching({name: len(one) for name, one in ids.items()}), "online")
    metered = merge_costs({name: end[2] for name, end in ends.items()})
    assert tally.cost() == without_setup(metered)


def test_a_party_that_owns_nothing_learns_how_many_ids_there_are_and_no_more():
    meeting = Meeting(parties=("alice", "bob", "dealer"), job_digest=b"\0" * 32)

    def party(session):
        counts = announce_ids(session, ("alice", "bob"), IDS.get(session.me, ()))
        return counts, session.ledger.entries(), session.cost()

    ends = run_threads(dict.fromkeys(meeting.parties, party), meeting)
    assert all(end[0] == {"alice": 5, "bob": 4} for end in ends.values())
    told = COUNT.leaks_of_all(("alice", "bob"), meeting.parties)
    assert all(set(end[1]) == set(told) for end in ends.values())
    assert without_setup(ends["dealer"][2]).traffic == ()


def test_owners_without_a_common_id_are_told():
    with pytest.raises(DataError, match="no id in common"):
        run({"alice": ["a"], "bob": ["b"]})


def test_doubled_ids_are_refused_before_anything_is_sent():
    with pytest.raises(DataError, match="row 2 occurs"):
        run({"alice": ["a", "a"], "bob": ["a"]})


def test_an_owner_that_sends_no_points_is_named():
    def party(session):
        if session.me == "bob":
            session.send("alice", f"setup/{COUNT.tag}", torch.tensor([0]), phase="setup")
            session.recv("alice", f"setup/{COUNT.tag}", (1,))
            return None
        return align_rows(session, ("alice", "bob"), ["a"])

    with pytest.raises(PartyError, match="0 ids"):
        run({"alice": ["a"], "bob": ["b"]}, patch=party)


@pytest.mark.slow
def test_a_hundred_thousand_ids_per_side():
    ids = {
        "alice": [f"p{number}" for number in range(100_000)],
        "bob": [f"p{number}" for number in range(50_000, 150_000)],
    }
    assert len(run(ids)["alice"][0]) == 50_000
