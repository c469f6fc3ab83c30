"""Compiled: bounds and an attack where every leaf pulls one number.

That is so with a single score, with two (their difference counts), and in boosting, where a tree
belongs to one class: a side then asks about the trees of two classes only. A group is bounded in
two steps: roughly, by the least leaf that any box would leave below the open ways, and only where
that does not suffice by the least leaf in the box.
"""

from typing import Any

import numpy as np

from tacit.verify.descent import slide
from tacit.verify.glance import (
    FAR,
    ONE,
    SOME_FELL,
    THREE,
    TWO,
    narrow,
    tally,
    tally_group,
    weigh,
)
from tacit.verify.jit import compiled, inlined
from tacit.verify.kernel import CHANGED, judge
from tacit.verify.paths import END

NOBODY = -1
FALLEN = -FAR
BANDS = 6
"""The attack takes trees by what they promise: a half of the most, a quarter, and so on."""


@compiled
def pull_sides(index: Any, sides: Any, g: Any, cell_low: Any, cell_high: Any) -> int:
    """Bound and attack side by side, the most endangered first.

    Returns:
        how many sides stay open, first in `g.order`; or SOME_FELL, and the cells are narrowed.
    """
    paths, n_open, is_begun, is_fine, head = index.paths, 0, False, False, 0
    _order_sides(paths, sides, g)
    for side in g.order:
        first, second, column = pair(paths, sides, side)
        barrier = sides.barrier[side] - weigh(index.base_units, sides.plus[side], sides.minus[side])
        if second == NOBODY or not is_begun:
            head, is_begun, is_fine = _bound_roughly(paths, g, first, column), True, False
        tail = 0 if second == NOBODY else _bound_roughly(paths, g, second, 1)
        if head + tail >= barrier:
            continue
        if not is_fine:
            # What several sides ask about is not left half done.
            enough = barrier if second == NOBODY else FAR
            head = _bound(paths, g, first, column, cell_low, cell_high, head, enough)
            is_fine = True
            if head + tail >= barrier:
                continue
        if second != NOBODY:
            tail = _bound(paths, g, second, 1, cell_low, cell_high, tail, barrier - head)
            if head + tail >= barrier:
                continue
        if rush(index, sides, side, g, head + tail - barrier, cell_low, cell_high):
            return SOME_FELL
        if slide(index, sides, side, g, head + tail - barrier, cell_low, cell_high):
            return SOME_FELL
        g.order[n_open] = side
        n_open += 1
    return n_open


@inlined
def pair(paths: Any, sides: Any, side: int) -> Any:
    """Name the groups that a side asks about, and which end of the first counts."""
    if paths.group_start.size == 2:
        return 0, NOBODY, np.int64(sides.plus[side] != 0)
    return sides.plus[side], sides.minus[side], np.int64(0)


@inlined
def _order_sides(paths: Any, sides: Any, g: Any) -> None:
    """Sort the sides by how close their classes come at the center."""
    order, scores = g.order, g.scores
    for side in range(order.size):
        at = side
        if paths.group_start.size > 2:
            here = scores[sides.minus[side]]
            while at > 0 and scores[sides.minus[order[at - 1]]] < here:
                order[at] = order[at - 1]
                at -= 1
        order[at] = side


@inlined
def _end(ends: Any, place: Any, column: Any) -> Any:
    return ends[(np.uint64(place) >> ONE) + column]


@inlined
def _bound_roughly(paths: Any, g: Any, group: int, column: int) -> int:
    """Bound what a group pulls without a walk."""
    ends, to = paths.ends, np.uint64(column)
    total = 0
    for tree in range(paths.group_start[group], paths.group_start[group + 1]):
        total += ends[(np.uint64(g.reached[tree]) << ONE) + to]
    for k in range(g.open_start[group], g.open_start[group + 1]):
        tree = g.undecided[k]
        here = ends[(np.uint64(g.reached[tree]) << ONE) + to]
        least = here
        for way in range(g.pending_start[tree], g.pending_start[tree + 1]):
            least = min(least, _end(ends, g.pending[way], to))
        g.least[tree] = least
        total += least - here
    return total


@inlined
def _bound(
    paths: Any, g: Any, group: int, column: int, low: Any, high: Any, total: int, enough: int
) -> int:
    """Make a rough bound exact, tree by tree, until it is enough."""
    ends, stack, to = paths.ends, g.stack, np.uint64(column)
    for k in range(g.open_start[group], g.open_start[group + 1]):
        tree = g.undecided[k]
        top = 0
        for way in range(g.pending_start[tree], g.pending_start[tree + 1]):
            stack[top] = g.pending[way]
            top += 1
        place = np.uint64(g.reached[tree]) << TWO
        least, leaf = _descend(paths, stack, top, _end(ends, place, to), place, to, low, high)
        total += least - g.least[tree]
        g.least[tree], g.leaf[tree] = least, leaf
        if total >= enough:
            break
    return total


@inlined
def _descend(
    paths: Any, stack: Any, top: int, least: int, leaf: Any, to: Any, low: Any, high: Any
) -> Any:
    """Find the least leaf below the places of a stack that a box can reach, if it beats `least`.

    Questions are compared with the box one by one. That is exact: ranges of which any two meet
    have a point in common. Only a leaf that no input at all can reach may be found as well.
    """
    walk, ends = paths.walk, paths.ends
    while top > 0:
        top -= 1
        node = np.uint64(stack[top])
        while _end(ends, node, to) < least:
            f, rank = np.uint64(walk[node]), walk[node + ONE]
            if rank == END:
                least, leaf = _end(ends, node, to), node
            elif high[f] <= rank:
                node = np.uint64(walk[node + TWO])
            elif low[f] > rank:
                node = np.uint64(walk[node + THREE])
            else:
                one, other = np.uint64(walk[node + TWO]), np.uint64(walk[node + THREE])
                is_left = _end(ends, one, to) <= _end(ends, other, to)
                # The one that promises less waits.
                stack[top] = other if is_left else one
                top += 1
                node = one if is_left else other
    return least, leaf


@inlined
def rush(
    index: Any, sides: Any, side: int, g: Any, gap: int, cell_low: Any, cell_high: Any
) -> bool:
    """Attack one side greedily; if it falls, narrow the cells to a point where it does.

    Trees that promise most take their least leaf that is still possible. As soon as they may
    suffice, the library's arithmetic is asked about the point where they lead.

    Args:
        index: the model.
        sides: what could change.
        side: the one to attack.
        g: what was found out about the row; left with the intervals where the attack got stuck.
        gap: by how much the bound exceeds the barrier: a negative number.
        cell_low: the first cell of each feature.
        cell_high: the last.
    """
    first, second, column = pair(index.paths, sides, side)
    excess, deepest = _begin(index.paths, g, first, column, cell_low, cell_high)
    if second != NOBODY:
        more, deeper = _begin(index.paths, g, second, 1, cell_low, cell_high)
        excess, deepest = excess + more, min(deepest, deeper)
    # The sum at the center exceeds the barrier by `excess`, and by `hope` where the trees lead.
    excess += gap
    hope, ask_below, is_asked = excess, 0, False
    for band in range(1, BANDS + 1):
        limit = deepest >> band if band < BANDS else 0
        for group, to in ((first, column), (second, 1)):
            if group == NOBODY:
                continue
            for k in range(g.open_start[group], g.open_start[group + 1]):
                tree = g.undecided[k]
                if g.loss[tree] > limit:
                    continue
                more = _take(index.paths, g, tree, np.uint64(to))
                gap += more
                if gap >= 0:
                    return False
                hope += g.loss[tree] + more
                g.loss[tree], is_asked = FAR, False
                if hope < ask_below:
                    there = _ask(index, sides, g, first, second, column, excess)
                    if there == FALLEN:
                        return _settle(g, cell_low, cell_high)
                    ask_below, is_asked = hope - max(there, index.slack), True
    if is_asked or _ask(index, sides, g, first, second, column, excess) != FALLEN:
        return False
    return _settle(g, cell_low, cell_high)


@inlined
def _begin(paths: Any, g: Any, group: int, column: int, cell_low: Any, cell_high: Any) -> Any:
    """Start at the center; return what a group could lose at most, and its tree that loses most."""
    for f in range(cell_low.size):
        g.low[f], g.high[f] = cell_low[f], cell_high[f]
        g.point[f] = min(max(g.at[f], cell_low[f]), cell_high[f])
    for tree in range(paths.group_start[group], paths.group_start[group + 1]):
        g.taken[tree] = g.reached[tree]
    total, deepest = 0, 0
    for k in range(g.open_start[group], g.open_start[group + 1]):
        tree = g.undecided[k]
        here = paths.ends[(np.uint64(g.reached[tree]) << ONE) + np.uint64(column)]
        loss = g.least[tree] - here
        g.loss[tree], deepest, total = loss, min(deepest, loss), total - loss
    return total, deepest


@inlined
def _take(paths: Any, g: Any, tree: int, to: Any) -> int:
    """Narrow the intervals to a tree's least leaf; return by how much it exceeds the least."""
    rise, low, high, node, fits = paths.rise, g.low, g.high, np.uint64(g.leaf[tree]), True
    while fits and rise[node] != END:
        f = np.uint64(rise[node + ONE])
        fits = low[f] <= rise[node + THREE] and high[f] >= rise[node + TWO]
        node = np.uint64(rise[node])
    least, leaf = g.least[tree], np.uint64(g.leaf[tree])
    if not fits:
        g.stack[0] = paths.entry[tree]
        least, leaf = _descend(paths, g.stack, 1, FAR, leaf, to, low, high)
    return least - g.least[tree] if narrow(rise, leaf, low, high) else FAR


@inlined
def _ask(index: Any, sides: Any, g: Any, first: int, second: int, column: int, excess: int) -> int:
    """Go to the point that the intervals leave; return its sum above the barrier, or FALLEN."""
    for i in range(g.free[g.at.size]):
        f = g.free[i]
        g.point[f] = min(max(g.at[f], g.low[f]), g.high[f])
    excess += _move(index.paths, g, first, column)
    if second != NOBODY:
        excess += _move(index.paths, g, second, 1)
    if excess >= 0:
        return excess
    if second == NOBODY:
        tally(index, g, g.taken)
    else:
        # The other classes can only make it fall the more.
        for rival in range(g.scores.size):
            g.scores[rival] = -np.inf
        g.scores[first] = tally_group(index.paths, index.rule, g.taken, first)
        g.scores[second] = tally_group(index.paths, index.rule, g.taken, second)
    verdict = judge(index.rule, g.scores, sides.label, sides.low, sides.high)
    return FALLEN if verdict == CHANGED else excess


@inlined
def _move(paths: Any, g: Any, group: int, column: int) -> int:
    """Find the leaves of a group at the point; return what changes against the center."""
    walk, ends, point, to = paths.walk, paths.ends, g.point, np.uint64(column)
    total = 0
    for k in range(g.open_start[group], g.open_start[group + 1]):
        tree = g.undecided[k]
        node = np.uint64(paths.entry[tree])
        while walk[node + ONE] != END:
            goes_right = np.uint64(point[np.uint64(walk[node])] > walk[node + ONE])
            node = np.uint64(walk[node + TWO + goes_right])
        g.taken[tree] = node >> TWO
        total += _end(ends, node, to) - ends[(np.uint64(g.reached[tree]) << ONE) + to]
    return total


@inlined
def _settle(g: Any, cell_low: Any, cell_high: Any) -> bool:
    for i in range(g.free[g.at.size]):
        f = g.free[i]
        cell_low[f], cell_high[f] = g.point[f], g.point[f]
    return True
