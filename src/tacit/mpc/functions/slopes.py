"""Derivatives that are cheaper as piecewise polynomials of their own than made of functions."""

from functools import cache
from itertools import pairwise
from math import erf, exp, pi, sqrt

import numpy as np

Pieces = tuple[tuple[float, ...], tuple[tuple[float, ...], ...]]
REACH = 4.0
"""Beyond, the slope of a GELU is within 6e-4 of 0 or 1."""
ERROR = 7e-4
"""How far a parabola may be off, about as much as the GELU of `sealed` itself."""


@cache
def gelu_slope() -> Pieces:
    """Return breakpoints and parabolas of the derivative Φ(x) + x·φ(x) of a GELU."""
    edges = [-REACH]
    while edges[-1] < REACH:
        width = REACH - edges[-1]
        while _off(edges[-1], edges[-1] + width) > ERROR:
            width *= 0.97
        edges.append(edges[-1] + width)
    inner = [tuple(_parabola(low, high).tolist()) for low, high in pairwise(edges)]
    return tuple(edges), ((0.0,), *inner, (1.0,))


def _parabola(low: float, high: float) -> np.ndarray:
    """Fit the slope at Chebyshev points."""
    at = (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * np.array([1, 3, 5]) / 6)
    return np.polynomial.polynomial.polyfit(at, _slope(at), 2)


def _off(low: float, high: float) -> float:
    at = np.linspace(low, high, 33)
    found = np.polynomial.polynomial.polyval(at, _parabola(low, high))
    return float(np.abs(found - _slope(at)).max())


def _slope(x: np.ndarray) -> np.ndarray:
    values = [(1 + erf(a / sqrt(2))) / 2 + a * exp(-a * a / 2) / sqrt(2 * pi) for a in x.tolist()]
    return np.array(values)
