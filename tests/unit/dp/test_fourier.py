import math

import numpy as np
import pytest

from tacit.dp import ADD_REMOVE_RECORD, Approximate, Gaussian, Pure
from tacit.dp.curve import epsilon_of_curve, privacy_curve
from tacit.dp.fourier import discretise, fourier_epsilon

GAUSSIAN = Gaussian(sigma=1.0, l2_sensitivity=1.0, relation=ADD_REMOVE_RECORD)


def delta_of(losses, epsilon):
    gaps = np.maximum(-np.expm1(epsilon - losses.interval * losses.grid), 0)
    return float(losses.masses @ gaps) + losses.infinite


def test_discretised_losses_are_right_on_the_grid_and_above_between():
    curve = privacy_curve(GAUSSIAN)
    losses = discretise(curve, interval=0.01)
    assert float(losses.masses.sum()) + losses.infinite == pytest.approx(1, abs=1e-12)
    for k in (0, 37, 250):
        assert delta_of(losses, 0.01 * k) == pytest.approx(curve.delta(0.01 * k), rel=1e-6)
        assert delta_of(losses, 0.01 * k + 0.005) > curve.delta(0.01 * k + 0.005)


@pytest.mark.parametrize("count", [1, 7, 100])
def test_repeated_gaussians_equal_one_with_less_noise(count):
    one = Gaussian(sigma=1 / math.sqrt(count), l2_sensitivity=1.0, relation=ADD_REMOVE_RECORD)
    exact = epsilon_of_curve(privacy_curve(one), 1e-6)
    assert fourier_epsilon({GAUSSIAN: count}, 1e-6) == pytest.approx(exact, rel=1e-5)
    assert fourier_epsilon({GAUSSIAN: count}, 1e-6) >= exact * (1 - 1e-7)


def test_repeated_pure_events_equal_their_exact_composition():
    """k answers of two-level randomised response: a sum over how many were true."""
    event = Pure(epsilon=0.5, relation=ADD_REMOVE_RECORD, mechanism="any")
    k, p = 10, 1 / (1 + math.exp(-0.5))
    weights = np.array([math.comb(k, i) * p**i * (1 - p) ** (k - i) for i in range(k + 1)])
    losses = 0.5 * (2 * np.arange(k + 1) - k)
    epsilon = fourier_epsilon({event: k}, 1e-3)
    exact = float(weights @ np.maximum(-np.expm1(epsilon - losses), 0))
    assert exact == pytest.approx(1e-3, rel=1e-3)


def test_deltas_of_parts_add_up_and_too_many_leave_nothing():
    event = Approximate(epsilon=0.1, delta=1e-7, relation=ADD_REMOVE_RECORD, mechanism="any")
    assert fourier_epsilon({event: 5}, 1e-6) < 0.5 + 1e-6
    assert fourier_epsilon({event: 20}, 1e-6) == math.inf
