"""Compiled: a search by halving, for boxes that leave few features free.

Next to no problem is built for it: of each leaf remain its excess over the least leaf of its tree
and its range of cells in the four widest features, which `fields` searches. A feature that is left
out only makes leaves reach further, so what is closed stands. Where a part can be narrowed no
further and is still open, the library's arithmetic is asked about a point of it.
"""

from typing import Any

import numpy as np

from tacit.verify.fields import (
    BITS,
    CLOSED,
    FIELD,
    FIELDS,
    NONE,
    STUCK,
    UNITS,
    WIDE,
    close,
    put,
)
from tacit.verify.glance import FAR, FELL, HELD, ONE, OPEN, SOME_FELL, THREE, TWO, weigh
from tacit.verify.jit import bare, inlined
from tacit.verify.leaf import NOBODY
from tacit.verify.paths import END
from tacit.verify.rush import FALLEN, aim, probe
from tacit.verify.slate import LANE, MOST_LEAVES, MOST_ROWS, lay_slate

MOST_FREE = 32
"""Features that a box may leave free."""
MOST_PARTS, FEW_PARTS = 384, 24

CARD = np.uint64(4)
FIRST, FINAL, PLACE = (np.uint64(word) for word in range(3))
"""Words of a feature's card: its first and last cell in the box; where its field is."""
SHIFT, CHOSEN = np.uint64(63), np.uint64(6)
"""Of such a place: by how many bits, and the bit that tells whether there is a field."""
NODE, TREE = np.uint64(0xFFFFFFFF), np.uint64(32)


@inlined
def halve_sides(
    index: Any, sides: Any, g: Any, n_open: int, cell_low: Any, cell_high: Any, most: int
) -> int:
    """Decide the sides that are first in `g.order`; return how many stay open, first there.

    They are taken one by one, each in at most so many parts and in MOST_PARTS. If one falls, that
    is SOME_FELL.
    """
    left = 0
    for i in range(n_open):
        side = g.order[i]
        g.order[left] = side
        parts = min(most, MOST_PARTS)
        outcome = halve_side(index, sides, side, g, cell_low, cell_high, parts)
        if outcome == FELL:
            return SOME_FELL
        left += outcome == OPEN
    return left


@bare
def halve_side(
    index: Any, sides: Any, side: int, g: Any, cell_low: Any, cell_high: Any, most: Any
) -> int:
    """Decide a side that the plain bound has left open, in at most so many parts.

    Leaves must pull one number, and all trees belong to one group.

    Returns:
        HELD; or FELL, and the cells are narrowed; or OPEN.
    """
    paths, n_free = index.paths, g.free[g.at.size]
    if n_free > MOST_FREE or g.open_start[1] > MOST_LEAVES:
        return OPEN
    plus, minus = sides.plus[side], sides.minus[side]
    column, barrier = np.uint64(plus != 0), sides.barrier[side]
    barrier -= weigh(index.base_units, plus, minus)
    excess = (g.sums[0] if column == 0 else -g.sums[0]) - barrier
    undecided = g.undecided[: g.open_start[1]]
    slate = lay_slate(index, g.slate)
    chosen, widths = _choose(slate, g.free[:n_free], cell_low, cell_high)
    count, gap = _list_leaves(paths, g, undecided, slate, column)
    if count == 0:
        return OPEN
    gap -= excess
    if gap <= 0:
        return HELD
    n_rows, goal = _sort_leaves(paths, g, undecided, slate, count, gap, column)
    if n_rows == 0:
        return OPEN
    step, ceiling, floor = close(slate, n_rows, goal, widths, most)
    if step == CLOSED:
        return HELD
    if step == STUCK:
        aim(index, g, column, cell_low, cell_high)
        for s in range(chosen.size):
            f, by = chosen[s] // CARD, BITS * np.uint64(s)
            first = cell_low[f] + np.int64(((widths - floor) >> by) & FIELD)
            last = cell_low[f] + np.int64((ceiling >> by) & FIELD)
            g.point[f] = min(max(g.at[f], first), last)
        there = probe(index, sides, g, 0, NOBODY, np.int64(column), excess, cell_low, cell_high)
        if there == FALLEN:
            return FELL
    return OPEN


@inlined
def _choose(slate: Any, free: Any, cell_low: Any, cell_high: Any) -> Any:
    """Choose the features of which the box holds most cells; write a card for each feature.

    Returns:
        where the cards of features that are chosen begin; and how many cells beyond the first the
        box holds, field by field.
    """
    card, chosen, count = slate.card, slate.chosen, 0
    for f in range(cell_low.size):
        at = CARD * np.uint64(f)
        card[at + FIRST], card[at + FINAL], card[at + PLACE] = cell_low[f], cell_high[f], NONE
    for f in free:
        width, to = cell_high[f] - cell_low[f], count
        if width >= FIELD:
            continue
        while to > 0 and _width(card, chosen[to - 1]) < width:
            if to < WIDE:
                chosen[to] = chosen[to - 1]
            to -= 1
        if to < WIDE:
            chosen[to] = CARD * np.uint64(f)
            count = min(count + 1, WIDE)
    widths = NONE
    for s in range(count):
        at, by = chosen[s], BITS * np.uint64(s)
        card[at + PLACE] = by | (ONE << CHOSEN)
        widths |= _width(card, at) << by
    return chosen[:count], widths


@inlined
def _width(card: Any, at: Any) -> Any:
    return card[at + FINAL] - card[at + FIRST]


@inlined
def _list_leaves(paths: Any, g: Any, undecided: Any, slate: Any, column: Any) -> Any:
    """List the leaves that a box can reach, of all trees by turns; note the least of each tree.

    Three words for each leaf: by how many cells it starts above the box and by how many it ends
    below it, in the features that are chosen; and its tree and node. Nodes wait in a queue for all
    trees: what one must wait for, another need not.

    Returns:
        how many words there are, 0 if too many; and what trees could lose against the center.
    """
    walk, ends, card, leaves, queue = paths.walk, paths.ends, slate.card, slate.leaves, slate.queue
    n, head, tail = NONE, NONE, NONE
    for k in range(undecided.size):
        # Above the first way that is open, the whole box goes one way.
        way = np.uint64(g.pending[np.uint64(g.pending_start[undecided[k]])])
        queue[tail] = (np.uint64(k) << TREE) | np.uint64(paths.rise[way])
        queue[tail + ONE], queue[tail + TWO] = NONE, NONE
        tail += THREE
    most_waiting, most_leaves = np.uint64(queue.size) - TWO * THREE, np.uint64(leaves.size)
    while head < tail:
        word, above, below = queue[head], queue[head + ONE], queue[head + TWO]
        head += THREE
        node = word & NODE
        at, rank = CARD * np.uint64(walk[node]), np.uint64(walk[node + ONE])
        if rank == END:
            if n == most_leaves:
                return NONE, 0
            leaves[n], leaves[n + ONE], leaves[n + TWO] = above, below, word
            n += THREE
            continue
        if tail > most_waiting:
            return NONE, 0
        first, final, place = card[at + FIRST], card[at + FINAL], card[at + PLACE]
        by, mask = place & SHIFT, FIELD * (place >> CHOSEN)
        left = np.uint64(first + ((above >> by) & mask) <= rank)
        right = np.uint64(final - ((below >> by) & mask) > rank)
        # Both children are written, and counted only if the box goes there: no branch to mistake.
        field = (mask * (left & right)) << by
        queue[tail], queue[tail + ONE] = (word - node) | np.uint64(walk[node + TWO]), above
        queue[tail + TWO] = put(below, (final - rank) << by, field)
        tail += THREE * left
        queue[tail], queue[tail + TWO] = (word - node) | np.uint64(walk[node + THREE]), below
        queue[tail + ONE] = put(above, (rank + ONE - first) << by, field)
        tail += THREE * right
    return n, _find_least(ends, g, undecided, slate, n, column)


@inlined
def _find_least(ends: Any, g: Any, undecided: Any, slate: Any, count: Any, column: Any) -> Any:
    """Count the leaves of each tree and find its least; return what trees could lose in all."""
    leaves, total = slate.leaves, 0
    for k in range(undecided.size):
        g.least[undecided[k]], slate.count[k] = FAR, NONE
    for at in range(TWO, count, THREE):
        k = leaves[at] >> TREE
        tree, pull = np.uint64(undecided[k]), ends[((leaves[at] & NODE) >> ONE) + column]
        slate.count[k] += ONE
        g.least[tree] = min(g.least[tree], pull)
    for k in range(undecided.size):
        tree = undecided[k]
        total += ends[(np.uint64(g.reached[tree]) << ONE) + column] - g.least[tree]
    return total


@inlined
def _make_rows(slate: Any, n_trees: int) -> Any:
    """Decide where leaves will lie: one of every tree in the first row, and so on.

    Trees with most leaves come first in a row, so that it has no gaps. Rows are filled up with
    leaves that count for nothing.

    Returns:
        how many rows there are; 0 if too many.
    """
    count, rank, lanes, start = slate.count, slate.rank, slate.lanes, slate.start
    n_rows = NONE
    for k in range(n_trees):
        n_rows = max(n_rows, count[k])
    if n_rows > MOST_ROWS:
        return 0
    for row in range(n_rows + ONE):
        lanes[row] = NONE
    for k in range(n_trees):
        lanes[count[k]] += ONE
    # Of trees with so many leaves, the first comes after all that have more.
    before = NONE
    for back in range(n_rows):
        size = n_rows - np.uint64(back)
        start[size], before = before, before + lanes[size]
    for k in range(n_trees):
        rank[k] = start[count[k]]
        start[count[k]] += ONE
    # Now `start` tells how many trees have at least so many leaves.
    at = NONE
    for row in range(n_rows):
        size = start[np.uint64(row) + ONE]
        lanes[row] = (size + np.uint64(LANE - 1)) // np.uint64(LANE)
        slate.start[row] = at
        for slot in range(at + size, at + np.uint64(LANE) * lanes[row]):
            is_first = row == 0
            slate.low[slot] = NONE if is_first else FIELDS
            slate.high[slot] = NONE
            slate.excess[slot] = NONE if is_first else FIELDS
        at += np.uint64(LANE) * lanes[row]
    return np.int64(n_rows)


@inlined
def _sort_leaves(
    paths: Any, g: Any, undecided: Any, slate: Any, count: Any, gap: int, column: Any
) -> Any:
    """Put leaves into rows, with the excess over the least of their tree in place of the node.

    Every excess is rounded down to 15 bits.

    Returns:
        how many rows there are, 0 if too many; and the gap, rounded up.
    """
    leaves, goal, by = slate.leaves, np.uint64(gap), NONE
    while goal >> by >= FIELD:
        by += ONE
    goal = (goal + (ONE << by) - ONE) >> by
    n_rows = _make_rows(slate, undecided.size)
    if n_rows == 0:
        return n_rows, goal
    for at in range(NONE, count, THREE):
        word = leaves[at + TWO]
        k = word >> TREE
        pull = paths.ends[((word & NODE) >> ONE) + column]
        excess = np.uint64(pull - g.least[np.uint64(undecided[k])]) >> by
        slate.count[k] -= ONE
        to = slate.start[slate.count[k]] + slate.rank[k]
        slate.low[to], slate.high[to] = leaves[at], leaves[at + ONE]
        slate.excess[to] = min(excess, goal) * UNITS
    return n_rows, goal
