"""Polynomials and piecewise polynomials with public coefficients, and what is made of them."""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from math import erf, exp, pi, sqrt
from typing import TypeVar

from tacit.errors import InputError
from tacit.mpc.functions.curves import Outline, fit_edges, fit_polynomial
from tacit.mpc.functions.pieces import pieces_of
from tacit.mpc.primitives import Primitives

V = TypeVar("V")

Curves = tuple[tuple[float, ...], tuple[tuple[float, ...], ...]]
"""Breakpoints, and the coefficients of the pieces between them."""
REACH = 4.0
"""Beyond, the slope of a GELU is within 6e-4 of 0 or 1."""
ERROR = 7e-4
"""How far a parabola may be off, about as much as the GELU of `sealed` itself."""


def polynomial(ops: Primitives[V], x: V, coefficients: Sequence[float]) -> V:
    """Evaluate a polynomial with public coefficients, lowest first.

    Range: where every power of x fits the word, or the plan is refused. Error: each power is
    off by one unit in the last place times the powers below it; a coefficient has as many
    significant bits as a value. Cost: ⌈log2 degree⌉ products and their truncation.
    """
    if not coefficients:
        raise InputError("a polynomial wants one coefficient at least, got none")
    x = ops.normalise_scale(x)
    powers = _powers(ops, x, len(coefficients) - 1)
    total = ops.scale(x, 0.0)
    for a, power in zip(coefficients[1:], powers, strict=True):
        if a:
            total = ops.add(total, ops.scale(power, a))
    return ops.shift(total, coefficients[0])


def _powers(ops: Primitives[V], x: V, degree: int) -> list[V]:
    """Give x, x², … up to the degree, doubling the number of known powers with every product."""
    shape = ops.shape(x)
    known = ops.reshape(x, (1, *shape))
    while (count := ops.shape(known)[0]) < degree:
        last = ops.reshape(ops.part(known, count - 1), (1, *shape))
        wanted = ops.take(known, range(min(count, degree - count)), dim=0)
        known = ops.concatenate((known, ops.normalise_scale(ops.mul(wanted, last))), dim=0)
    return [ops.part(known, at) for at in range(degree)]


def piecewise(
    ops: Primitives[V], x: V, breaks: Sequence[float], polynomials: Sequence[Sequence[float]]
) -> V:
    """Evaluate a function made of polynomials with public breakpoints and coefficients.

    Polynomial k (lowest coefficient first) holds from breakpoint k - 1 up to breakpoint k.

    Range: all x within its bound. Error: constants and whole slopes are exact; other
    coefficients are rounded, and a plan in which that could matter (2^-8 or more) is refused.
    Cost under sealed: that of one comparison per breakpoint, at once; else of one function.
    """
    return ops.pieces(pieces_of(breaks, polynomials), x)


def clamp(ops: Primitives[V], x: V, low: float, high: float) -> V:
    """Keep values between two public numbers. Range: all. Error: none. Cost: 2 comparisons."""
    if low > high:
        raise InputError(f"cannot clamp to an empty range, got {low} to {high}")
    if low == high:
        return ops.shift(ops.scale(x, 0.0), low)
    return piecewise(ops, x, (low, high), ((low,), (0.0, 1.0), (high,)))


def cap(ops: Primitives[V], x: V, *, bound: float) -> V:
    """Saturate at ±bound, unless nothing larger can occur; then nothing is done.

    Range: all. Error: none. Cost: none, or that of `clamp`.
    """
    if ops.number(x, "capping").bound <= bound:
        return x
    return clamp(ops, x, -bound, bound)


def sign(ops: Primitives[V], x: V) -> V:
    """Give -1, 0 or 1. Range: all. Error: none. Cost: 2 comparisons at once."""
    return piecewise(ops, x, (0.0, 2.0**-ops.frac_bits), ((-1.0,), (0.0,), (1.0,)))


def is_zero(ops: Primitives[V], x: V) -> V:
    """Give 1 where the word is zero and 0 elsewhere. Range: all. Error: none. Cost: as `sign`."""
    return piecewise(ops, x, (0.0, 2.0**-ops.frac_bits), ((0.0,), (1.0,), (0.0,)))


def equal(ops: Primitives[V], x: V, y: V) -> V:
    """Give 1 where two values are the same word and 0 elsewhere. Range: all. Error: none."""
    return is_zero(ops, ops.sub(x, y))


@cache
def gelu_slope() -> Curves:
    """Return breakpoints and parabolas of the derivative Φ(x) + x·φ(x) of a GELU."""
    edges = fit_edges(Outline(_slope, -REACH, REACH, (0.0,), (1.0,), error=ERROR))
    inner = [tuple(fit_polynomial(_slope, *ends, 2).tolist()) for ends in pairwise(edges)]
    return edges, ((0.0,), *inner, (1.0,))


def _slope(x: float) -> float:
    return (1 + erf(x / sqrt(2))) / 2 + x * exp(-x * x / 2) / sqrt(2 * pi)
