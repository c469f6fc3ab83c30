"""Compiled: one box from cells to an answer, without leaving machine code.

A *side* is one way in which the prediction could change: a rival class, or for a single score the
one direction that crosses the cutoff, or for a regression one of the two bounds. Side s asks for
the sum of ``plus`` minus the sum of ``minus`` to fall below its barrier; -1 stands for nothing.
"""

from typing import Any, NamedTuple

import numpy as np

from tacit.verify.bounds import Task, make_work
from tacit.verify.branch import FAR, FOUND, PROVED, search
from tacit.verify.jit import compiled
from tacit.verify.reach import reach


class Sides(NamedTuple):
    """Everything that must be ruled out, and what the library would say to a point."""

    plus: Any  # (sides): score that counts positively, or -1
    minus: Any  # (sides): score that counts negatively, or -1
    barrier: Any  # (sides): units
    label: Any
    low: Any
    high: Any


class Load(NamedTuple):
    """What the open leaves and everything constant add to each score, in units."""

    leaf: Any  # (leaves, scores)
    constant: Any  # (scores)


@compiled
def make_load(trees: Any, base_units: Any, r: Any) -> Any:
    """Gather the units of the leaves that a box leaves open."""
    n_scores = base_units.size
    leaf, constant = np.empty((r.leaf_node.size, n_scores), np.int64), base_units.copy()
    for i in range(r.leaf_node.size):
        for score in range(n_scores):
            leaf[i, score] = trees.units[r.leaf_node[i], score]
    for tree in range(r.fixed_leaf.size):
        if r.fixed_leaf[tree] >= 0:
            for score in range(n_scores):
                constant[score] += trees.units[r.fixed_leaf[tree], score]
    return Load(leaf, constant)


@compiled
def _weigh(row: Any, plus: int, minus: int) -> int:
    total = 0
    if plus >= 0:
        total += row[plus]
    if minus >= 0:
        total -= row[minus]
    return total


@compiled
def quick_bound(r: Any, load: Any, plus: int, minus: int) -> int:
    """Compute the plain bound of a side without sorting anything."""
    total = _weigh(load.constant, plus, minus)
    for t in range(r.tree_id.size):
        least = _weigh(load.leaf[r.leaf_start[t]], plus, minus)
        for leaf in range(r.leaf_start[t] + 1, r.leaf_start[t + 1]):
            least = min(least, _weigh(load.leaf[leaf], plus, minus))
        total += least
    return total


@compiled
def make_task(r: Any, load: Any, sides: Any, side: int) -> Any:
    """Weigh the leaves for one side and sort them within each tree."""
    n_leaves, n_open = r.leaf_node.size, r.tree_id.size
    value, order = np.empty(n_leaves, np.int64), np.empty(n_leaves, np.int32)
    spread = np.empty(n_open, np.int64)
    plus, minus = sides.plus[side], sides.minus[side]
    for t in range(n_open):
        first = r.leaf_start[t]
        for leaf in range(first, r.leaf_start[t + 1]):
            value[leaf] = _weigh(load.leaf[leaf], plus, minus)
            at = leaf
            while at > first and value[order[at - 1]] > value[leaf]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = leaf
        spread[t] = value[order[first]] - value[order[r.leaf_start[t + 1] - 1]]
    base = _weigh(load.constant, plus, minus)
    tree_order = np.argsort(spread).astype(np.int32)
    barrier = sides.barrier[side]
    return Task(value, order, tree_order, base, barrier, sides.label, sides.low, sides.high)


@compiled
def first_stack(r: Any) -> Any:
    """Make a stack that holds the whole box."""
    n_features = r.feature_id.size
    stack = np.zeros((16, 2 * n_features), np.int32)
    for f in range(n_features):
        stack[0, n_features + f] = r.rank_start[f + 1] - r.rank_start[f] - 1
    return stack


@compiled
def witness_cells(r: Any, row: Any, cell_low: Any, cell_high: Any) -> None:
    """Narrow a box of cells to the ranks that a row of the stack holds."""
    n_features = r.feature_id.size
    for g in range(n_features):
        start, f = r.rank_start[g], r.feature_id[g]
        cell_low[f] = r.rank_low[start + row[g]]
        cell_high[f] = r.rank_high[start + row[n_features + g]]


@compiled
def order_sides(r: Any, load: Any, sides: Any) -> Any:
    """List the sides that the plain bound leaves open, the most endangered first."""
    gaps = np.empty(sides.plus.size, np.int64)
    for side in range(gaps.size):
        bound = quick_bound(r, load, sides.plus[side], sides.minus[side])
        gaps[side] = bound - sides.barrier[side]
    order = np.argsort(gaps)
    return order[: np.sum(gaps < 0)]


@compiled
def _is_clear(trees: Any, base_units: Any, sides: Any, cell_low: Any, cell_high: Any) -> bool:
    """Say whether the least leaves within the box already rule out the only side; no means maybe.

    Gives up where much is open: then the bound is hopeless, and what it cost is small. A path that
    asks for a feature twice is not looked into: some leaves counted are out of reach.
    """
    if sides.plus.size > 1:
        return False
    packed, units = trees.packed, trees.units
    plus, minus = sides.plus[0], sides.minus[0]
    total = _weigh(base_units, plus, minus)
    left = 2 * trees.roots.size
    stack = np.empty(64, np.int32)
    for tree in range(trees.roots.size):
        least = FAR
        stack[0], top = trees.roots[tree], 1
        while top > 0:
            top -= 1
            node = stack[top]
            while packed[node, 0] >= 0:
                f, rank = packed[node, 0], packed[node, 1]
                if cell_high[f] <= rank:
                    node = packed[node, 2]
                elif cell_low[f] > rank:
                    node = packed[node, 3]
                else:
                    if top == stack.size:
                        return False
                    stack[top] = packed[node, 3]
                    top += 1
                    node = packed[node, 2]
            least = min(least, _weigh(units[node], plus, minus))
            left -= 1
        total += least
        if left < 0:
            return False
    return total >= sides.barrier[0]  # type: ignore[no-any-return]


@compiled
def solve(
    trees: Any, rule: Any, base_units: Any, sides: Any, cell_low: Any, cell_high: Any, nodes: int
) -> Any:
    """Decide one box within a budget of nodes; a witness narrows cell_low and cell_high in place.

    Returns:
        the worst outcome over the sides and how many nodes were visited.
    """
    if _is_clear(trees, base_units, sides, cell_low, cell_high):
        return PROVED, 0
    r = reach(trees, cell_low, cell_high)
    load = make_load(trees, base_units, r)
    worst, visited = PROVED, 0
    open_sides = order_sides(r, load, sides)
    if open_sides.size == 0:
        return worst, visited
    work = make_work(r, rule.base.size)
    for side in open_sides:
        task = make_task(r, load, sides, side)
        work.is_blurred[0] = False
        outcome, stack, _, count = search(
            trees, rule, r, task, work, first_stack(r), 1, nodes - visited
        )
        visited += count
        if outcome == FOUND:
            witness_cells(r, stack[0], cell_low, cell_high)
            return outcome, visited
        worst = max(worst, outcome)
    return worst, visited
