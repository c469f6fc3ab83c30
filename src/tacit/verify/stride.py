"""Compiled: from the floats of a box to the leaves at its center, and to cells where they count.

Trees are compared with the box by their thresholds: most boxes are decided by what that shows, and
what a cell is need not be known.
"""

from typing import Any

import numpy as np

from tacit.verify.glance import ONE, THREE, TWO
from tacit.verify.jit import inlined
from tacit.verify.lanes import FEATURE_BITS, FEW_FEATURES, WIDTH

FEATURE, BITS = np.uint64((1 << FEATURE_BITS) - 1), np.uint64(FEATURE_BITS)
FOUR, FIVE, SIX, SEVEN = np.uint64(4), np.uint64(5), np.uint64(6), np.uint64(7)
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
def stride(index: Any, g: Any) -> Any:
    """Find the leaf of each tree at a center in the box, and the ways that are open beside it.

    Where all trees pull one number, what they pull at the center is summed as well.

    Returns:
        how many trees are undecided, as `look` does.
    """
    if index.asked.size <= FEW_FEATURES:
        count = _walk_near(index, g, _reach(index.asked, g))
    else:
        count = _walk_all(index, g, 0.0)
    return _list_ways(index.lanes, g, count)


@inlined
def is_summed(index: Any) -> bool:
    """Say whether `stride` has summed what the trees pull at the center."""
    return (index.paths.ends.size > 0) & (index.paths.group_start.size == 2)  # type: ignore[no-any-return]


@inlined
def _reach(asked: Any, g: Any) -> float:
    """Find how far the box reaches from its center, in whatever feature."""
    most = 0.0
    for f in asked:
        above, below = g.key_high[f] - g.key_at[f], g.key_at[f] - g.key_low[f]
        # The difference of two infinities compares as less, and matters for no threshold.
        most = above if above > most else most
        most = below if below > most else most
    return most


@inlined
def _step(lanes: Any, g: Any, place: Any, way: Any, reach: float) -> Any:
    """Go from a node to its child; note the node if the box goes to the other one, too."""
    limit, word = lanes.limit[place], lanes.turn[place + ONE]
    f = word & FEATURE
    # Written in any case and counted only if the box goes there: no branch to mistake.
    g.pending[way] = place
    to = (word >> BITS) + (np.uint64(g.key_at[f] > limit) << ONE)
    return to, way + (np.uint64(g.key_low[f] > limit) ^ np.uint64(g.key_high[f] > limit))


@inlined
def _step_near(lanes: Any, g: Any, place: Any, way: Any, reach: float) -> Any:
    """Go from a node to its child; note the node if its threshold is near: quicker to tell.

    Differences are rounded, but not in another order than they have.
    """
    limit, word = lanes.limit[place], lanes.turn[place + ONE]
    key = g.key_at[word & FEATURE]
    g.pending[way] = place
    to = (word >> BITS) + (np.uint64(key > limit) << ONE)
    return to, way + np.uint64(abs(key - limit) <= reach)


def _make_walk(step: Any) -> Any:
    """Make a walk from the step that it takes, several trees at a time."""

    @inlined
    def walk(index: Any, g: Any, reach: float) -> Any:
        lanes = index.lanes
        entry, steps, blocks = lanes.entry, lanes.steps, lanes.entry.size // WIDTH
        room, count, total = np.uint64(g.pending.size // entry.size), np.uint64(0), 0
        for block in range(blocks):
            at = np.uint64(WIDTH * block)
            a, b, c, d = entry[at], entry[at + ONE], entry[at + TWO], entry[at + THREE]
            e, f, h, i = entry[at + FOUR], entry[at + FIVE], entry[at + SIX], entry[at + SEVEN]
            way_a = at * room
            way_b = way_a + room
            way_c = way_b + room
            way_d = way_c + room
            way_e = way_d + room
            way_f = way_e + room
            way_h = way_f + room
            way_i = way_h + room
            for _ in range(steps[block]):
                a, way_a = step(lanes, g, a, way_a, reach)
                b, way_b = step(lanes, g, b, way_b, reach)
                c, way_c = step(lanes, g, c, way_c, reach)
                d, way_d = step(lanes, g, d, way_d, reach)
                e, way_e = step(lanes, g, e, way_e, reach)
                f, way_f = step(lanes, g, f, way_f, reach)
                h, way_h = step(lanes, g, h, way_h, reach)
                i, way_i = step(lanes, g, i, way_i, reach)
            count, total = _arrive(index, g, at, a, way_a, room, count, total)
            count, total = _arrive(index, g, at + ONE, b, way_b, room, count, total)
            count, total = _arrive(index, g, at + TWO, c, way_c, room, count, total)
            count, total = _arrive(index, g, at + THREE, d, way_d, room, count, total)
            count, total = _arrive(index, g, at + FOUR, e, way_e, room, count, total)
            count, total = _arrive(index, g, at + FIVE, f, way_f, room, count, total)
            count, total = _arrive(index, g, at + SIX, h, way_h, room, count, total)
            count, total = _arrive(index, g, at + SEVEN, i, way_i, room, count, total)
        for rest in range(WIDTH * blocks, entry.size):
            at = np.uint64(rest)
            a, way_a = entry[at], at * room
            for _ in range(steps[rest - (WIDTH - 1) * blocks]):
                a, way_a = step(lanes, g, a, way_a, reach)
            count, total = _arrive(index, g, at, a, way_a, room, count, total)
        if is_summed(index):
            g.sums[0] = total
            for score in range(1, g.sums.size):
                g.sums[score] = 0
        return np.int64(count)

    return walk


_walk_all, _walk_near = _make_walk(_step), _make_walk(_step_near)


@inlined
def _arrive(
    index: Any, g: Any, at: Any, place: Any, way: Any, room: Any, count: Any, total: int
) -> Any:
    """Note the leaf of a tree, and where its open ways lie if there are any; add what it pulls."""
    tree, node = index.lanes.tree[at], index.lanes.node[place >> ONE]
    g.reached[tree] = node
    g.undecided[count], g.pending_start[tree], g.pending_end[tree] = tree, at * room, way
    if index.paths.ends.size > 0:
        total += index.paths.ends[np.uint64(node) << ONE]
    return count + np.uint64(way > at * room), total


@inlined
def _list_ways(lanes: Any, g: Any, count: Any) -> Any:
    """Put open ways together, named by the places that `Paths` uses; return of how many trees."""
    ways, undecided = np.uint64(0), np.int64(0)
    for k in range(count):
        tree = np.uint64(g.undecided[k])
        first, last, before = g.pending_start[tree], g.pending_end[tree], ways
        g.pending_start[tree] = ways
        for way in range(first, last):
            place = np.uint64(g.pending[way])
            limit, word = lanes.limit[place], lanes.turn[place + ONE]
            f = word & FEATURE
            other = (word >> BITS) + (np.uint64(g.key_at[f] <= limit) << ONE)
            g.pending[ways] = lanes.node[other >> ONE] << TWO
            ways += np.uint64(g.key_low[f] > limit) ^ np.uint64(g.key_high[f] > limit)
        g.pending_end[tree] = ways
        g.undecided[undecided] = tree
        undecided += np.int64(ways > before)
    return undecided


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
    for k in range(planes.size[0] if planes.size.size > 0 else 0):
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
