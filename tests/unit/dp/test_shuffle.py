import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from tacit.dp import REPLACE_CLIENT, Shuffled, closed_form_epsilon, shuffled_delta, shuffled_epsilon
from tacit.dp.event import ADD_REMOVE_CLIENT
from tacit.errors import ConfigError


def brute_force_delta(epsilon, local_epsilon, clients, *, p):
    """Enumerate the clones bound's two distributions outcome by outcome."""
    e0 = math.exp(local_epsilon)
    total = 0.0
    for c in range(clients):
        x = np.arange(c + 2)
        before, here = binom.pmf(x - 1, c, 0.5), binom.pmf(x, c, 0.5)
        one = (e0 * before + here) / (e0 + 1)
        other = (before + e0 * here) / (e0 + 1)
        gap = np.maximum(one - math.exp(epsilon) * other, 0).sum()
        total += binom.pmf(c, clients - 1, p) * gap
    return total


@pytest.mark.parametrize("is_binary", [False, True])
@pytest.mark.parametrize(("local_epsilon", "clients"), [(0.5, 40), (2.0, 200), (5.0, 300)])
def test_delta_equals_the_sum_over_all_outcomes(local_epsilon, clients, is_binary):
    p = 2 / (math.exp(local_epsilon) + 1) if is_binary else math.exp(-local_epsilon)
    event = Shuffled(local_epsilon=local_epsilon, clients=clients, is_binary=is_binary)
    for epsilon in (0.0, 0.1, 0.4):
        exact = brute_force_delta(epsilon, local_epsilon, clients, p=p)
        assert shuffled_delta(event, np.array([epsilon]))[0] == pytest.approx(exact, rel=1e-9)


def test_grouping_clone_counts_only_ever_adds():
    event = Shuffled(local_epsilon=2.0, clients=20_000)
    epsilons = np.array([0.0, 0.05, 0.1])
    fine = shuffled_delta(event, epsilons, blocks=10**6)
    coarse = shuffled_delta(event, epsilons, blocks=50)
    assert (coarse >= fine * (1 - 1e-12)).all()
    assert coarse == pytest.approx(fine, rel=0.2)


def clone_delta(epsilon, local_epsilon, clones):
    """Return the divergence given each number of clones, by cumulative sums of coins."""
    e, e0 = math.exp(epsilon), math.exp(local_epsilon)
    cut = np.floor((clones + 1) * (e * e0 - 1) / ((e0 - 1) * (e + 1)))
    here, before = binom.sf(cut, clones, 0.5), binom.sf(cut - 1, clones, 0.5)
    return ((e0 - e) * before - (e * e0 - 1) * here) / (e0 + 1)


def grouped_epsilon(local_epsilon, clients, delta, *, step, worst):
    """Find ε as the paper evaluates its bound: groups of clone counts, by one member of each.

    Groups of ``step`` counts to either side of the expected number. By the worst member this is an
    upper bound on ε, by the best one a lower bound; with a step of 1 it is the bound itself.
    """
    others, p = clients - 1, math.exp(-local_epsilon)
    spread = 12 * math.sqrt(others * p)
    first = math.ceil(others * p) - step * math.ceil(spread / step)
    starts = np.arange(max(first, 0), min(first + 2 * spread + step, others), step)
    ends = np.minimum(starts + step - 1, others)
    weights = binom.cdf(ends, others, p) - binom.cdf(starts - 1, others, p)
    member = starts if worst else ends
    outside = (1 - weights.sum()) if worst else 0.0
    low, high = 0.0, local_epsilon
    while high - low > 1e-6:
        middle = (low + high) / 2
        found = float(weights @ np.maximum(clone_delta(middle, local_epsilon, member), 0))
        low, high = (low, middle) if found + outside <= delta else (middle, high)
    return high


@pytest.mark.parametrize(
    ("clients", "local_epsilon", "low", "exact", "high"),
    [(10**5, 4.0, 0.1675, 0.1698, 0.1728), (10**4, 2.0, 0.1525, 0.1550, 0.159)],
)
def test_ours_is_the_clones_bound_itself_between_the_published_upper_and_lower_evaluations(
    clients, local_epsilon, low, exact, high
):
    ours = shuffled_epsilon(Shuffled(local_epsilon=local_epsilon, clients=clients), delta=1e-6)
    assert ours == pytest.approx(exact, abs=1e-4)
    assert low <= ours <= high

    def grouped(step, worst):
        return grouped_epsilon(local_epsilon, clients, 1e-6, step=step, worst=worst)

    itself = grouped(1, True)
    assert itself - 1e-5 <= ours <= itself * 1.001
    assert grouped(100, False) < ours < grouped(100, True)
    assert grouped(100, True) == pytest.approx(high, abs=6e-4)


def test_a_hundred_million_clients_are_no_trouble():
    epsilon = shuffled_epsilon(Shuffled(local_epsilon=4.0, clients=10**8), delta=1e-6)
    assert epsilon == pytest.approx(0.00402, abs=1e-4)


@settings(max_examples=25)
@given(local_epsilon=st.floats(0.05, 8), clients=st.integers(1, 10**6), exponent=st.floats(-12, -2))
def test_shuffling_never_costs_privacy_and_beats_the_closed_form(local_epsilon, clients, exponent):
    delta = 10**exponent
    epsilon = shuffled_epsilon(Shuffled(local_epsilon=local_epsilon, clients=clients), delta=delta)
    assert 0 <= epsilon <= local_epsilon
    assert epsilon <= closed_form_epsilon(local_epsilon, clients, delta=delta)


def test_one_client_alone_is_not_hidden():
    event = Shuffled(local_epsilon=1.0, clients=1)
    assert shuffled_epsilon(event, delta=1e-9) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("local_epsilon", [0.0, -1.0, math.nan, math.inf, 1e4])
def test_a_local_epsilon_that_is_none_is_refused(local_epsilon):
    with pytest.raises(ConfigError, match="local_epsilon"):
        Shuffled(local_epsilon=local_epsilon, clients=10)


def test_shuffling_is_about_replacing_a_client():
    assert Shuffled(local_epsilon=1.0, clients=10).relation == REPLACE_CLIENT
    with pytest.raises(ConfigError, match="replace-one"):
        Shuffled(local_epsilon=1.0, clients=10, relation=ADD_REMOVE_CLIENT)
