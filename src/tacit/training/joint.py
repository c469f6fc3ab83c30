"""Noise that is sampled on shares, so that no party knows any of the large part of it.

Each of both computing parties brings a uniform number; their sum modulo 2^52 is uniform whatever
one of them brought, and goes through the inverse distribution function of a discrete Gaussian of
variance 16: how many of 64 public thresholds it reaches. As shares add up without the modulus,
thresholds above 2^52 stand for the second turn. A coarse sample h times a public step L, and fine
discrete Gaussians of variance a² that both draw for themselves, make one of variance 16·L² + a²
for whoever knows one of the fine ones: it fills the gaps between multiples of L.

Proof. The probability of L·h + f = x is proportional to exp(-x²/2s²)·Σ_h exp(-(h - c)²/2t²), for
s² = 16·L² + a², some c that depends on x, and t² = 16·a²/s². By Poisson summation the sum is
t·√(2π)·(1 ± η) with η = 2·Σ_k exp(-2π²t²k²), whatever c is. As a² is at least 2.5·L², t² is at
least 2.16 and η is below 2^-60: the distribution is within 2^-59 of a discrete Gaussian of variance
s². Thresholds are rounded to 2^-52, and what lies beyond 8 standard deviations is cut off: together
less than 2^-46 per number.
"""

from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache, reduce
from math import ceil, isqrt
from typing import TypeVar

import torch
from torch import Tensor

from tacit import ring
from tacit.errors import ConfigError
from tacit.mpc.ops import ProtocolOps

V = TypeVar("V")
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


def coins_name(party: str) -> str:
    """Return the name of a party's uniform numbers."""
    return f"coins of {party}"


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
    # Both turns of the sum, and where the second begins.
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
