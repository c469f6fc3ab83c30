"""Piecewise polynomials that a caller gives: in the clear, how large, and in fixed point."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import ceil, inf, isfinite, log2

import numpy as np
import torch
from torch import Tensor

from tacit.errors import InputError, RangeError
from tacit.mpc.functions.curve import PiecewiseCurve, around
from tacit.mpc.share import HEADROOM_BITS

Coefficients = tuple[float, ...]

LARGEST_ERROR = 2.0**-8
"""A curve whose rounded coefficients could be off by more than this is refused."""


@dataclass(frozen=True)
class Pieces:
    """A function made of polynomials: piece k holds from breakpoint k - 1 up to breakpoint k.

    Attributes:
        breaks: increasing; a breakpoint belongs to the piece above it.
        polynomials: one more than breakpoints; coefficients of x, lowest first.
    """

    breaks: tuple[float, ...]
    polynomials: tuple[Coefficients, ...]

    def __post_init__(self) -> None:
        if not self.breaks or len(self.polynomials) != len(self.breaks) + 1:
            raise InputError(
                f"wanted at least one breakpoint and one polynomial more than breakpoints, got "
                f"{len(self.breaks)} and {len(self.polynomials)}"
            )
        if any(low >= high for low, high in pairwise(self.breaks)):
            raise InputError(f"breakpoints must increase, got {self.breaks}")
        numbers = (*self.breaks, *(a for one in self.polynomials for a in one))
        if not all(isfinite(number) for number in numbers) or not all(self.polynomials):
            raise InputError("breakpoints and coefficients must be finite, with one at least")

    @property
    def degree(self) -> int:
        """Return the largest degree of a piece."""
        return max(len(one) for one in self.polynomials) - 1

    def intervals(self, bound: float) -> list[tuple[float, float]]:
        """Return where each piece holds, for arguments of at most that size; some may be empty."""
        edges = [-bound, *(min(max(edge, -bound), bound) for edge in self.breaks), bound]
        return list(pairwise(edges))

    def largest(self, bound: float) -> float:
        """Return how large a value can be, given how large the argument can be."""
        reach = bound + 2.0**-8  # a breakpoint may be rounded towards the argument
        starts, ends = (-inf, *self.breaks), (*self.breaks, inf)
        parts = zip(self.polynomials, self.intervals(bound), starts, ends, strict=True)
        return max(
            largest_on(one, low, high)
            for one, (low, high), start, end in parts
            if start <= reach and end >= -reach
        )

    def plain(self, x: Tensor) -> Tensor:
        """Evaluate in the clear."""
        at = torch.bucketize(x, torch.tensor(self.breaks, dtype=x.dtype), right=True)
        result = torch.zeros_like(x)
        for number, coefficients in enumerate(self.polynomials):
            value = torch.zeros_like(x)
            for a in reversed(coefficients):
                value = value * x + a
            result = torch.where(at == number, value, result)
        return result


def pieces_of(breaks: Sequence[float], polynomials: Sequence[Sequence[float]]) -> Pieces:
    """Make pieces from what a caller wrote."""
    return Pieces(
        tuple(float(edge) for edge in breaks),
        tuple(tuple(float(a) for a in one) for one in polynomials),
    )


def largest_on(coefficients: Coefficients, low: float, high: float) -> float:
    """Return the largest |value| of a polynomial on an interval: at its ends or where it turns."""
    polynomial = np.polynomial.Polynomial(coefficients)
    turns = polynomial.deriv().roots() if len(coefficients) > 2 else np.array([])
    inside = [float(t.real) for t in turns if abs(t.imag) < 1e-9 and low < t.real < high]
    return max(abs(float(polynomial(x))) for x in (low, high, *inside))


@cache
def curve_of_pieces(pieces: Pieces, frac_bits: int, bound: float) -> PiecewiseCurve:
    """Bring pieces to ring coefficients, for arguments of that precision and size.

    Constants and whole slopes are exact; other coefficients are rounded as finely as the word
    allows, relative to the middle of their piece.

    Raises:
        RangeError: the word has no room for coefficients that are fine enough.
    """
    breaks = tuple(round(edge * 2**frac_bits) for edge in pieces.breaks)
    largest = pieces.largest(bound)
    if all(_is_whole(one) for one in pieces.polynomials):
        return _exact(pieces, breaks, frac_bits, largest)
    room = HEADROOM_BITS - 3 - max(0, ceil(log2(max(largest, 1.0))))
    value_bits = min(3 * frac_bits, room)
    rounded = [
        _rounded(one, low, high, frac_bits, value_bits)
        for one, (low, high) in zip(pieces.polynomials, pieces.intervals(bound), strict=True)
    ]
    return PiecewiseCurve(breaks, tuple(rounded), value_bits, largest + LARGEST_ERROR)


def _is_whole(coefficients: Coefficients) -> bool:
    return len(coefficients) < 3 and all(float(a).is_integer() for a in coefficients[1:])


def _exact(
    pieces: Pieces, breaks: tuple[int, ...], frac_bits: int, largest: float
) -> PiecewiseCurve:
    """Keep the precision of the argument, or none if every value is a whole constant."""
    constants = all(len(one) == 1 and one[0].is_integer() for one in pieces.polynomials)
    value_bits = 0 if constants else frac_bits
    polynomials = tuple(
        tuple(round(a * 2 ** (value_bits * (j == 0))) for j, a in enumerate(one))
        for one in pieces.polynomials
    )
    # Rounding the constant of a piece may carry its value half a unit beyond the bound.
    return PiecewiseCurve(
        breaks, polynomials, value_bits, largest + (0 if constants else 2.0**-value_bits)
    )


def _rounded(
    coefficients: Coefficients, low: float, high: float, frac_bits: int, value_bits: int
) -> tuple[int, ...]:
    """Round coefficients around the middle of a piece, and expand them modulo 2^64 again."""
    centre = round((low + high) / 2 * 2**frac_bits)
    reach = (high - low) / 2
    shifted = np.polynomial.Polynomial(coefficients)(
        np.polynomial.Polynomial([centre / 2**frac_bits, 1.0])
    )
    grains = [value_bits - j * frac_bits for j in range(len(coefficients))]
    error = sum(reach**j * 2.0 ** (-grain - 1) for j, grain in enumerate(grains))
    if error > LARGEST_ERROR or min(grains) < 0:
        raise RangeError(
            f"a piece of degree {len(coefficients) - 1} on [{low:g}, {high:g}] with {frac_bits} "
            "fraction bits does not fit a word; use smaller pieces, a lower degree, fewer "
            "fraction bits, or a smaller bound of the argument"
        )
    padded = [*np.atleast_1d(shifted.coef), *(0.0,) * len(coefficients)][: len(coefficients)]
    local = [round(float(a) * 2.0**grain) for a, grain in zip(padded, grains, strict=True)]
    return around(centre, local)
