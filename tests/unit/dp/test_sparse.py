"""The sparse vector technique. Seeds are fixed; a fresh seed fails with probability below 1e-6."""

import math

import pytest
import torch

from tacit.dp import REPLACE_RECORD, SparseVector, select_above
from tacit.errors import ConfigError, DataError
from tacit.ring import Prg


def settings(**changes):
    standard = {"epsilon": 1.0, "answers": 3, "sensitivity": 1.0, "relation": REPLACE_RECORD}
    return SparseVector(**{**standard, **changes})


def prg(label="sparse"):
    return Prg(b"a key for tests.").fork(label)


def test_it_stops_after_c_answers():
    above, event = select_above(
        torch.full((50,), 1e6), threshold=0.0, settings=settings(), prg=prg()
    )
    assert above.tolist() == [0, 1, 2]
    assert event.epsilon == 1.0


def test_clear_cases_are_answered_right():
    queries = torch.full((200,), -1e4)
    queries[[20, 70, 120]] = 1e4
    above, _ = select_above(queries, threshold=0.0, settings=settings(), prg=prg())
    assert above.tolist() == [20, 70, 120]


def test_the_shares_add_up_and_favour_the_queries():
    first, second = settings(answers=10).shares
    assert first + second == pytest.approx(1.0)
    assert second / first == pytest.approx(20 ** (2 / 3))


def test_what_is_seen_of_one_query_obeys_epsilon():
    """Neighbouring answers at the threshold: no likelier than e^ε, and noise is not more than told.

    One query, c = 1: P(above) at +1/2 and −1/2 of the threshold, 400 runs each.
    """
    one = settings(answers=1, epsilon=1.0)
    source = prg()

    def rate(value):
        runs = 400
        hits = sum(
            select_above(torch.tensor([value]), threshold=0.0, settings=one, prg=source)[0].numel()
            for _ in range(runs)
        )
        return hits / runs

    high, low = rate(0.5), rate(-0.5)
    assert high > low, "the query has no influence at all"
    assert math.log(high / low) < 1.0
    assert math.log((1 - low) / (1 - high)) < 1.0


def test_queries_and_thresholds_that_are_not_finite_are_refused():
    with pytest.raises(DataError, match="finite vector"):
        select_above(torch.tensor([math.nan]), threshold=0.0, settings=settings(), prg=prg())
    with pytest.raises(ConfigError, match="threshold"):
        select_above(torch.zeros(1), threshold=math.inf, settings=settings(), prg=prg())
    with pytest.raises(DataError, match="too large"):
        select_above(torch.tensor([1e30]), threshold=0.0, settings=settings(), prg=prg())


@pytest.mark.parametrize("change", [{"epsilon": 0.0}, {"answers": 0}, {"sensitivity": math.nan}])
def test_settings_without_meaning_are_refused(change):
    with pytest.raises(ConfigError):
        settings(**change)


@pytest.mark.parametrize(("epsilon", "answers"), [(1e-3, 1000), (1e-4, 100_000), (1e-3, 10**6)])
def test_noise_far_beyond_the_sensitivity_can_still_be_drawn(epsilon, answers):
    one = settings(epsilon=epsilon, answers=answers)
    above, event = select_above(torch.zeros(20), threshold=0.5, settings=one, prg=prg())
    assert above.numel() <= 20
    assert event.epsilon == epsilon


def test_noise_beyond_what_can_be_drawn_is_refused_when_it_is_planned():
    with pytest.raises(ConfigError, match="more noise than can be drawn exactly"):
        settings(epsilon=1e-6, answers=10**7)


def test_a_coarse_grid_gives_the_noise_of_a_fine_one():
    """The spread of what is seen of one query, with the least and the most cells; 300 runs each.

    With sensitivity 1 and scale s, P(above) at t·s for t = ±2 is the same on both grids.
    """
    rates = []
    for epsilon, answers in ((1.0, 1), (1e-5, 10_000)):
        one = settings(epsilon=epsilon, answers=answers)
        second = 2 * answers / one.shares[1]
        queries = torch.full((300,), 2 * second)
        source = prg(f"{answers}")
        hits = sum(
            int(select_above(query.view(1), threshold=0.0, settings=one, prg=source)[0].numel())
            for query in queries
        )
        rates.append(hits / 300)
    assert rates[0] == pytest.approx(rates[1], abs=0.12)
    assert min(rates) > 0.75
