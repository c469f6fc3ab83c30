"""Compiled: directed rounding between real numbers, floats, keys and intervals.

A claim speaks of real numbers; every end of a box is rounded inwards and every radius upwards, so
that nothing is said about a float that the claim does not cover.
"""

import numpy as np

from tacit.jit import bare, compiled
from tacit.verify.kernels.tables import Bools, Floats, Ints

FITS = -1
"""In place of a place that is refused."""


@bare
def fill_box(
    x: Floats,
    below: Floats,
    above: Floats,
    floor: Floats,
    roof: Floats,
    limit: float,
    low: Floats,
    high: Floats,
) -> int:
    """Write the ends of boxes; return FITS, or a place that is outside what it may be."""
    largest = np.finfo(np.float64).max
    for row in range(x.shape[0]):
        for i in range(x.shape[1]):
            value = x[row, i]
            if not (abs(value) <= limit and floor[i] <= value <= roof[i]):
                return int(row * x.shape[1] + i)
            low[row, i] = max(-add_down(-value, below[i]), floor[i], -largest)
            high[row, i] = min(add_down(value, above[i]), roof[i], largest)
    return FITS


@bare
def fill_intervals(
    cuts: Floats,
    start: Ints,
    low: Floats,
    high: Floats,
    is_single: bool,
    interval_low: Ints,
    interval_high: Ints,
) -> None:
    """Write the intervals that hold the keys of the two ends of a box."""
    for f in range(low.size):
        first, last = start[f], start[f + 1]
        interval_low[f], interval_high[f] = 0, 0
        if first < last:
            interval = find_interval(cuts, first, last, round_key(low[f], is_single))
            interval_low[f], key = interval, round_key(high[f], is_single)
            while first + interval < last and cuts[first + interval] < key:
                interval += 1
            interval_high[f] = interval


@bare
def add_down(x: float, y: float) -> float:
    """Compute x + y rounded towards minus infinity."""
    total = x + y
    # Knuth's two-sum: the exact sum is total + rest; rest is NaN where total is infinite.
    part = total - x
    rest = (x - (total - part)) + (y - part)
    return np.nextafter(total, -np.inf) if rest < 0 else total


@bare
def move(
    cuts: Floats,
    start: Ints,
    keys: Floats,
    low: Ints,
    high: Ints,
    is_single: bool,
    whole: Bools,
    x: Floats,
) -> None:
    """Move an input, in place, into the intervals of a box."""
    for f in range(x.size):
        part = cuts[start[f] : start[f + 1]]
        x[f] = move_one(part, x[f], keys[f], low[f], high[f], is_single, whole[f])


@bare
def move_one(
    cuts: Floats, x: float, key: float, low: int, high: int, is_single: bool, is_whole: bool
) -> float:
    """Move one feature, of which these are the cuts, into some of its intervals."""
    if low > 0 and key <= cuts[low - 1]:
        return above(cuts[low - 1], is_single, is_whole)
    if high < cuts.size and key > cuts[high]:
        return at_most(cuts[high], is_single, is_whole)
    return x


@bare
def above(cut: float, is_single: bool, is_whole: bool) -> float:
    """Find the least input whose key exceeds a cut."""
    if is_whole:
        return float(np.floor(cut) + 1.0)
    if not is_single:
        return float(np.nextafter(cut, np.inf))
    upper = np.nextafter(np.float32(cut), np.float32(np.inf))
    middle = 0.5 * cut + 0.5 * np.float64(upper)
    return middle if np.float32(middle) == upper else np.nextafter(middle, np.inf)


@bare
def at_most(cut: float, is_single: bool, is_whole: bool) -> float:
    """Find the greatest input whose key does not exceed a cut."""
    if is_whole:
        return float(np.floor(cut))
    if not is_single:
        return cut
    upper = np.nextafter(np.float32(cut), np.float32(np.inf))
    middle = 0.5 * cut + 0.5 * np.float64(upper)
    return middle if np.float32(middle) == np.float32(cut) else np.nextafter(middle, -np.inf)


@compiled
def max_distance(x: Floats, y: Floats) -> float:
    """Compute the largest difference of two inputs, rounded up."""
    most = 0.0
    for i in range(x.size):
        most = max(most, subtract_up(max(x[i], y[i]), min(x[i], y[i])))
    return most


@compiled
def subtract_up(x: float, y: float) -> float:
    """Compute x − y rounded towards plus infinity."""
    total = x - y
    part = total - x
    rest = (x - (total - part)) + (-y - part)
    return np.nextafter(total, np.inf) if rest > 0 else total


@compiled
def fill_radii(
    cuts: Floats,
    start: Ints,
    x: Floats,
    low: Floats,
    high: Floats,
    is_single: bool,
    whole: Bools,
    out: Floats,
) -> None:
    """Write, per cut, the least radius at which a box reaches its other objective."""
    for f in range(x.size):
        key = np.float64(np.float32(x[f])) if is_single else x[f]
        for i in range(start[f], start[f + 1]):
            if key <= cuts[i]:
                other = above(cuts[i], is_single, whole[f])
                out[i] = subtract_up(other, x[f]) if other <= high[f] else np.inf
            else:
                other = at_most(cuts[i], is_single, whole[f])
                out[i] = subtract_up(x[f], other) if other >= low[f] else np.inf


@bare
def find_interval(cuts: Floats, first: int, last: int, key: float) -> int:
    """Count the cuts of a feature that are below a key, without a branch to mistake."""
    at, size = first, last - first
    while size > 1:
        half = size >> 1
        at += half * (cuts[at + half - 1] < key)
        size -= half
    return int(at - first + (cuts[at] < key))


@bare
def round_key(value: float, is_single: bool) -> float:
    """Round a float as the library does before it compares it."""
    if not is_single:
        return value
    largest = np.float64(np.finfo(np.float32).max)
    return min(max(np.float64(np.float32(value)), -largest), largest)
