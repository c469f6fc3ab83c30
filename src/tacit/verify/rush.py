"""Compiled: two attacks where every leaf pulls one number.

A leap to where the ensemble leads on average; and a greedy one, in which the trees that promise
most take their least leaf that is still possible.
"""

from typing import Any

import numpy as np

from tacit.verify.glance import FAR, ONE, THREE, TWO, narrow, tally, tally_group
from tacit.verify.jit import bare, inlined
from tacit.verify.kernel import CHANGED, judge
from tacit.verify.leaf import NOBODY, descend, end_of, pair
from tacit.verify.paths import END

FALLEN = -FAR
BANDS = 6
"""The attack takes trees by what they promise: a half of the most, a quarter, and so on."""


@inlined
def lunge(
    index: Any,
    sides: Any,
    g: Any,
    first: int,
    second: int,
    column: int,
    excess: int,
    cell_low: Any,
    cell_high: Any,
) -> int:
    """Try the point where the ensemble leads on average; if a side falls, narrow the cells to it.

    Returns:
        by how much the sum exceeds the barrier there; or FALLEN.
    """
    row = column if second == NOBODY else first * (index.paths.group_start.size - 1) + second
    if index.lure.shape[0] == 0:
        return excess
    aim(index, g, row, cell_low, cell_high)
    return probe(index, sides, g, first, second, column, excess, cell_low, cell_high)


@inlined
def aim(index: Any, g: Any, row: Any, cell_low: Any, cell_high: Any) -> None:
    """Go to the point of the box where the ensemble leads on average."""
    point, has_lure = g.point, index.lure.shape[0] > 0
    for f in range(g.at.size):
        point[f] = g.at[f]
    for i in range(g.free[g.at.size]):
        own = np.uint64(g.free[i])
        to = index.lure[row][own] if has_lure else point[own]
        point[own] = min(max(to, cell_low[own]), cell_high[own])


@inlined
def probe(
    index: Any,
    sides: Any,
    g: Any,
    first: int,
    second: int,
    column: Any,
    excess: int,
    cell_low: Any,
    cell_high: Any,
) -> int:
    """Ask about the point; if a side falls there, narrow the cells to it. Returns as `lunge`."""
    for group in (first, second):
        if group != NOBODY:
            for tree in range(index.paths.group_start[group], index.paths.group_start[group + 1]):
                g.taken[tree] = g.reached[tree]
    there = _ask(index, sides, g, first, second, column, excess)
    if there == FALLEN:
        _settle(g, cell_low, cell_high)
    return there


@bare
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
                    _step(g)
                    there = _ask(index, sides, g, first, second, column, excess)
                    if there == FALLEN:
                        return _settle(g, cell_low, cell_high)
                    ask_below, is_asked = hope - max(there, index.slack), True
    if is_asked:
        return False
    _step(g)
    if _ask(index, sides, g, first, second, column, excess) != FALLEN:
        return False
    return _settle(g, cell_low, cell_high)


@inlined
def _step(g: Any) -> None:
    """Go to the point nearest to the center that the intervals leave."""
    for i in range(g.free[g.at.size]):
        f = g.free[i]
        g.point[f] = min(max(g.at[f], g.low[f]), g.high[f])


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
        least, leaf = descend(paths, g.stack, 1, FAR, leaf, to, low, high)
    return least - g.least[tree] if narrow(rise, leaf, low, high) else FAR


@inlined
def _ask(index: Any, sides: Any, g: Any, first: int, second: int, column: Any, excess: int) -> int:
    """Find the leaves at the point; return their sum above the barrier, or FALLEN."""
    excess += _move(index.paths, g, first, column)
    if second != NOBODY:
        excess += _move(index.paths, g, second, 1)
    if excess >= 0:
        return excess
    if excess < -_doubt(index, sides):
        return FALLEN
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
def _doubt(index: Any, sides: Any) -> int:
    """Return how far below the barrier a sum leaves no doubt that the decision has changed.

    A barrier lies above what decides by as much as rounding can take; twice as far below it, and
    rounding can bring nothing back.
    """
    if index.base_units.size == 1:
        return 2 * index.slack + 2  # type: ignore[no-any-return]
    return 2 * sides.barrier[0] + 4  # type: ignore[no-any-return]


@inlined
def _move(paths: Any, g: Any, group: int, column: int) -> int:
    """Find the leaves of a group at the point; return what changes against the center."""
    walk, ends, point, to = paths.walk, paths.ends, g.point, np.uint64(column)
    first, last = g.open_start[group], g.open_start[group + 1]
    spot, going = g.words[: g.taken.size], g.words[g.taken.size :]
    n_going = np.uint64(0)
    for at in range(first, last):
        # Above the first way that is open, the whole box goes one way.
        way = np.uint64(g.pending[np.uint64(g.pending_start[np.uint64(g.undecided[at])])])
        spot[at] = paths.rise[way]
        going[n_going] = at
        n_going += ONE
    # One question of every tree at a time: none has to wait for the one before.
    while n_going > 0:
        still = np.uint64(0)
        for i in range(n_going):
            k = np.uint64(going[np.uint64(i)])
            node = np.uint64(spot[k])
            goes_right = np.uint64(point[np.uint64(walk[node])] > walk[node + ONE])
            node = np.uint64(walk[node + TWO + goes_right])
            spot[k], going[still] = node, k
            still += np.uint64(walk[node + ONE] != END)
        n_going = still
    total = 0
    for at in range(first, last):
        tree, node = np.uint64(g.undecided[at]), np.uint64(spot[at])
        g.taken[tree] = node >> TWO
        total += end_of(ends, node, to) - ends[(np.uint64(g.reached[tree]) << ONE) + to]
    return total


@inlined
def _settle(g: Any, cell_low: Any, cell_high: Any) -> bool:
    for i in range(g.free[g.at.size]):
        f = g.free[i]
        cell_low[f], cell_high[f] = g.point[f], g.point[f]
    return True
