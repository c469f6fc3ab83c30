"""Promises: calibrated to the target, confirmed another way, and refused if hopeless."""

import math

import pytest

from tacit.dp import REPLACE_CLIENT, Gaussian, Repeated, epsilon
from tacit.errors import ConfigError
from tacit.learn.federated import Crowd, Wish, promise

CROWD = Crowd(clients=100, minimum=80, colluding=10, rounds=20, dimension=7850)


@pytest.mark.parametrize(
    ("kind", "is_split"), [("central", True), ("central", False), ("local", False)]
)
def test_the_promised_epsilon_lies_between_two_other_computations(kind, is_split):
    made = promise(Wish(kind=kind, clip=1.0, epsilon=5.0, delta=1e-5), CROWD, is_split=is_split)
    assert 4.9 < made.claim.epsilon <= 5.0
    # From above: zero-concentrated privacy and its closed conversion (Bun and Steinke 2016).
    rho = 20 * made.event.rho
    above = rho + 2 * math.sqrt(rho * math.log(1e5))
    # From below: the continuous Gaussian of the same noise, by another accountant.
    like = Gaussian(
        sigma=made.grid.sigma,
        l2_sensitivity=made.grid.l2_sensitivity / made.grid.scale,
        relation=REPLACE_CLIENT,
    )
    below = epsilon([Repeated(event=like, count=20)], delta=1e-5, accountant="fourier").epsilon
    assert below <= made.claim.epsilon <= above * 1.001


def test_many_hands_add_the_noise_of_one():
    wish = Wish(kind="central", clip=1.0, epsilon=5.0)
    split, whole = (promise(wish, CROWD, is_split=flag) for flag in (True, False))
    assert split.grid.parts == 70
    assert split.grid.sigma == pytest.approx(whole.grid.sigma, rel=0.01)


def test_shuffling_affords_a_larger_local_budget_than_its_claim():
    crowd = Crowd(clients=10000, minimum=10000, colluding=0, rounds=1, dimension=100)
    made = promise(
        Wish(kind="shuffle", clip=1.0, epsilon=0.5, delta=1e-6, reports=1), crowd, is_split=True
    )
    assert made.claim.epsilon <= 0.5
    assert made.local_epsilon > 2.0


def test_a_crowd_of_colluders_hides_nobody():
    crowd = Crowd(clients=10, minimum=5, colluding=4, rounds=1, dimension=10)
    with pytest.raises(ConfigError, match="nobody is left to hide in"):
        promise(Wish(kind="central", clip=1.0, epsilon=1.0), crowd, is_split=True)


def test_a_wish_without_its_numbers_is_refused():
    with pytest.raises(ConfigError, match="wants target_epsilon and clip"):
        Wish(kind="local", clip=1.0)
    with pytest.raises(ConfigError, match="leave target_epsilon out"):
        Wish(kind="none", epsilon=1.0)
    with pytest.raises(ConfigError, match="clip must be positive"):
        Wish(kind="none", clip=0.0)
