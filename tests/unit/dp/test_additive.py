"""Noise is what its event says. Seeds are fixed; a fresh seed fails with probability 1e-6."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tacit.dp import (
    ADD_REMOVE_CLIENT,
    GAUSSIANS,
    DiscreteGaussian,
    add_binomial,
    add_discrete_gaussian,
    add_exact_gaussian,
    add_gaussian,
    add_laplace,
    binomial_epsilon,
    epsilon,
    normal,
)
from tacit.errors import ConfigError, DataError, RangeError
from tacit.ring import Prg

ALARM = 1e-6
COUNT = 60_000
CLIENT = {"relation": ADD_REMOVE_CLIENT}
UNIT = {"sigma": 1.0, "l2_sensitivity": 1.0, **CLIENT}
EVEN = {"sensitivities": (1.0, 1.0, 1.0), **CLIENT}


def prg(label="noise"):
    return Prg(b"a key for tests.").fork(label)


def looks_like(sample, distribution):
    return stats.kstest(np.asarray(sample), distribution.cdf).pvalue > ALARM


def counts_look_like(sample, probabilities):
    """Chi-square over the integers with an expectation of at least 10; the rest is one cell."""
    values = {int(v): int(n) for v, n in zip(*np.unique(sample, return_counts=True), strict=True)}
    expected = {v: p * len(sample) for v, p in probabilities.items() if p * len(sample) >= 10}
    observed = [values.get(v, 0) for v in expected]
    rest = len(sample) - sum(expected.values())
    table = ([*observed, len(sample) - sum(observed)], [*expected.values(), rest])
    if rest < 10:
        total = sum(expected.values())
        table = (observed, [e * sum(observed) / total for e in expected.values()])
    return stats.chisquare(*table).pvalue > ALARM


def test_normal_numbers_are_normal():
    drawn = normal(prg(), COUNT + 1)
    assert drawn.shape == (COUNT + 1,)
    assert looks_like(drawn, stats.norm())


@pytest.mark.parametrize("kind", GAUSSIANS)
@pytest.mark.parametrize("sigma", [1e-6, 0.7, 3e4, 2.0**-20 * (1 - 1e-15)])
def test_gaussian_noise_has_the_deviation_of_its_event(sigma, kind):
    noisy, _ = GAUSSIANS[kind](
        torch.zeros(COUNT), sigma=sigma, l2_sensitivity=sigma / 2, **CLIENT, prg=prg()
    )
    assert looks_like(noisy, stats.norm(scale=sigma))


def test_exact_gaussian_noise_is_accounted_for_as_what_was_drawn():
    total = torch.linspace(-1, 1, 10_000, dtype=torch.float64)
    noisy, event = add_exact_gaussian(total, **UNIT, prg=prg())
    cells = noisy * 2.0**23
    assert torch.equal(cells, torch.round(cells))
    assert event.sigma2 == 2**46
    assert event.l2_sensitivity == pytest.approx(2.0**23 + 100)
    ours = epsilon([event], delta=1e-5, accountant="renyi").epsilon
    smooth, tight = add_gaussian(total, **UNIT, prg=prg())
    assert smooth.shape == noisy.shape
    assert epsilon([tight], delta=1e-5, accountant="fourier").epsilon < ours < 5.0


def test_halved_noise_is_caught():
    noisy, event = add_gaussian(torch.zeros(COUNT), **UNIT, prg=prg())
    assert not looks_like(noisy / 2, stats.norm(scale=event.sigma))
    assert not looks_like(noisy * 1.05, stats.norm(scale=event.sigma))


def test_gaussian_values_lie_on_a_grid_that_the_sensitivity_pays_for():
    noisy, event = add_gaussian(
        torch.linspace(-1, 1, 10_000, dtype=torch.float64), **UNIT, prg=prg()
    )
    cells = noisy * 2.0**24
    assert torch.equal(cells, torch.round(cells))
    assert event.l2_sensitivity == pytest.approx(1 + 100 * 2.0**-24, rel=1e-12)


def test_laplace_noise_has_the_scale_of_its_event():
    noisy, event = add_laplace(
        torch.full((50_000,), 3.0), scale=0.3, l1_sensitivity=1.0, **CLIENT, prg=prg()
    )
    assert looks_like(noisy - 3, stats.laplace(scale=0.3))
    assert event.epsilon == pytest.approx(1 / 0.3, rel=1e-3)
    assert event.epsilon >= 1 / 0.3 * (1 - 2.0**-29)


@pytest.mark.parametrize("sigma2", [Fraction(1, 3), Fraction(20)])
def test_discrete_gaussian_noise_has_the_probabilities_of_its_event(sigma2):
    noisy, event = add_discrete_gaussian(
        torch.full((COUNT,), 5), sigma2=sigma2, l2_sensitivity=1.0, **CLIENT, prg=prg()
    )
    weights = {v: math.exp(-(v**2) / (2 * float(sigma2))) for v in range(-60, 61)}
    total = sum(weights.values())
    assert counts_look_like((noisy - 5).numpy(), {v: w / total for v, w in weights.items()})
    assert (event.dimension, event.parts) == (COUNT, 1)


def test_parts_of_distributed_noise_add_up_to_the_variance_of_the_event():
    parts = [
        add_discrete_gaussian(
            torch.zeros(6000, dtype=torch.int64),
            sigma2=Fraction(5),
            l2_sensitivity=1.0,
            **CLIENT,
            prg=prg(f"client {k}"),
        )[0]
        for k in range(8)
    ]
    event = DiscreteGaussian(sigma2=Fraction(5), l2_sensitivity=1.0, dimension=1, **CLIENT, parts=8)
    variance = float(torch.stack(parts).sum(0).double().var())
    assert variance == pytest.approx(40, rel=0.09)  # five standard errors
    assert event.rho == pytest.approx(1 / 80)


@pytest.mark.parametrize("trials", [2, 64, 130])
def test_binomial_noise_counts_fair_coins(trials):
    noisy, event = add_binomial(
        torch.zeros(100_000, dtype=torch.int64), trials=trials, **EVEN, prg=prg()
    )
    heads = stats.binom(trials, 0.5)
    probabilities = {v - trials // 2: heads.pmf(v) for v in range(trials + 1)}
    assert counts_look_like(noisy.numpy(), probabilities)
    assert event.trials == trials


def test_the_binomial_theorem_covers_the_exact_curve_and_wants_enough_coins():
    def event(trials):
        total = torch.zeros(1, dtype=torch.int64)
        return add_binomial(
            total, trials=trials, sensitivities=(4.0, 4.0, 4.0), **CLIENT, prg=prg()
        )[1]

    exact = epsilon([event(10_000)], delta=1e-5, accountant="basic").epsilon
    assert exact < binomial_epsilon(event(10_000), 1e-5) < 3 * exact
    assert binomial_epsilon(event(100), 1e-5) == math.inf


@given(
    seed=st.integers(0, 2**32),
    sigma=st.floats(1e-3, 1e3),
    x=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8),
    moved=st.floats(-1, 1),
)
def test_neighbours_stay_as_close_as_the_event_says(seed, sigma, x, moved):
    """With the same noise, outputs differ by no more than the event's sensitivity."""
    key = seed.to_bytes(16, "big")
    value = torch.tensor(x, dtype=torch.float64)
    other = value.clone()
    other[0] += moved
    (a, event), (b, _) = (
        add_gaussian(v, sigma=sigma, l2_sensitivity=1.0, **CLIENT, prg=Prg(key))
        for v in (value, other)
    )
    assert float((a - b).norm()) <= event.l2_sensitivity * (1 + 1e-12)


@given(
    seed=st.integers(0, 2**32),
    scale=st.floats(1e-3, 1e3),
    x=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8),
    moved=st.floats(-1, 1),
)
def test_neighbours_under_laplace_noise_stay_as_close_as_the_event_says(seed, scale, x, moved):
    key = seed.to_bytes(16, "big")
    value = torch.tensor(x, dtype=torch.float64)
    other = value.clone()
    other[-1] += moved
    (a, event), (b, _) = (
        add_laplace(v, scale=scale, l1_sensitivity=1.0, **CLIENT, prg=Prg(key))
        for v in (value, other)
    )
    cell = 2.0 ** math.floor(math.log2(scale / 2**30))
    assert float((a - b).abs().sum()) / cell <= event.l1_sensitivity


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30])
def test_values_that_no_noise_hides_are_refused(bad):
    for add, name in ((add_gaussian, "l2_sensitivity"), (add_laplace, "l1_sensitivity")):
        size = {"sigma": 1.0} if add is add_gaussian else {"scale": 1.0}
        with pytest.raises(DataError, match="NaN, infinite or more"):
            add(torch.tensor([0.0, bad]), **size, **{name: 1.0}, **CLIENT, prg=prg())


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf])
def test_no_noise_is_refused(sigma):
    with pytest.raises(ConfigError, match="sigma"):
        add_gaussian(torch.zeros(1), sigma=sigma, l2_sensitivity=1.0, **CLIENT, prg=prg())


def test_discrete_noise_wants_integers_and_even_coins():
    with pytest.raises(DataError, match="int64"):
        add_discrete_gaussian(
            torch.zeros(1), sigma2=Fraction(1), l2_sensitivity=1.0, **CLIENT, prg=prg()
        )
    with pytest.raises(RangeError, match="even"):
        add_binomial(torch.zeros(1, dtype=torch.int64), trials=3, **EVEN, prg=prg())
