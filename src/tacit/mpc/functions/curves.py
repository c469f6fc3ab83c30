"""Element-wise functions: in the clear, how large, and as piecewise polynomials in fixed point.

Pieces are Chebyshev interpolants of the function on their interval; beyond the outermost
breakpoints a function is replaced by its asymptote, so that nothing is nonsense anywhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from math import ceil, erf, exp, floor, log, log1p, log2, sqrt

import numpy as np
import torch
from torch import Tensor

from tacit.errors import RangeError
from tacit.mpc.functions.curve import PiecewiseCurve, around
from tacit.mpc.share import HEADROOM_BITS


@dataclass(frozen=True)
class Elementwise:
    """A function of one number.

    Attributes:
        plain: the function on clear numbers.
        largest: a bound on its values, given a bound on the size of its argument.
    """

    plain: Callable[[Tensor], Tensor]
    largest: Callable[[float], float]


SMALLEST = 2.0**-8
"""Functions with a pole at zero stay at their value here below this."""


def _step(x: Tensor) -> Tensor:
    return (x >= 0).to(x.dtype)


def _one(bound: float) -> float:
    return 1.0


def _same(bound: float) -> float:
    return bound


ELEMENTWISE: dict[str, Elementwise] = {
    "abs": Elementwise(torch.abs, _same),
    "erf": Elementwise(torch.erf, _one),
    "exp": Elementwise(lambda x: torch.exp(x.clamp(max=0.0)), _one),
    "gelu": Elementwise(torch.nn.functional.gelu, _same),
    "log": Elementwise(lambda x: torch.log(x.clamp(min=SMALLEST)), lambda b: 6.0 + b),
    "reciprocal": Elementwise(lambda x: 1 / x.clamp(min=SMALLEST), lambda b: 1 / SMALLEST),
    "relu": Elementwise(torch.relu, _same),
    "rsqrt": Elementwise(lambda x: x.clamp(min=SMALLEST).rsqrt(), lambda b: SMALLEST**-0.5),
    "sigmoid": Elementwise(torch.sigmoid, _one),
    "silu": Elementwise(torch.nn.functional.silu, _same),
    "softplus": Elementwise(torch.nn.functional.softplus, lambda b: b + 1.0),
    "sqrt": Elementwise(lambda x: x.clamp(min=0.0).sqrt(), lambda b: max(b, 1.0)),
    "step": Elementwise(_step, _one),
    "tanh": Elementwise(torch.tanh, _one),
}
"""``exp`` is that of arguments of at most zero, as a softmax has them; above it stays at one."""


Function = Callable[[float], float]

ONE_BLOCK_BITS = 12
"""Differences of so many bits are compared by one block, without a tree: `OneBlock` of `sealed`."""


@dataclass(frozen=True)
class Outline:
    """A function to be cut into pieces.

    Attributes:
        inside: the function between its ends.
        low: where it begins; below, it is the polynomial ``below``.
        high: where it ends; from there on it is ``above``. Both ends are one where the function
            is nothing but two polynomials with whole coefficients.
        below: coefficients in x, lowest first.
        above: likewise.
        error: how far a piece may be off; breakpoints are placed by it.
        is_smooth: whether pieces may reach beyond the ends.
        degree: of the pieces.
    """

    inside: Function
    low: float
    high: float
    below: tuple[float, ...]
    above: tuple[float, ...]
    error: float = 5e-4
    is_smooth: bool = True
    degree: int = 2


def _sigmoid(x: float) -> float:
    return exp(min(x, 0.0)) / (1 + exp(-abs(x)))  # no overflow, however far a grid reaches


def _gelu(x: float) -> float:
    return x * (1 + erf(x / sqrt(2))) / 2


def _silu(x: float) -> float:
    return x * _sigmoid(x)


@cache
def fit_edges(outline: Outline, coarse: float = 0.0) -> tuple[float, ...]:
    """Place breakpoints so that every piece is off by about what it may, as few as that takes."""
    edges = [outline.low]
    while edges[-1] < outline.high:
        left, width = edges[-1], outline.high - edges[-1]
        while _off(outline, left, left + width, coarse) > outline.error:
            width *= 0.97
        edges.append(left + width)
    return tuple(edges)


def _fit_on_some_grid(
    outline: Outline, bound: float, unit: float, coarse: float
) -> tuple[float, tuple[float, ...]] | None:
    """Find the grid that costs least, such that one block of bits spans all differences.

    Twice as many cells cost twice as many bits of the dealer's, and save some pieces.
    """
    reach = (bound + max(abs(outline.low), abs(outline.high))) * (1 + 2.0**-6)
    found = []
    for bits in range(6, ONE_BLOCK_BITS + 1):
        step = 2.0 ** (ceil(log2(reach)) + 1 - bits)
        edges = _fit_on_grid(outline, step, coarse) if step >= unit else None
        if edges is not None:
            found.append(((1 << bits) / 8 + 8 * (outline.degree + 1) * len(edges), step, edges))
    return min(found)[1:] if found else None


@cache
def _fit_on_grid(outline: Outline, step: float, coarse: float) -> tuple[float, ...] | None:
    """Place breakpoints on a grid, for pieces that hold one step below; None if that fails."""
    edges, high = [step * floor(outline.low / step)], outline.high + step
    while edges[-1] < high:
        left, width = edges[-1], step
        if _off(outline, left - step, left + width, coarse) > outline.error:
            return None
        while (
            left + width < high
            and _off(outline, left - step, left + width + step, coarse) <= outline.error
        ):
            width += step
        edges.append(left + width)
    return tuple(edges)


def _off(outline: Outline, low: float, high: float, coarse: float) -> float:
    """Measure how far a piece through Chebyshev points is from a function on an interval.

    Its highest coefficient may be off by ``coarse``, for which the lower ones make up in part.
    """
    function, degree = outline.inside, outline.degree
    probe, fitted = np.linspace(low, high, 33), fit_polynomial(function, low, high, degree)
    true = np.array([function(float(x)) for x in probe])
    rounding = coarse * ((high - low) / 2) ** degree / 2.0 ** (degree - 1)
    return float(np.abs(np.polynomial.polynomial.polyval(probe, fitted) - true).max()) + rounding


def fit_polynomial(function: Function, low: float, high: float, degree: int) -> np.ndarray:
    """Interpolate at the Chebyshev points of an interval."""
    middle, reach = (low + high) / 2, (high - low) / 2
    at = middle + reach * np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    return np.polynomial.polynomial.polyfit(at, [function(float(x)) for x in at], degree)


OUTLINES: dict[str, Outline] = {
    "relu": Outline(lambda x: x, 0.0, 0.0, (0.0,), (0.0, 1.0)),
    "abs": Outline(abs, 0.0, 0.0, (0.0, -1.0), (0.0, 1.0)),
    "step": Outline(lambda x: x, 0.0, 0.0, (0.0,), (1.0,)),
    "sigmoid": Outline(_sigmoid, -7.5, 7.5, (0.0,), (1.0,)),
    "tanh": Outline(np.tanh, -4.0, 4.0, (-1.0,), (1.0,)),
    "erf": Outline(erf, -2.75, 2.75, (-1.0,), (1.0,)),
    "gelu": Outline(_gelu, -3.75, 3.75, (0.0,), (0.0, 1.0)),
    "softplus": Outline(lambda x: max(x, 0.0) + log1p(exp(-abs(x))), -8.0, 8.0, (0.0,), (0.0, 1.0)),
    "silu": Outline(_silu, -10.0, 10.0, (0.0,), (0.0, 1.0)),
    # A softmax adds up many of these, and their errors with them.
    "exp": Outline(exp, -11.0, 0.0, (0.0,), (1.0,), error=3e-5, is_smooth=False),
}


CUT_FOR_MANY = {
    # Cubics need half as many breakpoints, and leave more digits to truncate.
    "exp": replace(OUTLINES["exp"], degree=3),
    "gelu": replace(OUTLINES["gelu"], is_smooth=False),
    "silu": replace(OUTLINES["silu"], is_smooth=False),
}
"""How to cut a function of so many numbers that the dealer's bytes cost more than rounds."""
CUBES = {name: replace(OUTLINES[name], degree=3) for name in ("gelu", "silu")}
"""How to cut a function whose argument can have any precision, as it is rescaled anyway."""
LEAST_BITS = 8
"""Fewer fraction bits than these of the highest coefficient would show."""
_FINE_BITS = 12
"""With as many nothing shows."""
_LEAST_CUBIC_BITS = 15
"""The same of cubics, whose pieces are wide."""
_FEWEST_BITS = 12
"""Of an argument: with fewer its own rounding would show."""


def argument_bits(name: str, frac_bits: int, bound: float) -> int:
    """Say how precise the argument of a function is to be that rescales it: as usual, or less."""
    if name not in CUBES:
        return frac_bits
    fitting = (_room(ELEMENTWISE[name].largest(bound)) - _LEAST_CUBIC_BITS) // CUBES[name].degree
    return min(frac_bits, fitting) if fitting >= _FEWEST_BITS else frac_bits


def _room(largest: float) -> int:
    """Return how many fraction bits values may have: above the point they need room."""
    return HEADROOM_BITS - 3 - max(0, ceil(log2(max(largest, 1.0))))


@cache
def curve_of(
    name: str, frac_bits: int, bound: float, *, is_many: bool = False, is_rescaled: bool = False
) -> PiecewiseCurve:
    """Cut a function into pieces for inputs of that precision and size."""
    outline = OUTLINES[name]
    largest = ELEMENTWISE[name].largest(bound)
    if outline.low == outline.high:
        return _exact(outline, frac_bits, largest)
    room = _room(largest)  # of which the highest coefficients need some
    other = CUT_FOR_MANY.get(name, outline) if is_many else outline
    if is_rescaled and frac_bits == argument_bits(name, frac_bits, bound):
        other = CUBES.get(name, outline)
    if room - other.degree * frac_bits >= LEAST_BITS:
        outline = other
    # Cubics have wide pieces, and need all bits that there are.
    value_bits = room if outline.degree > 2 else min((outline.degree + 1) * frac_bits, room)
    if value_bits - outline.degree * frac_bits < LEAST_BITS:
        raise RangeError(
            f"{name} of values up to ±{bound:g} with {frac_bits} fraction bits does not fit a "
            "word; lower frac_bits or the bounds of the inputs"
        )
    return cut_outline(outline, frac_bits, bound, largest, value_bits)


@cache
def decay_curve(frac_bits: int, bound: float, value_bits: int) -> PiecewiseCurve:
    """Cut exp of numbers of at most zero on a grid; what lies just above zero is more than one.

    Values have so many fraction bits.
    """
    outline = replace(OUTLINES["exp"], degree=3, is_smooth=True)
    return cut_outline(outline, frac_bits, bound, 1.25, value_bits)


def cut_outline(
    outline: Outline, frac_bits: int, bound: float, largest: float, value_bits: int
) -> PiecewiseCurve:
    """Cut a function into pieces whose breakpoints lie on a grid, if one is fine enough."""
    # Of large bounds the squares keep few bits: their rounding counts as error. Cubics keep all.
    spare_bits = value_bits - outline.degree * frac_bits
    is_coarse = outline.degree < 3 and spare_bits < _FINE_BITS
    coarse = 2.0 ** (-spare_bits - 1) if is_coarse else 0.0
    unit = 2.0**-frac_bits
    gridded = _fit_on_some_grid(outline, bound, unit, coarse) if outline.is_smooth else None
    step, edges = gridded or (0.0, fit_edges(outline, coarse))
    breaks = tuple(round(edge * 2**frac_bits) for edge in edges)
    slack = (round(log2(step * 2**frac_bits)),) * len(breaks) if step else ()
    pieces = _pieces(outline, edges, step, frac_bits, value_bits)
    return PiecewiseCurve(breaks, pieces, value_bits, largest + 2.0**-8, slack)


@cache  # a model has many bounds, and few of them lie on another grid
def _pieces(
    outline: Outline, edges: tuple[float, ...], step: float, frac_bits: int, value_bits: int
) -> tuple[tuple[int, ...], ...]:
    """Fit a polynomial between every two breakpoints, each from one step below."""
    pieces = [_polynomial(outline.below, frac_bits, value_bits)]
    for low, high in pairwise(edges):
        # At 0, where many inputs lie, values are right to the last place.
        fit = fit_through_zero if low - step <= 0 < high else interpolate
        ends = low - step, high, frac_bits, value_bits
        pieces.append(fit(outline.inside, *ends, degree=outline.degree))
    return (*pieces, _polynomial(outline.above, frac_bits, value_bits))


def _exact(outline: Outline, frac_bits: int, largest: float) -> PiecewiseCurve:
    """Make a curve of whole coefficients, whose values keep the precision of the input."""
    pieces = tuple(
        tuple(round(a * 2 ** (frac_bits * (j == 0))) for j, a in enumerate(side))
        for side in (outline.below, outline.above)
    )
    return PiecewiseCurve((round(outline.low * 2**frac_bits),), pieces, frac_bits, largest)


def _polynomial(coefficients: Sequence[float], frac_bits: int, value_bits: int) -> tuple[int, ...]:
    """Scale real coefficients so that all terms have the fraction bits of the value."""
    return tuple(
        round(float(a) * 2 ** (value_bits - j * frac_bits)) for j, a in enumerate(coefficients)
    )


def interpolate(
    function: Function,
    low: float,
    high: float,
    frac_bits: int,
    value_bits: int,
    *,
    degree: int = 2,
) -> tuple[int, ...]:
    """Interpolate at Chebyshev points, in powers of the distance from a centre of the ring."""
    centre = round((low + high) / 2 * 2**frac_bits)
    middle, reach = centre / 2**frac_bits, (high - low) / 2
    at = middle + reach * np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    values, found = np.array([function(float(x)) for x in at]), list[int]()
    for power in range(degree, -1, -1):  # lower ones make up for the rounding of higher ones
        highest = np.polynomial.polynomial.polyfit(at - middle, values, power)[power]
        scale = 2.0 ** (value_bits - power * frac_bits)
        found.append(round(float(highest) * scale))
        values = values - found[-1] / scale * (at - middle) ** power
    return around(centre, found[::-1])


def fit_through_zero(
    function: Function,
    low: float,
    high: float,
    frac_bits: int,
    value_bits: int,
    *,
    degree: int,
) -> tuple[int, ...]:
    """Find the polynomial that is off least on an interval among those that are right at 0.

    Least squares, whose weights grow where it is off most (Lawson's iteration).
    """
    at = (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (np.arange(64) + 0.5) / 64)
    wanted = np.array([function(float(x)) for x in at]) - function(0.0)
    powers, weights = np.stack([at**i for i in range(1, degree + 1)], axis=1), np.full(64, 1 / 64)
    for _ in range(50):
        root = np.sqrt(weights)
        found = np.linalg.lstsq(powers * root[:, None], wanted * root, rcond=None)[0]
        weights *= np.abs(powers @ found - wanted)
        weights /= weights.sum()
    return _polynomial((function(0.0), *found.tolist()), frac_bits, value_bits)


def powers_of_two(
    frac_bits: int, bound: float, exponents: Sequence[Callable[[int], float]]
) -> tuple[PiecewiseCurve, ...]:
    """Make step functions of the binary exponent k of x, 2^k <= x < 2^(k+1).

    Below the least k they stay at its value, but for the first where the bound is wide: that is
    zero, as a large negative number times 2^-k would leave the word.

    Args:
        frac_bits: of the input.
        bound: of the input.
        exponents: each gives the value of one curve for an exponent k.
    """
    steps = range(max(round(log2(SMALLEST)), -frac_bits), ceil(log2(max(bound, 2.0))))
    value_bits = exponent_bits(frac_bits, bound)
    is_wide = is_wide_range(frac_bits, bound)
    breaks = tuple(round(2.0 ** (k + frac_bits)) for k in (steps if is_wide else steps[1:]))
    curves = []
    for number, value in enumerate(exponents):
        values = [value(k) for k in steps]
        if is_wide:
            values.insert(0, values[0] if number else 0.0)
        pieces = tuple((round(v * 2**value_bits),) for v in values)
        curves.append(PiecewiseCurve(breaks, pieces, value_bits, max(abs(v) for v in values)))
    return tuple(curves)


def exponent_bits(frac_bits: int, bound: float) -> int:
    """Say how many fraction bits functions of an exponent get: as usual, or more for large numbers.

    2^-k is exact with them, and 2^(-k/2) right to one part in 2^13.
    """
    if not is_wide_range(frac_bits, bound):
        return frac_bits
    highest = ceil(log2(max(bound, 2.0)))
    return max(frac_bits, highest - 1, ceil(highest / 2) + 12)


def is_wide_range(frac_bits: int, bound: float) -> bool:
    """Tell whether 2^-k has too few fraction bits up to a bound, or its product too little room."""
    highest = ceil(log2(max(bound, 2.0)))
    return highest > frac_bits or highest + 2 * frac_bits - log2(SMALLEST) > HEADROOM_BITS - 1


@cache
def smooth(name: str, frac_bits: int) -> PiecewiseCurve:
    """Cut a function of a normalised argument into pieces; it is constant outside its interval."""
    function, low, high, count = NORMALISED[name]
    value_bits = min(3 * frac_bits, HEADROOM_BITS - 4)
    edges = tuple(float(edge) for edge in np.linspace(low, high, count + 1))
    pieces = [_polynomial((function(low),), frac_bits, value_bits)]
    pieces += [
        interpolate(function, left, right, frac_bits, value_bits) for left, right in pairwise(edges)
    ]
    pieces.append(_polynomial((function(high),), frac_bits, value_bits))
    breaks = tuple(round(edge * 2**frac_bits) for edge in edges)
    return PiecewiseCurve(breaks, tuple(pieces), value_bits, 1.25)


NORMALISED: dict[str, tuple[Function, float, float, int]] = {
    "reciprocal": (lambda y: 1 / y, 1.0, 2.0, 12),
    "rsqrt": (lambda y: 1 / sqrt(y), 1.0, 2.0, 8),
    "log": (log, 1.0, 2.0, 10),
}
"""Functions of a number between 1 and 2: the function, its interval and the number of pieces."""
