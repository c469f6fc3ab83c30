"""Lower bounds on ε against brute force over the binomial, and their error rates."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from tacit.audit import Ranking
from tacit.audit.privacy import largest_refuted, one_run_epsilon, one_run_p_value, rates_epsilon
from tacit.errors import ConfigError


def test_without_delta_the_p_value_is_a_binomial_tail():
    found = one_run_p_value(canaries=50, guesses=30, right=25, epsilon=1.0, delta=0.0)
    assert found == pytest.approx(binom.sf(24, 30, math.e / (1 + math.e)))


def test_delta_costs_what_the_theorem_says():
    m, r, v, eps, delta = 40, 20, 17, 0.7, 1e-3
    chance = 1 / (1 + math.exp(-eps))
    alpha = max(
        sum(binom.pmf(v - j, r, chance) for j in range(1, i + 1)) / i for i in range(1, v + 1)
    )
    wanted = binom.sf(v - 1, r, chance) + 2 * m * delta * alpha
    found = one_run_p_value(canaries=m, guesses=r, right=v, epsilon=eps, delta=delta)
    assert found == pytest.approx(wanted)


@given(st.integers(1, 40), st.data())
def test_the_p_value_grows_with_epsilon_and_falls_with_right_guesses(guesses, data):
    right = data.draw(st.integers(0, guesses))
    values = [
        one_run_p_value(canaries=50, guesses=guesses, right=right, epsilon=e, delta=1e-6)
        for e in (0.0, 0.5, 1.0, 3.0)
    ]
    assert values == sorted(values)
    if right:
        fewer = one_run_p_value(
            canaries=50, guesses=guesses, right=right - 1, epsilon=1.0, delta=0.0
        )
        assert fewer >= one_run_p_value(
            canaries=50, guesses=guesses, right=right, epsilon=1.0, delta=0.0
        )


def test_perfect_guesses_prove_what_their_number_allows():
    ranking = Ranking(np.arange(200.0), np.arange(200) >= 100)
    bound = one_run_epsilon(ranking, delta=0.0, shares=(1.0,))
    # 0.05 = (e^ε / (1 + e^ε))^200
    chance = 0.05 ** (1 / 200)
    assert bound.epsilon == pytest.approx(math.log(chance / (1 - chance)), abs=1e-3)
    assert (bound.guesses, bound.right) == (200, 200)


def test_randomised_response_is_not_accused():
    draw = np.random.default_rng(0)
    eps, m = 1.0, 300
    worst = 0
    for _ in range(200):
        coins = draw.random(m) < 0.5
        is_true = draw.random(m) < 1 / (1 + math.exp(-eps))
        # Its answers are all an attacker has; ties are broken at random.
        scores = np.where(is_true, coins, ~coins) + draw.random(m) / 10
        bound = one_run_epsilon(Ranking(scores.astype(float), coins), delta=0.0)
        worst += bound.epsilon > eps
    # Confidence 0.95: Binomial(200, 0.05) exceeds 24 with a probability below 1e-4.
    assert worst <= 24


def test_rates_prove_epsilon_and_never_more_than_randomised_response_has():
    strong = rates_epsilon(
        false_positives=0, outside=500, true_positives=500, inside=500, delta=0.0
    )
    assert strong == pytest.approx(
        math.log(0.975**0 * (0.025 ** (1 / 500)) / (1 - 0.025 ** (1 / 500))), rel=1e-6
    )
    assert (
        rates_epsilon(false_positives=250, outside=500, true_positives=250, inside=500, delta=0.0)
        == 0.0
    )
    draw = np.random.default_rng(1)
    p = 1 / (1 + math.exp(-1.0))
    above = sum(
        rates_epsilon(
            false_positives=int(draw.binomial(400, 1 - p)),
            outside=400,
            true_positives=int(draw.binomial(400, p)),
            inside=400,
            delta=0.0,
        )
        > 1.0
        for _ in range(200)
    )
    assert above <= 24


def test_delta_makes_the_bound_from_rates_smaller():
    counts = {"false_positives": 10, "outside": 200, "true_positives": 120, "inside": 200}
    found = [rates_epsilon(**counts, delta=delta) for delta in (0.0, 0.1, 0.3, 0.6)]
    assert found == sorted(found, reverse=True)
    assert found[-1] == 0.0


def test_bisection_finds_the_edge():
    assert largest_refuted(lambda e: e / 10, 0.3) == pytest.approx(3.0, abs=1e-3)
    assert largest_refuted(lambda e: 1.0, 0.05) == 0.0


@pytest.mark.parametrize(("delta", "confidence"), [(-0.1, 0.9), (1.0, 0.9), (0.0, 1.0)])
def test_impossible_levels_are_refused(delta, confidence):
    ranking = Ranking(np.arange(4.0), np.arange(4) > 1)
    with pytest.raises(ConfigError):
        one_run_epsilon(ranking, delta=delta, confidence=confidence)


def test_more_right_guesses_than_guesses_are_refused():
    with pytest.raises(ConfigError, match="right"):
        one_run_p_value(canaries=5, guesses=3, right=4, epsilon=1.0, delta=0.0)
