"""Compiled: bounds and an attack where a leaf pulls the scores of several classes at once.

All sides ask about the same class, so one walk bounds them together: each leaf is weighed against
every rival. Before it stands a quick attack (`hop`), after it a greedy one: the tree that promises
most takes its least leaf that is still possible, then the next.
"""

from typing import Any

import numpy as np

from tacit.verify.descent import slide
from tacit.verify.glance import FAR, ONE, SOME_FELL, THREE, TWO, narrow
from tacit.verify.hop import falls, hop, settle
from tacit.verify.jit import bare, inlined
from tacit.verify.paths import END


@bare
def crowd_sides(index: Any, sides: Any, g: Any, count: int, cell_low: Any, cell_high: Any) -> int:
    """Bound all sides and attack those that stay open, the most endangered first.

    Returns:
        how many sides stay open, first in `g.order`; or SOME_FELL, and the cells are narrowed.
    """
    if count > 0 and hop(index, sides, g, count, cell_low, cell_high):
        return SOME_FELL
    n_open = bound_sides(index, sides, g, count, cell_low, cell_high)
    for at in range(n_open):
        side = g.order[at]
        if rush_crowd(index, sides, side, g, count, cell_low, cell_high):
            return SOME_FELL
        gap = g.bound[side] - sides.barrier[side]
        if slide(index, sides, side, g, gap, cell_low, cell_high):
            return SOME_FELL
    return n_open


@inlined
def bound_sides(index: Any, sides: Any, g: Any, count: int, cell_low: Any, cell_high: Any) -> int:
    """Compute the plain bound of every side; return how many it leaves open, first in `g.order`."""
    fixed, label, n_scores = g.fixed, np.uint64(sides.plus[0]), np.uint64(g.fixed.size)
    own = g.sums[label] + index.base_units[label]
    for score in range(n_scores):
        fixed[score] = own - g.sums[score] - index.base_units[score]
    for k in range(count):
        undecided = np.uint64(g.undecided[k])
        _bound_tree(index, g, undecided, label, cell_low, cell_high)
        for score in range(n_scores):
            fixed[score] += g.weight[undecided, score]
    n_open = 0
    for side in range(sides.plus.size):
        bound = fixed[sides.minus[side]]
        g.bound[side] = bound
        gap, at = bound - sides.barrier[side], n_open
        if gap >= 0:
            continue
        while at > 0 and g.bound[g.order[at - 1]] - sides.barrier[g.order[at - 1]] > gap:
            g.order[at] = g.order[at - 1]
            at -= 1
        g.order[at] = side
        n_open += 1
    return n_open


@inlined
def _bound_tree(index: Any, g: Any, tree: Any, label: Any, low: Any, high: Any) -> None:
    """Find the leaf of a tree that lowers each side most, and by how much, against the center."""
    units, walk, stack = index.trees.units, index.paths.walk, g.stack
    weight, leaf, n_scores = g.weight, g.least_leaf, np.uint64(g.fixed.size)
    here = np.uint64(g.reached[tree])
    for score in range(n_scores):
        weight[tree, score] = 0
        leaf[tree, score] = here
    for way in range(g.pending_start[tree], g.pending_end[tree]):
        stack[0], top = g.pending[way], np.uint64(1)
        while top > 0:
            node, top = _next_leaf(walk, stack, top, low, high)
            shift = units[node, label] - units[here, label]
            for score in range(n_scores):
                loss = shift - units[node, score] + units[here, score]
                is_less = loss < weight[tree, score]
                weight[tree, score] = loss if is_less else weight[tree, score]
                leaf[tree, score] = node if is_less else leaf[tree, score]


@inlined
def _next_leaf(walk: Any, stack: Any, top: Any, low: Any, high: Any) -> Any:
    """Go to the next leaf that a box can reach below the places of a stack.

    Questions are compared with the box one by one. That is exact: ranges of which any two meet
    have a point in common. Only a leaf that no input at all can reach may be listed as well.
    """
    top -= ONE
    node = np.uint64(stack[top])
    while walk[node + ONE] != END:
        f, rank = np.uint64(walk[node]), walk[node + ONE]
        goes_right = low[f] > rank
        # Written in any case and counted only if the box goes both ways: no branch to mistake.
        stack[top] = walk[node + THREE]
        top += np.uint64(~goes_right & (high[f] > rank))
        node = np.uint64(walk[node + TWO + np.uint64(goes_right)])
    return node >> TWO, top


@inlined
def rush_crowd(
    index: Any, sides: Any, side: int, g: Any, count: int, cell_low: Any, cell_high: Any
) -> bool:
    """Attack one side greedily; if it falls, narrow the cells to a point where it does.

    Trees that promise most take their least leaf that is still possible. As soon as they may
    suffice, the library's arithmetic is asked about the point where they lead.
    """
    label, rival = np.uint64(sides.plus[side]), np.uint64(sides.minus[side])
    gap = g.bound[side] - sides.barrier[side]
    for f in range(cell_low.size):
        g.low[f], g.high[f] = cell_low[f], cell_high[f]
        g.point[f] = min(max(g.at[f], cell_low[f]), cell_high[f])
    for tree in range(g.reached.size):
        g.taken[tree] = g.reached[tree]
    # The sum at the center exceeds the barrier by `excess`, and by `hope` where the trees lead.
    excess, order = gap, g.promise
    for k in range(count):
        tree = g.undecided[k]
        loss, at = g.weight[tree, rival], k
        excess -= loss
        while at > 0 and g.weight[order[at - 1], rival] > loss:
            order[at] = order[at - 1]
            at -= 1
        order[at] = tree
    hope, ask_below, is_asked = excess, 0, False
    for k in range(count):
        leader = np.uint64(order[k])
        more = _take(index, g, leader, label, rival)
        gap += more
        if gap >= 0:
            return False
        hope, is_asked = hope + g.weight[leader, rival] + more, False
        if hope < ask_below:
            there = _ask(index, sides, g, count, label, rival, excess)
            if there < 0:
                return settle(g, cell_low, cell_high)
            ask_below, is_asked = hope - max(there, index.slack), True
    if is_asked or _ask(index, sides, g, count, label, rival, excess) >= 0:
        return False
    return settle(g, cell_low, cell_high)


@inlined
def _take(index: Any, g: Any, tree: Any, label: Any, rival: Any) -> int:
    """Narrow the intervals to a tree's least leaf; return by how much it exceeds the least."""
    paths, units, low, high = index.paths, index.trees.units, g.low, g.high
    rise, leaf = paths.rise, np.uint64(g.least_leaf[tree, rival])
    node, fits, more = leaf << TWO, True, 0
    while fits and rise[node] != END:
        f = np.uint64(rise[node + ONE])
        fits = low[f] <= rise[node + THREE] and high[f] >= rise[node + TWO]
        node = np.uint64(rise[node])
    if not fits:
        stack, least, top = g.stack, FAR, np.uint64(1)
        floor = units[leaf, label] - units[leaf, rival]
        stack[0] = paths.entry[tree]
        while top > 0:
            node, top = _next_leaf(paths.walk, stack, top, low, high)
            value = units[node, label] - units[node, rival]
            if value < least:
                least, leaf = value, node
        more = least - floor
    return more if narrow(rise, leaf << TWO, low, high) else FAR


@inlined
def _ask(index: Any, sides: Any, g: Any, count: int, label: Any, rival: Any, excess: int) -> int:
    """Go where the intervals lead; return the sum there above the barrier, or -1 if it falls."""
    walk, units, point = index.paths.walk, index.trees.units, g.point
    for i in range(g.free[g.at.size]):
        f = np.uint64(g.free[i])
        point[f] = min(max(g.at[f], g.low[f]), g.high[f])
    for k in range(count):
        tree = np.uint64(g.undecided[k])
        node = np.uint64(index.paths.entry[tree])
        while walk[node + ONE] != END:
            goes_right = np.uint64(point[np.uint64(walk[node])] > walk[node + ONE])
            node = np.uint64(walk[node + TWO + goes_right])
        node >>= TWO
        here = np.uint64(g.reached[tree])
        g.taken[tree] = node
        excess += units[node, label] - units[here, label] - units[node, rival] + units[here, rival]
    if excess >= 0:
        return excess
    return -1 if falls(index, sides, g, label, rival) else 0
