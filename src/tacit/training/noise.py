"""What the parties draw to hide a record: noise of a sum that none of them knows, rows of a step.

Each of several makers adds a part of the noise, and every one faces the rest. Or most of it is
sampled on shares, and both computing parties add a small part each:

Each of both brings a uniform number; their sum modulo 2^52 is uniform whatever one of them brought,
and goes through the inverse distribution function of a discrete Gaussian of variance 16: how many
of 64 public thresholds it reaches. As shares add up without the modulus, thresholds above 2^52
stand for the second turn. A coarse sample h times a public step L, and fine discrete Gaussians of
variance a² that both draw for themselves, make one of variance 16·L² + a² for whoever knows one of
the fine ones: it fills the gaps between multiples of L.

Proof. The probability of L·h + f = x is proportional to exp(-x²/2s²)·Σ_h exp(-(h - c)²/2t²), for
s² = 16·L² + a², some c that depends on x, and t² = 16·a²/s². By Poisson summation the sum is
t·√(2π)·(1 ± η) with η = 2·Σ_k exp(-2π²t²k²), whatever c is. As a² is at least 2.5·L², t² is at
least 2.16 and η is below 2^-60: the distribution is within 2^-59 of a discrete Gaussian of variance
s². Thresholds are rounded to 2^-52, and what lies beyond 8 standard deviations is cut off: together
less than 2^-46 per number.
"""

from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache, reduce
from math import ceil, isqrt, log, sqrt
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from tacit import ring
from tacit.errors import ConfigError
from tacit.mpc.ops import ProtocolOps

V = TypeVar("V")
MAX_VARIANCE = 2**49
"""The largest variance of a part that `ring.discrete_gaussian` draws exactly, and some room."""
TAIL = 32.0
"""No part of the noise is larger than so many standard deviations: p < 2^-700 for one number."""
COARSE = 16
"""The variance of a coarse sample, in steps."""
FINEST = Fraction(5, 2)
"""The least variance of a fine part, in steps squared: it fills the gaps between them."""
LARGEST = 32
"""No coarse sample is larger: eight standard deviations."""
COIN_BITS = 52
"""Of a uniform number: so many can be added, and are whole numbers as floats too."""
DISTANCE = 2.0**-46
"""How far, at most, one number of the noise is from a discrete Gaussian of its variance."""
KEPT = "rows that were drawn"
"""The name of zeros and ones that say which rows of a step count."""
OVERFLOW = 2.0**-40
"""How likely, at most, more rows are drawn than a step has room for: it is taken out of δ."""
_ROW_BITS = 53
"""Of the coin of a row: the probability is a fraction of 2^53, which a float holds exactly."""


@dataclass(frozen=True, kw_only=True)
class NoisePlan:
    """Who makes noise, how much, and how much of it must be unknown to each of them.

    Attributes:
        makers: who draws a part; all follow the protocol.
        wanted: the variance that everyone must face, in units of the lattice, squared.
        each: the variance of one part.
        frac_bits: the lattice is that of 2^-frac_bits.
        l2_sensitivity: of the sum that the noise is added to, as a number.
        shape: of that sum.
        step: what the jointly sampled part is a multiple of; 0 where there is none.

    Guarantee: a party that knows its own part, and no other, faces noise of variance ``wanted`` at
    least; so does whoever knows no part.

    Raises:
        ConfigError: too few makers, or parts that leave somebody with less noise than is wanted.
    """

    makers: tuple[str, ...]
    wanted: Fraction
    each: Fraction
    frac_bits: int
    l2_sensitivity: float
    shape: tuple[int, ...]
    step: int = 0

    def __post_init__(self) -> None:
        if len(set(self.makers)) != len(self.makers) or len(self.makers) < 2:
            raise ConfigError(
                f"noise wants two different makers at least, got {', '.join(self.makers) or 'none'}"
            )
        for maker in self.makers:
            if self.unknown_to(maker) < self.wanted:
                raise ConfigError(
                    f"{maker!r} knows its own part of the noise and would face "
                    f"{float(self.unknown_to(maker) / self.wanted):.2f} of the variance that the "
                    f"claim rests on; of {len(self.makers)} makers each must add "
                    f"1/{len(self.makers) - 1} of it"
                )

    def unknown_to(self, party: str) -> Fraction:
        """Return the variance of the noise that a party does not know."""
        return COARSE * self.step**2 + (len(self.makers) - (party in self.makers)) * self.each

    @property
    def whole(self) -> Fraction:
        """Return the variance of all of the noise: what the weights have in them."""
        return self.unknown_to("nobody that makes noise")

    @property
    def alone(self) -> Fraction:
        """Return the variance that a single maker draws who faces nobody else's."""
        return Fraction(ceil(self.wanted))

    @property
    def bound(self) -> float:
        """Return how large one number of a part can be."""
        return TAIL * sqrt(self.each) * 2.0**-self.frac_bits


def share_noise(
    makers: tuple[str, ...],
    *,
    multiplier: float,
    l2_sensitivity: float,
    frac_bits: int,
    shape: tuple[int, ...],
    is_joint: bool = False,
) -> NoisePlan:
    """Cut noise of ``multiplier`` times the sensitivity into parts of σ²/(makers - 1) each.

    Where ``is_joint``, the two makers sample most of it on shares.
    """
    wanted = Fraction((multiplier * l2_sensitivity * 2**frac_bits) ** 2)
    # Whoever knows its own part faces those of all others: they alone must add up to σ².
    step, each = 0, Fraction(ceil(wanted / max(1, len(makers) - 1)))
    if is_joint:
        step, each = cut_in_steps(wanted)
    return NoisePlan(
        makers=makers,
        wanted=wanted,
        each=each,
        frac_bits=frac_bits,
        l2_sensitivity=l2_sensitivity,
        shape=shape,
        step=step,
    )


def largest_multiplier(makers: tuple[str, ...], *, l2_sensitivity: float, frac_bits: int) -> float:
    """Return the most noise, in units of the sensitivity, that so many makers can draw exactly."""
    most = MAX_VARIANCE * max(1, len(makers) - 1)
    return sqrt(most) / (l2_sensitivity * 2.0**frac_bits)


def draw_noise(plan: NoisePlan, prg: ring.Prg) -> Tensor:
    """Draw my part, as multiples of the lattice, from a generator of this step's own."""
    words = ring.discrete_gaussian(prg, plan.shape, sigma2=plan.each)
    return words.double() * 2.0**-plan.frac_bits


def draw_alone(plan: NoisePlan, prg: ring.Prg) -> Tensor:
    """Draw the whole noise of a step, as one who faces nobody else's must."""
    words = ring.discrete_gaussian(prg, plan.shape, sigma2=plan.alone)
    return words.double() * 2.0**-plan.frac_bits


def draw_whole(plan: NoisePlan) -> Tensor:
    """Draw all of the noise, for a training in the clear: whoever calls this knows it."""
    parts = [draw_noise(plan, ring.Prg.from_os()) for _ in plan.makers]
    if plan.step:
        coarse = coarse_of(draw_coins(plan.shape, ring.Prg.from_os()), step=plan.step)
        parts.append(coarse.double() * 2.0**-plan.frac_bits)
    return torch.stack(parts).sum(dim=0)


def noise_name(maker: str) -> str:
    """Return the name of a maker's part of the noise of a run."""
    return f"noise of {maker}"


def coins_name(party: str) -> str:
    """Return the name of a party's uniform numbers."""
    return f"coins of {party}"


def sum_noise(ops: ProtocolOps[V], plan: NoisePlan) -> V:
    """Bring in everyone's part of the noise, sample what is sampled jointly, and add all up."""
    parts = [
        ops.input(noise_name(maker), owner=maker, shape=plan.shape, bound=plan.bound)
        for maker in plan.makers
    ]
    if plan.step:
        parts.append(sample_coarse(ops, plan.makers, plan.shape, step=plan.step))
    return reduce(ops.add, parts)


def cut_in_steps(wanted: Fraction) -> tuple[int, Fraction]:
    """Return the step of the coarse part, and the variance of a fine one, for a variance in all.

    Raises:
        ConfigError: it is too small to be cut.
    """
    step = isqrt(int(wanted / (COARSE + FINEST)))
    if step < 1:
        raise ConfigError(
            f"noise of a variance of {float(wanted):.3g} units is too little to be sampled "
            "jointly; wanted 19 at least: use more fraction bits, or noise = 'parts'"
        )
    return step, Fraction(ceil(wanted - COARSE * step**2))


@cache
def thresholds() -> tuple[int, ...]:
    """Return where uniform numbers below 2^52 go from one coarse sample to the next."""
    # In decimals, which are alike on every machine: with floats parties could make other plans.
    with localcontext() as context:
        context.prec = 50
        odds = [(-Decimal(h * h) / (2 * COARSE)).exp() for h in range(-LARGEST, LARGEST + 1)]
        total, reached, found = sum(odds), Decimal(0), []
        for one in odds[:-1]:
            reached += one
            found.append(int((reached / total * 2**COIN_BITS).to_integral_value()))
    return tuple(found)


def draw_coins(shape: tuple[int, ...], prg: ring.Prg) -> Tensor:
    """Draw my uniform numbers, as whole numbers below 2^52."""
    return prg.words(shape) & ((1 << COIN_BITS) - 1)


def sample_coarse(
    ops: ProtocolOps[V], parties: tuple[str, ...], shape: tuple[int, ...], *, step: int
) -> V:
    """Sample ``step`` units in the last place times a discrete Gaussian of variance 16, on shares.

    Guarantee: towards each party what comes out has nothing to do with the coins that it brought.
    Error: `DISTANCE` per number. Cost under sealed: 129 comparisons per number, at once.
    """
    unit = 2.0**-ops.frac_bits
    bound = 2.0**COIN_BITS * unit
    coins = [ops.input(coins_name(one), owner=one, shape=shape, bound=bound) for one in parties]
    edges = thresholds()
    # Both turns of the sum, and where the second begins: to reduce it on shares would cost a
    # comparison and a round more.
    breaks = [*edges, 2**COIN_BITS, *(2**COIN_BITS + one for one in edges)]
    sizes = [h * step * unit for h in range(-LARGEST, LARGEST + 1)] * 2
    return ops.piecewise(
        reduce(ops.add, coins), [one * unit for one in breaks], [[size] for size in sizes]
    )


def coarse_of(coins: Tensor, *, step: int) -> Tensor:
    """Give the coarse part that a sum of coins stands for, in the clear: whole units."""
    edges = torch.tensor(thresholds())
    reached = torch.searchsorted(edges, coins % (1 << COIN_BITS), right=True)
    return (reached - LARGEST) * step


def rate_of(batch: int, rows: int) -> float:
    """Return the probability with which a row is in a step: exact, as it is drawn."""
    return float(_row_threshold(batch, rows) / 2.0**_ROW_BITS)


def room_for(batch: int, rows: int) -> int:
    """Return how many rows a step has room for, if ``batch`` of ``rows`` are drawn on average.

    What is left is filled with rows that count for nothing: not even how many were drawn is shown.

    Guarantee: more are drawn with a probability of `OVERFLOW` at most (Chernoff: exp(-n·KL(k/n‖q))
    for k or more of n, each with probability q).
    """
    rate, most = rate_of(batch, rows), batch
    while most < rows:
        share = (most + 1) / rows
        divergence = share * log(share / rate)
        if share < 1:
            divergence += (1 - share) * log((1 - share) / (1 - rate))
        if rows * divergence >= -log(OVERFLOW):
            break
        most += 1
    return most


def draw_rows(prg: ring.Prg, batch: int, rows: int) -> np.ndarray:
    """Draw which of the rows are in a step, each by a coin of its own (Poisson sampling).

    Both computing parties draw the same from a generator that these two share; nobody else learns
    which rows they are. Of more than there is room for, the first are taken.
    """
    coins = prg.words((rows,)) & ((1 << _ROW_BITS) - 1)
    found: np.ndarray = np.flatnonzero((coins < _row_threshold(batch, rows)).numpy())
    return found[: room_for(batch, rows)]


def _row_threshold(batch: int, rows: int) -> int:
    return (batch << _ROW_BITS) // rows
