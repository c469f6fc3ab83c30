import math

import pytest

from tacit.dp import (
    ACCOUNTANTS,
    ADD_REMOVE_RECORD,
    BudgetTarget,
    Gaussian,
    Poisson,
    Repeated,
    Shuffled,
    largest_budget,
    least_noise,
)
from tacit.errors import ConfigError


def dp_sgd(multiplier):
    noise = Gaussian(sigma=multiplier, l2_sensitivity=1.0, relation=ADD_REMOVE_RECORD)
    return [Repeated(event=Poisson(event=noise, rate=0.05, is_hidden=True), count=50)]


def shuffle(local_epsilon):
    return [Repeated(event=Shuffled(local_epsilon=local_epsilon, clients=3000), count=5)]


@pytest.mark.parametrize("accountant", ["fourier", "rdp"])
def test_the_least_noise_meets_the_target_and_a_little_less_does_not(accountant):
    pytest.importorskip("dp_accounting")
    target = BudgetTarget(epsilon=1.5, delta=1e-5, accountant=accountant)
    noise = least_noise(dp_sgd, target)
    spent = ACCOUNTANTS[accountant].epsilon
    assert spent(dp_sgd(noise), delta=1e-5) <= 1.5 < spent(dp_sgd(noise * 0.999), delta=1e-5)


def test_the_largest_budget_meets_the_target_and_a_little_more_does_not():
    target = BudgetTarget(epsilon=0.8, delta=1e-6, accountant="basic")
    budget = largest_budget(shuffle, target)
    spent = ACCOUNTANTS["basic"].epsilon
    assert spent(shuffle(budget), delta=1e-6) <= 0.8 < spent(shuffle(budget * 1.001), delta=1e-6)


def test_a_target_out_of_reach_is_refused_with_what_is_reachable():
    target = BudgetTarget(epsilon=0.01, delta=1e-5, accountant="fourier")
    with pytest.raises(ConfigError, match=r"best this plan reaches is ε = 0\.\d+"):
        least_noise(dp_sgd, target, high=3.0)


def test_a_target_that_everything_meets_returns_the_end_of_the_range():
    target = BudgetTarget(epsilon=50.0, delta=1e-5, accountant="fourier")
    assert least_noise(dp_sgd, target, low=2.0, high=4.0) == pytest.approx(2.0)


def test_a_plan_that_goes_the_wrong_way_is_noticed():
    target = BudgetTarget(epsilon=1.5, delta=1e-5, accountant="fourier")
    with pytest.raises(ConfigError, match="not monotone"):
        least_noise(lambda noise: dp_sgd(5 + 100 / noise), target)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_a_target_without_meaning_is_refused(epsilon):
    with pytest.raises(ConfigError, match="epsilon must be"):
        BudgetTarget(epsilon=epsilon, delta=1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan])
def test_a_delta_without_meaning_is_refused(delta):
    with pytest.raises(ConfigError, match="delta must be"):
        BudgetTarget(epsilon=1.0, delta=delta)
