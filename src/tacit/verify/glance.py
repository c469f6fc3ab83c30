"""Compiled: what a walk through the trees tells before any problem is built.

The leaf of every tree at the center, the trees that the box leaves undecided, the plain bound of
every side, and a greedy attack: each tree in turn, the one with most to lose first, takes its least
leaf that is still possible. Most rows are decided here.
"""

from typing import Any, NamedTuple

import numpy as np

from tacit.verify.jit import compiled, inlined
from tacit.verify.kernel import CHANGED, add_leaves, judge

FAR = 1 << 61
"""A weight beyond every sum of units."""


class Glance(NamedTuple):
    """Scratch arrays of the walks, made once for many rows."""

    at: Any  # (features): the cell of the center
    low: Any  # (features): the intervals that the attack has left
    high: Any
    point: Any  # (features): where `descent` stands
    reached: Any  # (trees): the leaf at the center
    taken: Any  # (trees): the leaf at the attack's point
    undecided: Any  # (trees): those that reach several leaves come first
    least: Any  # (trees, sides): the least weight of an undecided tree
    fixed: Any  # (scores): units of everything that is decided
    bound: Any  # (sides): the plain bound
    stack: Any  # (depth): nodes still to be seen
    scores: Any


@compiled
def make_glance(trees: Any, n_features: int, n_scores: int, n_sides: int) -> Any:
    """Allocate the scratch arrays."""
    n_trees, depth = trees.roots.size, trees.depth + 2
    return Glance(
        np.zeros(n_features, np.int32),
        np.zeros(n_features, np.int32),
        np.zeros(n_features, np.int32),
        np.zeros(n_features, np.int32),
        np.zeros(n_trees, np.int32),
        np.zeros(n_trees, np.int32),
        np.zeros(n_trees, np.int32),
        np.zeros((n_trees, n_sides), np.int64),
        np.zeros(n_scores, np.int64),
        np.zeros(n_sides, np.int64),
        np.zeros(depth, np.int32),
        np.zeros(n_scores, np.float64),
    )


@compiled
def look(trees: Any, g: Any, cell_low: Any, cell_high: Any) -> int:
    """Find the leaf of each tree at the center; return how many trees are undecided in the box."""
    packed, at = trees.packed, g.at
    count = 0
    for tree in range(trees.roots.size):
        node, is_open = trees.roots[tree], False
        while packed[node, 0] >= 0:
            f, rank = packed[node, 0], packed[node, 1]
            if at[f] <= rank:
                is_open |= cell_high[f] > rank
                node = packed[node, 2]
            else:
                is_open |= cell_low[f] <= rank
                node = packed[node, 3]
        g.reached[tree] = node
        if is_open:
            g.undecided[count] = tree
            count += 1
    return count


@inlined
def weigh(row: Any, plus: int, minus: int) -> int:
    """Weigh the units of a leaf for one side."""
    total = 0
    if plus >= 0:
        total += row[plus]
    if minus >= 0:
        total -= row[minus]
    return total


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
    owner = trees.owner[tree]
    if owner >= 0:
        least, most = _extremes(trees, g, tree, owner, cell_low, cell_high)
        for side in range(g.bound.size):
            weight = 0
            if sides.plus[side] == owner:
                weight += least
            if sides.minus[side] == owner:
                weight -= most
            g.least[tree, side] = weight
            g.bound[side] += weight
        return
    g.stack[0] = trees.roots[tree]
    for side in range(g.bound.size):
        g.least[tree, side] = FAR
    top = 1
    while top > 0:
        node, top = _next_leaf(trees.packed, g.stack, top, cell_low, cell_high)
        for side in range(g.bound.size):
            weight = weigh(trees.units[node], sides.plus[side], sides.minus[side])
            g.least[tree, side] = min(g.least[tree, side], weight)
    for side in range(g.bound.size):
        g.bound[side] += g.least[tree, side]


@compiled
def _extremes(trees: Any, g: Any, tree: int, owner: int, low: Any, high: Any) -> Any:
    """Find the least and the most that a tree adds to its only score within a box."""
    units = trees.units
    least, most, top = FAR, -FAR, 1
    g.stack[0] = trees.roots[tree]
    while top > 0:
        node, top = _next_leaf(trees.packed, g.stack, top, low, high)
        least, most = min(least, units[node, owner]), max(most, units[node, owner])
    return least, most


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
def rush(
    trees: Any, rule: Any, sides: Any, side: int, g: Any, count: int, cell_low: Any, cell_high: Any
) -> bool:
    """Attack one side greedily; if it falls, narrow the cells to what makes it fall."""
    plus, minus, barrier = sides.plus[side], sides.minus[side], sides.barrier[side]
    loss = np.empty(count, np.int64)
    for at in range(count):
        tree = g.undecided[at]
        loss[at] = g.least[tree, side] - weigh(trees.units[g.reached[tree]], plus, minus)
    for tree in range(g.reached.size):
        g.taken[tree] = g.reached[tree]
    for f in range(cell_low.size):
        g.low[f], g.high[f] = cell_low[f], cell_high[f]
    total = g.bound[side]
    for at in np.argsort(loss):
        tree = g.undecided[at]
        total += _take_least(trees, g, tree, plus, minus, g.least[tree, side])
        if total >= barrier:
            return False
    add_leaves(trees, rule, g.taken, g.scores)
    if judge(rule, g.scores, sides.label, sides.low, sides.high) != CHANGED:
        return False
    for f in range(cell_low.size):
        cell_low[f], cell_high[f] = g.low[f], g.high[f]
    return True


@compiled
def _take_least(trees: Any, g: Any, tree: int, plus: int, minus: int, floor: int) -> int:
    """Narrow the intervals to a tree's least leaf; return by how much it exceeds the floor."""
    least, leaf, top = FAR, -1, 1
    g.stack[0] = trees.roots[tree]
    while top > 0 and least > floor:
        node, top = _next_leaf(trees.packed, g.stack, top, g.low, g.high)
        weight = weigh(trees.units[node], plus, minus)
        if weight < least:
            least, leaf = weight, node
    g.taken[tree] = leaf
    return least - floor if _narrow(trees.up, leaf, g.low, g.high) else FAR


@inlined
def _narrow(up: Any, leaf: int, low: Any, high: Any) -> bool:
    """Narrow intervals to what reaches a leaf; say whether anything does."""
    node = leaf
    is_open = True
    while up[node, 0] >= 0:
        f = up[node, 1]
        low[f], high[f] = max(low[f], up[node, 2]), min(high[f], up[node, 3])
        is_open &= low[f] <= high[f]
        node = up[node, 0]
    return is_open
