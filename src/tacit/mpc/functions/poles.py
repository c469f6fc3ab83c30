"""Functions with a pole at zero, cut into log-spaced pieces: their width grows with the argument.

A few numbers, such as one per row, are worth many comparisons if that saves rounds: all pieces
are compared at once, where normalising by the leading bit takes one round trip after another.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import ceil, floor, log, log2

from tacit.errors import RangeError
from tacit.mpc.functions.curve import PiecewiseCurve
from tacit.mpc.functions.curves import ELEMENTWISE, SMALLEST, interpolate
from tacit.mpc.share import HEADROOM_BITS

FEW = 512
"""Up to so many numbers are computed this way."""
_WIDEST = 2.0**16
_MOST_PIECES = 2048
"""More would cost more than the rounds they save, and take minutes to find."""

_SHRINK = 0.99
_SPARE = 32
"""A piece holds from this part of its width below its breakpoint on, which saves comparing."""


@dataclass(frozen=True)
class Decline:
    """A function of positive numbers whose derivatives shrink in size as x grows.

    Attributes:
        function: the function.
        second: the size of its second derivative.
        third: the size of its third derivative.
        scale: what an error is relative to.
        error: how far a piece may be off, relative to that.
    """

    function: Callable[[float], float]
    second: Callable[[float], float]
    third: Callable[[float], float]
    scale: Callable[[float], float]
    error: float = 5e-5


DECLINES = {
    "log": Decline(log, lambda x: x**-2, lambda x: 2 * x**-3, lambda x: 1.0),
    "reciprocal": Decline(
        lambda x: 1 / x, lambda x: 2 * x**-3, lambda x: 6 * x**-4, lambda x: 1 / x
    ),
    "rsqrt": Decline(
        lambda x: x**-0.5,
        lambda x: 0.75 * x**-2.5,
        lambda x: 1.875 * x**-3.5,
        lambda x: x**-0.5,
        error=1.25e-5,  # norms multiply it by what they normalise
    ),
}


@cache
def decline_curve(name: str, frac_bits: int, bound: float, gain: float = 1.0) -> PiecewiseCurve:
    """Cut a function, times a gain of at most one, into parabolas and, where need be, lines.

    Below 2^-8 it stays at its value there; above the bound nothing can be.
    """
    # Finding pieces takes long, and a bound may change with every call: those of one power of two
    # serve all bounds below it.
    bound = max(bound, 2 * SMALLEST)  # a curve has one breakpoint at least
    whole = _decline_curve(name, frac_bits, 2.0 ** ceil(log2(bound) - 2.0**-20), gain)
    count = sum(at < bound * 2**frac_bits for at in whole.breaks)
    largest = gain * ELEMENTWISE[name].largest(bound) + 2.0**-8
    pieces, slack = whole.pieces[: count + 1], whole.slack[:count]
    return PiecewiseCurve(whole.breaks[:count], pieces, whole.frac_bits, largest, slack)


@cache
def has_curve(name: str, frac_bits: int, bound: float) -> bool:
    """Tell whether the pieces of a function are not too many."""
    try:
        return bound <= _WIDEST and bool(decline_curve(name, frac_bits, bound).breaks)
    except RangeError:
        return False


@cache
def _decline_curve(name: str, frac_bits: int, bound: float, gain: float) -> PiecewiseCurve:
    decline = DECLINES[name]

    def function(x: float) -> float:
        return gain * decline.function(x)

    largest = ELEMENTWISE[name].largest(bound)
    # Fewer bits would show in the coefficients of large arguments, and pieces would be many.
    value_bits = min(max(3 * frac_bits, 48), HEADROOM_BITS - 3 - ceil(log2(largest)))
    edges, degrees, width = [SMALLEST], [], bound
    while edges[-1] < bound:
        # A piece is rarely more than twice as wide as the one before: no need to look there.
        widest = max(min(2 * width, bound - edges[-1]), 2.0**-frac_bits)
        width, degree = max(
            (_width(decline, edges[-1], widest, degree, frac_bits, value_bits), degree)
            for degree in (1, 2)
        )
        edges.append(edges[-1] + width)
        degrees.append(degree)
        if len(degrees) > _MOST_PIECES:
            raise RangeError(
                f"{name} of numbers up to {bound:g} with {frac_bits} fraction bits takes more than "
                f"{_MOST_PIECES} pieces; lower the bounds of the inputs, or use 16 fraction bits"
            )
    pieces: list[tuple[int, ...]] = [(round(function(SMALLEST) * 2**value_bits),)]
    for (low, high), degree in zip(pairwise(edges), degrees, strict=True):
        start = low - (high - low) / _SPARE
        pieces.append(interpolate(function, start, high, frac_bits, value_bits, degree=degree))
    breaks = tuple(round(edge * 2**frac_bits) for edge in edges[:-1])
    slack = tuple(_slack((high - low) * 2**frac_bits / _SPARE) for low, high in pairwise(edges))
    return PiecewiseCurve(breaks, tuple(pieces), value_bits, largest + 2.0**-8, slack)


def _slack(room: float) -> int:
    """Return how many bits a threshold may ignore that has so much room below it."""
    return floor(log2(room)) if room >= 1 else 0


def _width(
    decline: Decline, low: float, width: float, degree: int, frac_bits: int, value_bits: int
) -> float:
    """Find about the widest piece from here, up to a width, with as small an error as it should."""

    def is_fine(width: float) -> bool:
        # Interpolation at Chebyshev points, and rounding the coefficients around the middle.
        start, reach = low - width / _SPARE, width * (1 + 1 / _SPARE)
        if start <= 0:
            return False
        slope = decline.second(start) / 2 if degree == 1 else decline.third(start) / 6
        off = 2 * slope * (reach / 4) ** (degree + 1)
        off += sum(
            (reach / 2) ** j * 2.0 ** (j * frac_bits - value_bits) for j in range(degree + 1)
        )
        return off <= decline.error * decline.scale(low + width)

    least = 2.0**-frac_bits
    if width <= least or is_fine(width):
        return width
    # The error grows with the width: of all shrunk widths, the first that is fine is searched for.
    first, last = 0, max(1, ceil(log(least / width) / log(_SHRINK)))
    while last - first > 1:
        middle = (first + last) // 2
        if is_fine(width * _SHRINK**middle):
            last = middle
        else:
            first = middle
    return max(width * _SHRINK**last, least)
