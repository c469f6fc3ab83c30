from fractions import Fraction

import numpy as np
import pytest
from scipy.special import comb, logsumexp

from tacit.dp import ADD_REMOVE_RECORD, DiscreteGaussian, Gaussian, Poisson, Pure, Response
from tacit.dp.renyi import epsilon_of_renyi, renyi

ORDERS = np.array([2.0, 3.0, 8.0, 32.0])
WHOLE = Gaussian(sigma=1.5, l2_sensitivity=1.0, relation=ADD_REMOVE_RECORD)


def test_the_sampled_gaussian_equals_its_binomial_sum():
    rate = 0.03
    for order in ORDERS.astype(int):
        k = np.arange(order + 1)
        terms = (1 - rate) ** (order - k) * rate**k * comb(order, k)
        log_moment = logsumexp(k * (k - 1) / (2 * 1.5**2), b=terms)
        step = Poisson(event=WHOLE, rate=rate, is_hidden=True)
        ours = renyi(step, np.array([float(order)]))[0]
        assert ours == pytest.approx(log_moment / (order - 1), rel=1e-8)


def test_the_general_bound_for_sampling_covers_the_exact_one():
    # Discrete and continuous noise have the same divergences; only the formula differs.
    discrete = DiscreteGaussian(
        sigma2=Fraction(9, 4), l2_sensitivity=1.0, dimension=1, relation=ADD_REMOVE_RECORD
    )
    exact = renyi(Poisson(event=WHOLE, rate=0.05, is_hidden=True), ORDERS)
    bound = renyi(Poisson(event=discrete, rate=0.05, is_hidden=True), ORDERS)
    assert (bound >= exact * (1 - 1e-9)).all()
    assert bound[0] <= 3 * exact[0]


def test_a_fine_sum_of_discrete_gaussians_is_as_good_as_one_and_a_coarse_one_is_not():
    def bound(sigma2, parts):
        event = DiscreteGaussian(
            sigma2=Fraction(sigma2),
            l2_sensitivity=3.0,
            dimension=1000,
            relation=ADD_REMOVE_RECORD,
            parts=parts,
        )
        return renyi(event, ORDERS)

    assert bound(9, 100) == pytest.approx(bound(900, 1), rel=1e-12)
    assert (bound(Fraction(1, 2), 100) > 2 * bound(50, 1)).all()


def test_randomised_response_equals_its_definition():
    q = 1 / (np.exp(0.7) + 2)
    p = np.array([1 - 2 * q, q, q])
    expected = [np.log((p**a * np.roll(p, 1) ** (1 - a)).sum()) / (a - 1) for a in ORDERS]
    assert renyi(Response(epsilon=0.7, levels=3), ORDERS) == pytest.approx(expected, rel=1e-9)


def test_pure_privacy_is_bounded_by_its_epsilon():
    event = Pure(epsilon=0.7, relation=ADD_REMOVE_RECORD, mechanism="any")
    assert (renyi(event, ORDERS) <= 0.7).all()
    assert epsilon_of_renyi(renyi(event), 1e-9) >= 0
