from dataclasses import replace

import pytest

from tacit.report.tally import (
    compare_costs,
    compare_links,
    group_curves,
    group_leaks,
    judge_costs,
    list_absent,
    list_parties,
    sum_received,
    sum_sent,
)
from tacit.result import NOTHING_SENT, Cost


def _row(result, phase, quantity):
    return next(r for r in compare_costs(result) if (r.phase, r.quantity) == (phase, quantity))


def _shift(cost, index, payload):
    traffic = list(cost.traffic)
    old = traffic[index]
    traffic[index] = replace(old, payload_bytes=old.payload_bytes + payload)
    return replace(cost, traffic=tuple(traffic))


@pytest.fixture
def lone(example):
    """The example as the hospital alone saw it."""
    seen = tuple(t for t in example.metered.traffic if "hospital" in (t.sender, t.receiver))
    return replace(
        example, parties=example.parties[:1], metered=replace(example.metered, traffic=seen)
    )


def test_a_meter_that_equals_the_plan_agrees(example):
    assert judge_costs(example) is True
    row = _row(example, "online", "payload")
    assert (row.forecast, row.metered, row.agrees) == (68_224, 68_224, True)


def test_setup_that_was_not_planned_is_shown_and_not_judged(example):
    row = _row(example, "setup", "payload")
    assert (row.forecast, row.metered, row.agrees) == (None, 984, None)


def test_one_byte_too_many_is_a_difference(example):
    assert judge_costs(replace(example, metered=_shift(example.metered, -1, 1))) is False


def test_two_errors_do_not_cancel(example):
    cost = _shift(_shift(example.metered, -1, 8), -2, -8)
    result = replace(example, metered=cost)
    row = _row(result, "online", "payload")
    assert (row.forecast == row.metered, row.agrees) == (True, False)
    assert judge_costs(result) is False


def test_a_round_too_many_is_a_difference(example):
    result = replace(example, metered=replace(example.metered, online_rounds=10))
    assert _row(result, "online", "rounds").agrees is False


def test_planned_traffic_that_never_came_counts_as_zero(example):
    result = replace(example, metered=Cost(traffic=(), offline_rounds=1, online_rounds=9))
    row = _row(result, "online", "payload")
    assert (row.metered, row.agrees) == (0, False)


def test_a_lone_party_judges_only_its_own_links(lone):
    assert list_absent(lone) == ("dealer", "lab")
    row = _row(lone, "offline", "payload")
    assert (row.forecast, row.metered, row.agrees) == (32, 32, True)
    unseen = [link for link in compare_links(lone) if link.metered is None]
    assert [(link.sender, link.receiver) for link in unseen] == [("dealer", "lab")]
    assert judge_costs(lone) is None


def test_a_lone_party_may_see_a_shorter_chain_but_not_a_longer_one(lone):
    shorter = replace(lone, metered=replace(lone.metered, online_rounds=8))
    longer = replace(lone, metered=replace(lone.metered, online_rounds=10))
    assert _row(shorter, "online", "rounds").agrees is None
    assert _row(longer, "online", "rounds").agrees is False


def test_without_a_report_nothing_is_measured(example):
    result = replace(
        example, parties=(), metered=Cost(traffic=(), offline_rounds=0, online_rounds=0)
    )
    assert {row.metered for row in compare_costs(result)} == {None}
    assert judge_costs(result) is None


def test_traffic_is_added_up_per_party(example):
    assert sum_sent(example, "hospital") == 49_248 + 2 * 164
    assert sum_received(example, "lab") == 49_248 + 96_264 + 2 * 164


def test_every_party_has_a_place_in_the_ledger(example):
    assert list_parties(example) == ("hospital", "lab", "dealer")
    ledger = group_leaks(replace(example, leakage=example.leakage[:1]))
    assert {name: len(leaks) for name, leaks in ledger.items()} == {
        "hospital": 1,
        "lab": 0,
        "dealer": 0,
    }


def test_curves_of_one_title_share_a_chart(example):
    charts = group_curves(example.curves)
    assert [[c.name for c in chart] for chart in charts] == [["training", "held out"], ["private"]]


def test_a_result_without_a_forecast_agrees_with_none(example):
    silent = replace(example, forecast=None, metered=NOTHING_SENT)
    for row in compare_costs(silent):
        assert (row.forecast, row.agrees) == (None, None), row
