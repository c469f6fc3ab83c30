"""Compiled: bounds and an attack where a leaf pulls the scores of several classes at once.

The plain bound of every side, and a greedy attack: each tree in turn, the one with most to lose
first, takes its least leaf that is still possible.
"""

from typing import Any

import numpy as np

from tacit.verify.descent import slide
from tacit.verify.glance import FAR, SOME_FELL, narrow, weigh
from tacit.verify.jit import compiled, inlined
from tacit.verify.kernel import CHANGED, add_leaves, judge


@compiled
def crowd_sides(index: Any, sides: Any, g: Any, count: int, cell_low: Any, cell_high: Any) -> int:
    """Bound all sides and attack those that stay open, the most endangered first.

    Returns:
        how many sides stay open, first in `g.order`; or SOME_FELL, and the cells are narrowed.
    """
    n_open = bound_sides(index.trees, index.base_units, sides, g, count, cell_low, cell_high)
    if n_open == 0:
        return 0
    open_sides = np.argsort(g.bound - sides.barrier)[:n_open]
    for at in range(n_open):
        side = open_sides[at]
        g.order[at] = side
        if rush_crowd(index, sides, side, g, count, cell_low, cell_high):
            return SOME_FELL
        gap = g.bound[side] - sides.barrier[side]
        if slide(index, sides, side, g, gap, cell_low, cell_high):
            return SOME_FELL
    return n_open


@compiled
def bound_sides(
    trees: Any, base_units: Any, sides: Any, g: Any, count: int, cell_low: Any, cell_high: Any
) -> int:
    """Compute the plain bound of every side; return how many sides it leaves open."""
    units, undecided, fixed = trees.units, g.undecided, g.fixed
    for score in range(fixed.size):
        fixed[score] = base_units[score]
    at = 0
    for tree in range(trees.roots.size):
        if at < count and undecided[at] == tree:
            at += 1
            continue
        node = g.reached[tree]
        for score in range(fixed.size):
            fixed[score] += units[node, score]
    for side in range(sides.plus.size):
        g.bound[side] = weigh(fixed, sides.plus[side], sides.minus[side])
    for at in range(count):
        _bound_tree(trees, sides, g, undecided[at], cell_low, cell_high)
    n_open = 0
    for side in range(sides.plus.size):
        n_open += g.bound[side] < sides.barrier[side]
    return n_open


@compiled
def _bound_tree(trees: Any, sides: Any, g: Any, tree: int, cell_low: Any, cell_high: Any) -> None:
    """Find the least weight of a tree for every side, and add it to the bounds."""
    g.stack[0] = trees.roots[tree]
    for side in range(g.bound.size):
        g.weight[tree, side] = FAR
    top = 1
    while top > 0:
        node, top = _next_leaf(trees.packed, g.stack, top, cell_low, cell_high)
        for side in range(g.bound.size):
            weight = weigh(trees.units[node], sides.plus[side], sides.minus[side])
            g.weight[tree, side] = min(g.weight[tree, side], weight)
    for side in range(g.bound.size):
        g.bound[side] += g.weight[tree, side]


@inlined
def _next_leaf(packed: Any, stack: Any, top: int, low: Any, high: Any) -> Any:
    """Go to the next leaf of a tree that a box can reach.

    Questions are compared with the box one by one. That is exact: ranges of which any two meet
    have a point in common. Only a leaf that no input at all can reach may be listed as well.
    """
    top -= 1
    node = stack[top]
    while packed[node, 0] >= 0:
        f, rank = packed[node, 0], packed[node, 1]
        if high[f] <= rank:
            node = packed[node, 2]
        elif low[f] > rank:
            node = packed[node, 3]
        else:
            stack[top] = packed[node, 3]
            top += 1
            node = packed[node, 2]
    return node, top


@compiled
def rush_crowd(
    index: Any, sides: Any, side: int, g: Any, count: int, cell_low: Any, cell_high: Any
) -> bool:
    """Attack one side greedily; if it falls, narrow the cells to what makes it fall."""
    trees, rule = index.trees, index.rule
    plus, minus, barrier = sides.plus[side], sides.minus[side], sides.barrier[side]
    loss = np.empty(count, np.int64)
    for at in range(count):
        tree = g.undecided[at]
        loss[at] = g.weight[tree, side] - weigh(trees.units[g.reached[tree]], plus, minus)
    for tree in range(g.reached.size):
        g.taken[tree] = g.reached[tree]
    for f in range(cell_low.size):
        g.low[f], g.high[f] = cell_low[f], cell_high[f]
    total = g.bound[side]
    for at in np.argsort(loss):
        tree = g.undecided[at]
        total += _take_least(index, g, tree, plus, minus, g.weight[tree, side])
        if total >= barrier:
            return False
    add_leaves(trees, rule, g.taken, g.scores)
    if judge(rule, g.scores, sides.label, sides.low, sides.high) != CHANGED:
        return False
    for f in range(cell_low.size):
        cell_low[f], cell_high[f] = g.low[f], g.high[f]
    return True


@compiled
def _take_least(index: Any, g: Any, tree: int, plus: int, minus: int, floor: int) -> int:
    """Narrow the intervals to a tree's least leaf; return by how much it exceeds the floor."""
    trees, least, leaf, top = index.trees, FAR, 0, 1
    g.stack[0] = trees.roots[tree]
    while top > 0 and least > floor:
        node, top = _next_leaf(trees.packed, g.stack, top, g.low, g.high)
        weight = weigh(trees.units[node], plus, minus)
        if weight < least:
            least, leaf = weight, node
    g.taken[tree] = leaf
    return least - floor if narrow(index.paths.rise, 4 * leaf, g.low, g.high) else FAR
