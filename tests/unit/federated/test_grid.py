"""Noise on a grid: what is drawn has the variance that its event says, for every shape."""

from fractions import Fraction

import numpy as np
import pytest

from tacit.dp import Binomial, DiscreteGaussian, DiscreteLaplace
from tacit.errors import ConfigError
from tacit.federated.grid import (
    check_coins,
    make_coin_grid,
    make_grid,
    make_laplace_grid,
)
from tacit.ring import Prg

GRIDS = {
    DiscreteGaussian: make_grid(1.0, 0.5, 100, 4),
    DiscreteLaplace: make_laplace_grid(1.0, 2.0, 100),
    Binomial: make_coin_grid(1.0, 0.5, 100, 4),
}


@pytest.mark.parametrize("kind", GRIDS, ids=lambda kind: kind.__name__)
def test_the_variance_of_the_noise_is_the_one_of_the_event(kind):
    grid = GRIDS[kind]
    event = grid.event(100)
    assert isinstance(event, kind)
    drawn = grid.draw(20000, Prg(bytes(16)))
    if isinstance(event, DiscreteLaplace):
        expected = 2 * float(event.scale) ** 2
    elif isinstance(event, Binomial):
        expected = event.trials / grid.parts / 4
    else:
        expected = float(event.sigma2)
    # With a fixed stream; over streams the estimate has a relative deviation of 1.6 % at most.
    assert np.var(drawn) == pytest.approx(expected, rel=0.08)
    assert abs(np.mean(drawn)) < 5 * np.sqrt(expected / 20000)


def test_laplace_noise_on_the_grid_has_the_epsilon_it_was_made_for():
    event = make_laplace_grid(1.0, 2.0, 100).event(100)
    assert 1.99 < event.epsilon <= 2.0 + 1e-9


def test_coins_are_even_and_too_many_are_refused():
    grid = make_coin_grid(1.0, 0.7, 100, 3)
    assert grid.coins % 2 == 0
    assert grid.sigma2 == Fraction(grid.coins, 4)
    with pytest.raises(ConfigError, match="coins per client"):
        check_coins(make_coin_grid(1.0, 100.0, 10000, 1), 10000)
