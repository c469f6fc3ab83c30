"""Compiled: from the floats of a box to the leaves at its center, and to cells where they count.

Trees are compared with the box by their thresholds: most boxes are decided by what that shows, and
what a cell is need not be known.
"""

from typing import Any

import numpy as np

from tacit.verify.glance import ONE, THREE, TWO
from tacit.verify.jit import inlined
from tacit.verify.lanes import FEATURE_BITS, WIDTH

FEATURE, BITS = np.uint64((1 << FEATURE_BITS) - 1), np.uint64(FEATURE_BITS)
SPARSE = 4
"""How many features there are at least for each that is asked for, when only those are rounded."""


@inlined
def round_key(value: float, is_single: bool) -> float:
    """Round a float as the library does before it compares it."""
    if not is_single:
        return value
    largest = np.float64(np.finfo(np.float32).max)
    return min(max(np.float64(np.float32(value)), -largest), largest)


@inlined
def hold_keys(index: Any, boxes: Any, i: int, g: Any) -> bool:
    """Round a box and its center as the library does; say whether the center lies in the box.

    A center that is no number does not.
    """
    low, center, high = boxes.low[i], boxes.center[i], boxes.high[i]
    key_low, key_at, key_high, is_single = g.key_low, g.key_at, g.key_high, boxes.is_single
    outside = 0
    if index.asked.size * SPARSE < center.size:
        for f in index.asked:
            key_low[f], key_high[f] = round_key(low[f], is_single), round_key(high[f], is_single)
            key_at[f] = round_key(center[f], is_single)
            outside += not (low[f] <= center[f] <= high[f])
        return outside == 0
    # Array by array, in plain loops: they become vector instructions.
    if is_single:
        for f in range(center.size):
            key_low[f] = round_key(low[f], True)
        for f in range(center.size):
            key_high[f] = round_key(high[f], True)
        for f in range(center.size):
            key_at[f] = round_key(center[f], True)
    else:
        for f in range(center.size):
            key_low[f], key_at[f], key_high[f] = low[f], center[f], high[f]
    for f in range(center.size):
        outside += not ((low[f] <= center[f]) & (center[f] <= high[f]))
    return outside == 0


@inlined
def stride(lanes: Any, g: Any) -> Any:
    """Find the leaf of each tree at a center in the box, and the ways that are open beside it.

    Returns:
        how many trees are undecided, as `look` does.
    """
    entry, steps, blocks = lanes.entry, lanes.steps, lanes.entry.size // WIDTH
    room, count = np.uint64(g.pending.size // entry.size), np.uint64(0)
    for block in range(blocks):
        at = np.uint64(WIDTH * block)
        a, b, c, d = entry[at], entry[at + ONE], entry[at + TWO], entry[at + THREE]
        way_a = at * room
        way_b = way_a + room
        way_c = way_b + room
        way_d = way_c + room
        for _ in range(steps[block]):
            a, way_a = _step(lanes, g, a, way_a)
            b, way_b = _step(lanes, g, b, way_b)
            c, way_c = _step(lanes, g, c, way_c)
            d, way_d = _step(lanes, g, d, way_d)
        count = _arrive(lanes, g, at, a, way_a, room, count)
        count = _arrive(lanes, g, at + ONE, b, way_b, room, count)
        count = _arrive(lanes, g, at + TWO, c, way_c, room, count)
        count = _arrive(lanes, g, at + THREE, d, way_d, room, count)
    for rest in range(WIDTH * blocks, entry.size):
        at = np.uint64(rest)
        a, way_a = entry[at], at * room
        for _ in range(steps[rest - (WIDTH - 1) * blocks]):
            a, way_a = _step(lanes, g, a, way_a)
        count = _arrive(lanes, g, at, a, way_a, room, count)
    _list_ways(lanes, g, np.int64(count))
    return np.int64(count)


@inlined
def _step(lanes: Any, g: Any, place: Any, way: Any) -> Any:
    """Go from a node to its child; note the other one if the box goes there, too."""
    limit, word = lanes.limit[place], lanes.turn[place + ONE]
    f, left = word & FEATURE, word >> BITS
    to = left + (np.uint64(g.key_at[f] > limit) << ONE)
    # Written in any case and counted only if the box goes there: no branch to mistake.
    g.pending[way] = left + left + TWO - to
    return to, way + (np.uint64(g.key_low[f] > limit) ^ np.uint64(g.key_high[f] > limit))


@inlined
def _arrive(lanes: Any, g: Any, at: Any, place: Any, way: Any, room: Any, count: Any) -> Any:
    """Note the leaf of a tree, and where its open ways lie if there are any."""
    tree = lanes.tree[at]
    g.reached[tree] = lanes.node[place >> ONE]
    g.undecided[count], g.pending_start[tree], g.pending_end[tree] = tree, at * room, way
    return count + np.uint64(way > at * room)


@inlined
def _list_ways(lanes: Any, g: Any, count: Any) -> None:
    """Put open ways together, named by the places that `Paths` uses."""
    ways = np.uint64(0)
    for k in range(count):
        tree = np.uint64(g.undecided[k])
        first, last = g.pending_start[tree], g.pending_end[tree]
        g.pending_start[tree] = ways
        for way in range(first, last):
            g.pending[ways] = lanes.node[np.uint64(g.pending[way]) >> ONE] << TWO
            ways += ONE
        g.pending_end[tree] = ways


@inlined
def locate(index: Any, g: Any, cell_low: Any, cell_high: Any) -> None:
    """Find the cells of a box and of its center, and the features with several, from the keys."""
    planes, at = index.planes, g.at
    _search_cells(index, g, cell_low, cell_high)
    _count_cells(planes, g, cell_low, cell_high)
    count = 0
    for f in index.asked:
        g.free[count] = f
        count += (cell_low[f] < cell_high[f]) | (at[f] != cell_low[f])
    g.free[at.size] = count


@inlined
def _search_cells(index: Any, g: Any, cell_low: Any, cell_high: Any) -> None:
    """Find the cells of features with many cuts."""
    cuts, start = index.cuts, index.cut_start
    for k in range(index.planes.searched):
        f = index.planes.feature[k]
        first, size = np.uint64(start[f]), np.uint64(start[f + 1] - start[f])
        low, center, high = g.key_low[f], g.key_at[f], g.key_high[f]
        # Three searches at a time, without a branch that depends on the row.
        below, inside, above = first, first, first
        while size > 1:
            half = size >> ONE
            below += half * np.uint64(cuts[below + half - ONE] < low)
            inside += half * np.uint64(cuts[inside + half - ONE] < center)
            above += half * np.uint64(cuts[above + half - ONE] < high)
            size -= half
        below += np.uint64(cuts[below] < low)
        inside += np.uint64(cuts[inside] < center)
        above += np.uint64(cuts[above] < high)
        cell_low[f], g.at[f], cell_high[f] = below - first, inside - first, above - first


@inlined
def _count_cells(planes: Any, g: Any, cell_low: Any, cell_high: Any) -> None:
    """Count the cuts below the ends of a box, many features at a time."""
    feature = planes.feature[planes.searched :]
    for k in range(feature.size):
        f = np.uint64(feature[k])
        g.few[0, k], g.few[1, k], g.few[2, k] = g.key_low[f], g.key_at[f], g.key_high[f]
        g.counts[0, k], g.counts[1, k], g.counts[2, k] = 0, 0, 0
    for end in range(3):
        keys, counts, first = g.few[end], g.counts[end], 0
        for size in planes.size:
            plane = planes.cut[first : first + size]
            for k in range(size):
                counts[k] += plane[k] < keys[k]
            first += size
    for k in range(feature.size):
        f = np.uint64(feature[k])
        cell_low[f], g.at[f], cell_high[f] = g.counts[0, k], g.counts[1, k], g.counts[2, k]
