"""Noise on trial: how much of what is claimed can be there, and what shortfall would be caught.

An event says which noise was added. Where an audit can see that noise, it need not wait for a
record to betray itself: it counts how many draws lie beyond one and a half claimed deviations,
which is a binomial number if the claim is true.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import binom

from tacit.audit.findings import Power
from tacit.errors import ConfigError

CONFIDENCE = 1 - 1e-6
"""Of an honest mechanism, one audit in a million says that it is none."""

CAUGHT = 0.95
"""With which probability the shortfall that is named beside a verdict would have been caught."""

_BAR = 1.5  # deviations; counting beyond it tells shortfalls apart best
_MOST = 8.0  # the largest factor that is looked for

Tail = Callable[[float], float]
"""How likely a draw lies further out than so many deviations."""


@dataclass(frozen=True, kw_only=True)
class NoiseTrial:
    """What counting draws says about noise.

    Attributes:
        trials: how many draws were looked at.
        at_most: the noise is at most so many times what is claimed, at the confidence.
        needed: what it must be for the claim to hold: 1, or more where more was to be hidden.
        confidence: how sure.
        power: what would have been caught.
    """

    trials: int
    at_most: float
    needed: float
    confidence: float
    power: Power

    @property
    def is_contradicted(self) -> bool:
        """Tell whether there is less noise than the claim needs."""
        return self.at_most < self.needed

    @property
    def excess(self) -> float:
        """By what factor, at least, signal over noise is above what is claimed."""
        return self.needed / max(self.at_most, 1e-6)


def gaussian_tail(deviations: float) -> float:
    """Of a normal number."""
    return 2 * float(ndtr(-deviations))


def laplace_tail(deviations: float) -> float:
    """Of a Laplace number, whose deviation is √2 of its scale."""
    return math.exp(-math.sqrt(2) * deviations)


def try_noise(
    noise: NDArray[np.float64],
    *,
    deviation: float,
    tail: Tail = gaussian_tail,
    confidence: float = CONFIDENCE,
    needed: float = 1.0,
) -> NoiseTrial:
    """Hold draws of noise against the deviation and the shape that are claimed.

    Args:
        noise: independent draws.
        deviation: the standard deviation that is claimed.
        tail: the claimed shape.
        confidence: of the bound.
        needed: how many times the claimed noise it would take to hide what there is to hide.

    Guarantee: noise as claimed is contradicted with a probability of at most 1 − confidence, where
    no more was to be hidden than is claimed.
    """
    beyond = int((np.abs(noise) > _BAR * deviation).sum())
    return try_count(
        beyond, len(noise), lambda f: tail(_BAR / f), confidence=confidence, needed=needed
    )


def try_count(
    hits: int,
    trials: int,
    chance: Callable[[float], float],
    *,
    confidence: float = CONFIDENCE,
    needed: float = 1.0,
) -> NoiseTrial:
    """Hold a count against a chance that grows with the noise; `chance(1)` is what is claimed."""
    if trials < 20:
        raise ConfigError(f"wanted 20 trials or more, got {trials}")
    error = 1 - confidence
    # The largest count that contradicts: at most so many, with a chance of at most the error.
    limit = int(binom.ppf(error, trials, chance(needed)))
    while limit >= 0 and binom.cdf(limit, trials, chance(needed)) > error:
        limit -= 1
    return NoiseTrial(
        trials=trials,
        at_most=_largest(lambda f: float(binom.cdf(hits, trials, chance(f))) > error),
        needed=needed,
        confidence=confidence,
        power=_power(lambda f: float(binom.cdf(limit, trials, chance(f)))),
    )


def _power(caught: Callable[[float], float]) -> Power:
    """Return the smallest shortfall that is caught often enough, or how often missing noise is."""
    none = caught(1e-6)
    if none < CAUGHT:
        return Power(factor=0.0, probability=none)
    return Power(factor=_largest(lambda f: caught(f) >= CAUGHT), probability=CAUGHT)


def _largest(holds: Callable[[float], bool]) -> float:
    """Return, from below, the largest factor at which something holds that holds for small ones."""
    low, high = 1e-6, _MOST
    if holds(high):
        return high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
