"""Discrete Laplace and Gaussian noise for differential privacy, without floating point.

The rejection samplers of Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential
Privacy" (NeurIPS 2020), run on whole arrays: every decision is a comparison of a uniform integer
with an integer, so there is no rounding through which a sample could betray the data.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import torch
from torch import Tensor

from tacit.errors import RangeError
from tacit.ring.prg import Prg, Shape

LIMB_BITS = 60
_LOW = (1 << LIMB_BITS) - 1
_HALF = LIMB_BITS // 2
_HALF_LOW = (1 << _HALF) - 1


class Wide(NamedTuple):
    """An array of integers high · 2^60 + low, with 0 ≤ low < 2^60 and 0 ≤ high < 2^60."""

    high: Tensor
    low: Tensor

    def at(self, index: Tensor) -> "Wide":
        """Pick elements by index or mask."""
        return Wide(self.high[index], self.low[index])

    def is_below(self, other: "Wide") -> Tensor:
        """Compare element by element."""
        return (self.high < other.high) | ((self.high == other.high) & (self.low < other.low))

    def is_below_integer(self, bound: int) -> Tensor:
        """Compare every element with one integer."""
        high, low = bound >> LIMB_BITS, bound & _LOW
        return (self.high < high) | ((self.high == high) & (self.low < low))

    def minus(self, amount: int) -> "Wide":
        """Subtract one integer that is not larger than any element."""
        low = self.low - (amount & _LOW)
        borrow = low >> 63  # −1 where the low limb went below zero
        return Wide(self.high - (amount >> LIMB_BITS) + borrow, low & _LOW)


def square(values: Tensor) -> Wide:
    """Square integers below 2^60 in magnitude."""
    size = values.abs()
    a, b = size >> _HALF, size & _HALF_LOW
    cross = 2 * a * b
    low = ((cross & _HALF_LOW) << _HALF) + b * b
    return Wide(a * a + (cross >> _HALF) + (low >> LIMB_BITS), low & _LOW)


def below_wide(prg: Prg, bound: int, count: int) -> Wide:
    """Draw integers uniform in [0, bound), for bounds up to 2^120.

    Guarantee: exactly uniform if the stream is: a draw that is too large is drawn again.
    """
    bits = (bound - 1).bit_length()
    drawn = _random_bits(prg, bits, count)
    bad = torch.nonzero(~drawn.is_below_integer(bound)).view(-1)
    while bad.numel() > 0:
        fresh = _random_bits(prg, bits, bad.numel())
        drawn.high[bad], drawn.low[bad] = fresh.high, fresh.low
        bad = bad[~fresh.is_below_integer(bound)]
    return drawn


def _random_bits(prg: Prg, bits: int, count: int) -> Wide:
    low = prg.below(1 << min(bits, LIMB_BITS), count)
    if bits <= LIMB_BITS:
        return Wide(torch.zeros_like(low), low)
    return Wide(prg.below(1 << (bits - LIMB_BITS), count), low)


MAX_SCALE_PART = 2**40
"""Largest numerator and denominator of a Laplace scale."""

MAX_GAUSSIAN_SIZE = 2**50
"""Largest (⌊σ⌋ + 1)² · denominator of σ²: keeps every square within two limbs."""

_MAX_TRIALS = 1 << 18  # at a time, so that a large draw needs little memory beside its result


def discrete_laplace(prg: Prg, shape: Shape, *, scale: Fraction) -> Tensor:
    """Draw integers y with probability proportional to exp(−|y| / scale), as int64.

    Guarantee: the exact distribution if the stream is uniform. The time depends on the samples
    that were rejected, not on those returned, except through the size of the largest.
    Cost: about 90 bytes of the stream per sample; 0 rounds.
    """
    t, s = Fraction(scale).numerator, Fraction(scale).denominator
    if not 0 < t <= MAX_SCALE_PART or s > MAX_SCALE_PART:
        raise RangeError(
            f"scale must be positive with numerator and denominator up to 2^40 to be sampled "
            f"exactly, got {scale}; round it with Fraction.limit_denominator"
        )
    return _collect(shape, lambda count: _laplace_trials(prg, count, t, s), accept=0.5)


def discrete_gaussian(prg: Prg, shape: Shape, *, sigma2: Fraction) -> Tensor:
    """Draw integers y with probability proportional to exp(−y² / (2 · sigma2)), as int64.

    Guarantee: the exact distribution if the stream is uniform, up to a statistical distance below
    2^-1400 per sample: proposals beyond 1024 standard deviations would not fit the arithmetic.
    Cost: 110 to 180 bytes of the stream per sample; 0 rounds.
    """
    p, q = Fraction(sigma2).numerator, Fraction(sigma2).denominator
    t = math.isqrt(max(p, 0) // q) + 1
    if p <= 0 or t * t * q > MAX_GAUSSIAN_SIZE:
        raise RangeError(
            f"sigma2 must be positive, and (floor(sigma) + 1)^2 times its denominator at most "
            f"2^50, to be sampled exactly, got {sigma2}; round it with Fraction.limit_denominator"
        )
    return _collect(shape, lambda count: _gaussian_trials(prg, count, p, q, t), accept=0.6)


def _laplace_trials(prg: Prg, count: int, t: int, s: int) -> Tensor:
    """Propose `count` samples of scale t / s and return the accepted ones (paper, algorithm 2)."""
    u = prg.below(t, count)
    u = u[_exp_coins(count, lambda alive, k: prg.below(t * k, alive.numel()) < u[alive])]
    y = (u + t * _geometric(prg, u.numel())) // s
    negative = prg.bits(y.numel()).bool()
    y = torch.where(negative, -y, y)
    return y[~(negative & (y == 0))]  # or zero would have two ways to come about


def _gaussian_trials(prg: Prg, count: int, p: int, q: int, t: int) -> Tensor:
    """Propose `count` samples of variance p / q and return the accepted ones (paper, algorithm 3).

    A Laplace sample y of scale t is kept with probability exp(−(|y| − σ²/t)² / (2σ²)), which over
    the integers is exp(−(|y|·t·q − p)² / (2·p·q·t²)).
    """
    y = _laplace_trials(prg, count, t, 1)
    x2 = square(y.abs() * (t * q) - p)
    return y[_exp_coins_wide(prg, x2, 2 * p * q * t * t)]


def _exp_coins_wide(prg: Prg, numerator: Wide, denominator: int) -> Tensor:
    """Toss coins that show heads with probability exp(−numerator / denominator)."""
    alive = torch.arange(numerator.low.numel())
    heads = torch.zeros(alive.numel(), dtype=torch.bool)
    while alive.numel() > 0:
        rest = numerator.at(alive)
        proper = rest.is_below_integer(denominator)
        heads[alive[proper]] = _exp_coins_proper(prg, rest.at(proper), denominator)
        # exp(−g) = exp(−1) · exp(−(g − 1)) for what is left.
        alive = alive[~proper]
        alive = alive[_exp_one_coins(prg, alive.numel())]
        reduced = numerator.at(alive).minus(denominator)
        numerator.high[alive], numerator.low[alive] = reduced.high, reduced.low
    return heads


def _exp_coins_proper(prg: Prg, numerator: Wide, denominator: int) -> Tensor:
    return _exp_coins(
        numerator.low.numel(),
        lambda alive, k: below_wide(prg, denominator * k, alive.numel()).is_below(
            numerator.at(alive)
        ),
    )


def _geometric(prg: Prg, count: int) -> Tensor:
    """Count, for each element, the exp(−1) coins that show heads before the first tail."""
    heads = torch.zeros(count, dtype=torch.int64)
    alive = torch.arange(count)
    while alive.numel() > 0:
        alive = alive[_exp_one_coins(prg, alive.numel())]
        heads[alive] += 1
    return heads


def _exp_one_coins(prg: Prg, count: int) -> Tensor:
    """Toss coins that show heads with probability exp(−1)."""
    return _exp_coins(count, lambda alive, k: prg.below(k, alive.numel()) == 0)


def _exp_coins(count: int, goes_on: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Toss coins that show heads with probability exp(−g), 0 ≤ g ≤ 1 (paper, algorithm 1).

    Args:
        count: how many coins.
        goes_on: tosses, for the coins of the given indices, one of probability g / k each.
    """
    heads = torch.zeros(count, dtype=torch.bool)
    alive = torch.arange(count)
    k = 1
    while alive.numel() > 0:
        success = goes_on(alive, k)
        if k % 2 == 1:
            heads[alive[~success]] = True
        alive = alive[success]
        k += 1
    return heads


def _collect(shape: Shape, trials: Callable[[int], Tensor], *, accept: float) -> Tensor:
    """Run trials, of which about the fraction `accept` succeeds, until `shape` is filled."""
    wanted = math.prod((shape,) if isinstance(shape, int) else shape)
    parts: list[Tensor] = []
    missing = wanted
    while missing > 0:
        part = trials(min(int(missing / accept) + 16, _MAX_TRIALS))[:missing]
        parts.append(part)
        missing -= part.numel()
    samples = torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)
    return samples.view(shape)
