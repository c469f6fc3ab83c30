"""Compiled: directed rounding between real numbers, floats, keys and cells.

A claim speaks of real numbers; every end of a box is rounded inwards and every radius upwards, so
that nothing is said about a float that the claim does not cover.
"""

from typing import Any

import numpy as np

from tacit.verify.kernels.jit import bare, compiled

FITS = -1
"""In place of a place that is refused."""


@bare
def fill_box(
    x: Any, below: Any, above: Any, floor: Any, roof: Any, limit: float, low: Any, high: Any
) -> Any:
    """Write the ends of boxes; return FITS, or a place that is outside what it may be."""
    largest = np.finfo(np.float64).max
    for row in range(x.shape[0]):
        for i in range(x.shape[1]):
            value = x[row, i]
            if not (abs(value) <= limit and floor[i] <= value <= roof[i]):
                return row * x.shape[1] + i
            low[row, i] = max(-add_down(-value, below[i]), floor[i], -largest)
            high[row, i] = min(add_down(value, above[i]), roof[i], largest)
    return FITS


@bare
def fill_cells(
    cuts: Any, start: Any, low: Any, high: Any, is_single: bool, cell_low: Any, cell_high: Any
) -> None:
    """Write the cells that hold the keys of the two ends of a box."""
    for f in range(low.size):
        part = cuts[start[f] : start[f + 1]]
        cell_low[f], cell_high[f] = 0, 0
        if part.size:
            low_key, high_key = low[f], high[f]
            if is_single:
                largest = np.float64(np.finfo(np.float32).max)
                low_key = max(np.float64(np.float32(low_key)), -largest)
                high_key = min(np.float64(np.float32(high_key)), largest)
            cell = np.searchsorted(part, low_key)
            cell_low[f] = cell
            while cell < part.size and part[cell] < high_key:
                cell += 1
            cell_high[f] = cell


@bare
def add_down(x: float, y: float) -> Any:
    """Compute x + y rounded towards minus infinity."""
    total = x + y
    # Knuth's two-sum: the exact sum is total + rest; rest is NaN where total is infinite.
    part = total - x
    rest = (x - (total - part)) + (y - part)
    return np.nextafter(total, -np.inf) if rest < 0 else total


@bare
def move(
    cuts: Any, start: Any, keys: Any, low: Any, high: Any, is_single: bool, whole: Any, x: Any
) -> None:
    """Move an input, in place, into the cells of a box."""
    for f in range(x.size):
        part = cuts[start[f] : start[f + 1]]
        x[f] = move_one(part, x[f], keys[f], low[f], high[f], is_single, whole[f])


@bare
def move_one(
    cuts: Any, x: float, key: float, low: int, high: int, is_single: bool, is_whole: bool
) -> Any:
    """Move one feature, of which these are the cuts, into some of its cells."""
    if low > 0 and key <= cuts[low - 1]:
        return above(cuts[low - 1], is_single, is_whole)
    if high < cuts.size and key > cuts[high]:
        return at_most(cuts[high], is_single, is_whole)
    return x


@bare
def above(cut: float, is_single: bool, is_whole: bool) -> Any:
    """Find the least input whose key exceeds a cut."""
    if is_whole:
        return np.floor(cut) + 1.0
    if not is_single:
        return np.nextafter(cut, np.inf)
    upper = np.nextafter(np.float32(cut), np.float32(np.inf))
    middle = 0.5 * cut + 0.5 * np.float64(upper)
    return middle if np.float32(middle) == upper else np.nextafter(middle, np.inf)


@bare
def at_most(cut: float, is_single: bool, is_whole: bool) -> Any:
    """Find the greatest input whose key does not exceed a cut."""
    if is_whole:
        return np.floor(cut)
    if not is_single:
        return cut
    upper = np.nextafter(np.float32(cut), np.float32(np.inf))
    middle = 0.5 * cut + 0.5 * np.float64(upper)
    return middle if np.float32(middle) == np.float32(cut) else np.nextafter(middle, -np.inf)


@compiled
def max_distance(x: Any, y: Any) -> Any:
    """Compute the largest difference of two inputs, rounded up."""
    most = 0.0
    for i in range(x.size):
        most = max(most, subtract_up(max(x[i], y[i]), min(x[i], y[i])))
    return most


@compiled
def subtract_up(x: float, y: float) -> Any:
    """Compute x − y rounded towards plus infinity."""
    total = x - y
    part = total - x
    rest = (x - (total - part)) + (-y - part)
    return np.nextafter(total, np.inf) if rest > 0 else total


@compiled
def fill_radii(
    cuts: Any, start: Any, x: Any, low: Any, high: Any, is_single: bool, whole: Any, out: Any
) -> None:
    """Write, per cut, the least radius at which a box reaches its other side."""
    for f in range(x.size):
        key = np.float64(np.float32(x[f])) if is_single else x[f]
        for i in range(start[f], start[f + 1]):
            if key <= cuts[i]:
                other = above(cuts[i], is_single, whole[f])
                out[i] = subtract_up(other, x[f]) if other <= high[f] else np.inf
            else:
                other = at_most(cuts[i], is_single, whole[f])
                out[i] = subtract_up(x[f], other) if other >= low[f] else np.inf
