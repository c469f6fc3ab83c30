"""Curves against sums over the distributions themselves."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tacit.dp import (
    ADD_REMOVE_RECORD,
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    Poisson,
    Response,
)
from tacit.dp.curve import epsilon_of_curve, privacy_curve

EPSILONS = np.array([0.0, 0.1, 0.5, 1.0, 2.5])


def divergence(p, q):
    return np.array([np.maximum(p - np.exp(e) * q, 0).sum() for e in EPSILONS])


def densities(distribution, shift):
    x = np.linspace(-60, 61, 2_000_001)
    step = x[1] - x[0]
    return distribution.pdf(x) * step, distribution.pdf(x - shift) * step


def test_the_gaussian_curve_is_the_integral_of_the_excess():
    event = Gaussian(sigma=3.0, l2_sensitivity=2.0, relation=ADD_REMOVE_RECORD)
    expected = divergence(*densities(stats.norm(scale=3.0), 2.0))
    assert privacy_curve(event).forward(EPSILONS) == pytest.approx(expected, abs=1e-6)


def test_the_laplace_curve_is_the_integral_of_the_excess():
    event = Laplace(scale=1.5, l1_sensitivity=2.0, dimension=1, relation=ADD_REMOVE_RECORD)
    expected = divergence(*densities(stats.laplace(scale=1.5), 2.0))
    assert privacy_curve(event).forward(EPSILONS) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("shift", [1, 2, 5])
def test_discrete_curves_are_sums_over_the_integers(shift):
    x = np.arange(-400, 401)
    laplace = np.exp(-np.abs(x) / 2.5)
    event = DiscreteLaplace(
        scale=Fraction(5, 2), l1_sensitivity=shift, dimension=1, relation=ADD_REMOVE_RECORD
    )
    expected = divergence(laplace / laplace.sum(), np.roll(laplace, shift) / laplace.sum())
    assert privacy_curve(event).forward(EPSILONS) == pytest.approx(expected, abs=1e-12)
    gauss = np.exp(-(x**2) / 20)
    event = DiscreteGaussian(
        sigma2=Fraction(10), l2_sensitivity=shift, dimension=1, relation=ADD_REMOVE_RECORD
    )
    expected = divergence(gauss / gauss.sum(), np.roll(gauss, shift) / gauss.sum())
    assert privacy_curve(event).forward(EPSILONS) == pytest.approx(expected, abs=1e-12)


def test_the_binomial_curve_is_the_sum_over_the_coins():
    event = Binomial(
        trials=100,
        dimension=1,
        l1_sensitivity=3.0,
        l2_sensitivity=3.0,
        linf_sensitivity=3.0,
        relation=ADD_REMOVE_RECORD,
    )
    x = np.arange(104)
    expected = divergence(stats.binom.pmf(x, 100, 0.5), stats.binom.pmf(x - 3, 100, 0.5))
    assert privacy_curve(event).forward(EPSILONS) == pytest.approx(expected, abs=1e-12)


def test_the_response_curve_is_the_sum_over_the_reports():
    event = Response(epsilon=1.2, levels=4)
    q = 1 / (np.exp(1.2) + 3)
    p = np.array([1 - 3 * q, q, q, q])
    expected = divergence(p, np.roll(p, 1))
    assert privacy_curve(event).forward(EPSILONS) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
def test_sampling_mixes_the_pair_in_both_directions(rate):
    whole = Gaussian(sigma=1.0, l2_sensitivity=1.0, relation=ADD_REMOVE_RECORD)
    curve = privacy_curve(Poisson(event=whole, rate=rate, is_hidden=True))
    q, p = densities(stats.norm(), 1.0)
    mixed = (1 - rate) * q + rate * p
    assert curve.forward(EPSILONS) == pytest.approx(divergence(mixed, q), abs=1e-5)
    assert curve.backward(EPSILONS) == pytest.approx(divergence(q, mixed), abs=1e-5)


def test_the_inverse_of_a_curve_lies_on_it():
    curve = privacy_curve(Gaussian(sigma=1.0, l2_sensitivity=1.0, relation=ADD_REMOVE_RECORD))
    epsilon = epsilon_of_curve(curve, 1e-5)
    assert epsilon == pytest.approx(4.3771781, abs=1e-6)
    assert curve.delta(epsilon) == pytest.approx(1e-5, rel=1e-5)


def test_a_vector_of_unknown_spread_takes_the_worst_pair():
    vector = Laplace(scale=1.0, l1_sensitivity=1.0, dimension=7, relation=ADD_REMOVE_RECORD)
    number = Laplace(scale=1.0, l1_sensitivity=1.0, dimension=1, relation=ADD_REMOVE_RECORD)
    inside = EPSILONS[EPSILONS < 1]
    worst, known = (privacy_curve(event).forward(inside) for event in (vector, number))
    assert (worst > known).all()
