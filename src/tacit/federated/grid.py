"""Noise on a grid of whole steps: drawn exactly, so that no floating point leaks through it."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.dp import (
    REPLACE_CLIENT,
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    add_binomial,
)
from tacit.errors import ConfigError
from tacit.ring import Prg, discrete_gaussian, discrete_laplace

Noise = Literal["gaussian", "laplace", "binomial"]

_LARGEST_STEPS = 2.0**20  # of the grid within the clip
_LARGEST_SIGMA = 2.0**22  # in steps; the exact sampler ends at 2^25
_COIN_STEPS = 32.0  # few, as the price of a coin flip grows with their square
_MOST_COINS = 2.0**33  # of one client and round: a gigabyte of the stream


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Noise on a grid.

    Attributes:
        scale: steps per 1.0.
        sigma2: variance, in steps², of one part of the noise.
        l2_sensitivity: in steps, of replacing one client: twice the clip and the rounding.
        parts: how many clients share in the noise; 1 if one adds it alone.
        noise: its shape.
    """

    scale: float
    sigma2: Fraction
    l2_sensitivity: float
    parts: int
    noise: Noise = "gaussian"

    def event(self, dimension: int) -> DiscreteGaussian | DiscreteLaplace | Binomial:
        """Say what one round does."""
        if self.noise == "laplace":
            return DiscreteLaplace(
                scale=self.laplace_scale,
                l1_sensitivity=_l1_sensitivity(self.l2_sensitivity, dimension),
                dimension=dimension,
                relation=REPLACE_CLIENT,
            )
        if self.noise == "binomial":
            return Binomial(
                trials=self.coins * self.parts,
                dimension=dimension,
                l1_sensitivity=float(_l1_sensitivity(self.l2_sensitivity, dimension)),
                l2_sensitivity=self.l2_sensitivity,
                linf_sensitivity=self.l2_sensitivity - 2 * math.sqrt(dimension) + 2,
                relation=REPLACE_CLIENT,
            )
        return DiscreteGaussian(
            sigma2=self.sigma2,
            l2_sensitivity=self.l2_sensitivity,
            dimension=dimension,
            relation=REPLACE_CLIENT,
            parts=self.parts,
        )

    @property
    def sigma(self) -> float:
        """Standard deviation of all parts together, in the unit of the updates."""
        return math.sqrt(float(self.sigma2) * self.parts) / self.scale

    @property
    def coins(self) -> int:
        """Fair coins of one part, for binomial noise: even, four times the variance."""
        return int(4 * self.sigma2)

    @property
    def laplace_scale(self) -> Fraction:
        """The scale of one part, for Laplace noise: a whole number of steps."""
        return Fraction(math.isqrt(int(self.sigma2 / 2)))

    def draw(self, count: int, prg: Prg) -> NDArray[np.int64]:
        """Draw one part of the noise, in steps.

        Guarantee: exactly the shape that `event` accounts for, if the stream is uniform.
        Cost: 0 rounds.
        """
        if self.noise == "laplace":
            drawn = discrete_laplace(prg, count, scale=self.laplace_scale)
        elif self.noise == "binomial":
            zeros = torch.zeros(count, dtype=torch.int64)
            drawn, _ = add_binomial(
                zeros,
                trials=self.coins,
                sensitivities=(1.0, 1.0, 1.0),  # of one part alone; `event` speaks of all
                relation=REPLACE_CLIENT,
                prg=prg,
            )
        else:
            drawn = discrete_gaussian(prg, count, sigma2=self.sigma2)
        found: NDArray[np.int64] = drawn.numpy()
        return found


def make_grid(clip: float, multiplier: float, dimension: int, parts: int) -> Grid:
    """Choose a grid for Gaussian noise of ``multiplier`` times the sensitivity.

    Rounding to the grid may lengthen a vector by √dimension steps, which counts as sensitivity.
    """
    steps = min(_LARGEST_STEPS, _LARGEST_SIGMA / (2 * multiplier))
    sensitivity = 2 * (steps + math.sqrt(dimension))
    return Grid(
        scale=steps / clip,
        sigma2=Fraction(math.ceil((multiplier * sensitivity) ** 2 / parts)),
        l2_sensitivity=sensitivity,
        parts=parts,
    )


def make_laplace_grid(clip: float, epsilon: float, dimension: int) -> Grid:
    """Choose a grid for Laplace noise of a pure ε in every round, added by each client alone."""
    root = math.sqrt(dimension)
    steps = min(_LARGEST_STEPS, _LARGEST_SIGMA * epsilon / root)
    if steps < 1:
        raise ConfigError(f"Laplace noise of ε = {epsilon:g} drowns {dimension} parameters")
    sensitivity = 2 * (steps + root)
    scale = math.ceil(_l1_sensitivity(sensitivity, dimension) / epsilon)
    return Grid(
        scale=steps / clip,
        sigma2=Fraction(2 * scale**2),
        l2_sensitivity=sensitivity,
        parts=1,
        noise="laplace",
    )


def make_coin_grid(clip: float, multiplier: float, dimension: int, parts: int) -> Grid:
    """Choose a grid for binomial noise (cpSGD): coarse, because every coin is tossed.

    Raises:
        ConfigError: more coins than can be tossed.
    """
    steps = max(_COIN_STEPS, math.sqrt(dimension))
    sensitivity = 2 * (steps + math.sqrt(dimension))
    coins = 2 * math.ceil(2 * (multiplier * sensitivity) ** 2 / parts)
    return Grid(
        scale=steps / clip,
        sigma2=Fraction(coins, 4),
        l2_sensitivity=sensitivity,
        parts=parts,
        noise="binomial",
    )


def check_coins(grid: Grid, dimension: int) -> None:
    """Refuse binomial noise that would take too long to toss."""
    if grid.coins * dimension > _MOST_COINS:
        raise ConfigError(
            f"binomial noise would toss {grid.coins * dimension:.3g} coins per client and round, "
            f"at most {_MOST_COINS:.3g} are practical; use mechanism 'gaussian' or a larger ε"
        )


def _l1_sensitivity(l2_sensitivity: float, dimension: int) -> int:
    return math.ceil(l2_sensitivity * math.sqrt(dimension))
