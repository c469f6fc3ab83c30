"""Piecewise polynomials that a caller gives, brought into fixed point for `Piecewise`."""

from functools import cache
from math import ceil, comb, log2

import numpy as np

from tacit.errors import RangeError
from tacit.mpc.functions.curve import Curve
from tacit.mpc.functions.pieces import Coefficients, Pieces
from tacit.mpc.share import HEADROOM_BITS

LARGEST_ERROR = 2.0**-8
"""A curve whose rounded coefficients could be off by more than this is refused."""


@cache
def curve_of_pieces(pieces: Pieces, frac_bits: int, bound: float) -> Curve:
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
    return Curve(breaks, tuple(rounded), value_bits, largest + LARGEST_ERROR)


def _is_whole(coefficients: Coefficients) -> bool:
    return len(coefficients) < 3 and all(float(a).is_integer() for a in coefficients[1:])


def _exact(pieces: Pieces, breaks: tuple[int, ...], frac_bits: int, largest: float) -> Curve:
    """Keep the precision of the argument, or none if every value is a whole constant."""
    constants = all(len(one) == 1 and one[0].is_integer() for one in pieces.polynomials)
    value_bits = 0 if constants else frac_bits
    polynomials = tuple(
        tuple(round(a * 2 ** (value_bits * (j == 0))) for j, a in enumerate(one))
        for one in pieces.polynomials
    )
    # Rounding the constant of a piece may carry its value half a unit beyond the bound.
    return Curve(breaks, polynomials, value_bits, largest + (0 if constants else 2.0**-value_bits))


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
    expanded = [
        sum(a * comb(j, i) * (-centre) ** (j - i) for j, a in enumerate(local) if j >= i)
        for i in range(len(local))
    ]
    return tuple((value + (1 << 63)) % (1 << 64) - (1 << 63) for value in expanded)
