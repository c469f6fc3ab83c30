"""Compiled: what a search stands on: the sides of a box, and what its open leaves add to them.

A *side* is one way in which the prediction could change: a rival class, or for a single score the
one direction that crosses the cutoff, or for a regression one of the two bounds. Side s asks for
the sum of ``plus`` minus the sum of ``minus`` to fall below its barrier; -1 stands for nothing.
"""

from typing import Any, NamedTuple

import numpy as np

from tacit.verify.kernels.jit import bare, compiled
from tacit.verify.kernels.presolve.scores import weigh
from tacit.verify.kernels.search.bounds import Task


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


class Ground(NamedTuple):
    """What a search stands on."""

    trees: Any
    rule: Any
    r: Any
    load: Any
    work: Any


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


@bare
def quick_bound(r: Any, load: Any, plus: int, minus: int) -> int:
    """Compute the plain bound of a side without sorting anything."""
    total = weigh(load.constant, plus, minus)
    for t in range(r.tree_id.size):
        least = weigh(load.leaf[r.leaf_start[t]], plus, minus)
        for leaf in range(r.leaf_start[t] + 1, r.leaf_start[t + 1]):
            least = min(least, weigh(load.leaf[leaf], plus, minus))
        total += least
    return total


@compiled
def make_unsorted(r: Any, load: Any, sides: Any, side: int) -> Any:
    """Weigh the leaves for one side: all that the deep search asks for."""
    n_leaves, plus, minus = r.leaf_node.size, sides.plus[side], sides.minus[side]
    value, none = np.empty(n_leaves, np.int64), np.empty(0, np.int32)
    for leaf in range(n_leaves):
        value[leaf] = weigh(load.leaf[leaf], plus, minus)
    base, barrier = weigh(load.constant, plus, minus), sides.barrier[side]
    return Task(value, none, none, base, barrier, sides.label, sides.low, sides.high)


@compiled
def make_task(r: Any, load: Any, sides: Any, side: int) -> Any:
    """Weigh the leaves for one side and sort them within each tree."""
    n_leaves, n_open = r.leaf_node.size, r.tree_id.size
    task = make_unsorted(r, load, sides, side)
    value, order = task.value, np.empty(n_leaves, np.int32)
    spread = np.empty(n_open, np.int64)
    for t in range(n_open):
        first = r.leaf_start[t]
        for leaf in range(first, r.leaf_start[t + 1]):
            at = leaf
            while at > first and value[order[at - 1]] > value[leaf]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = leaf
        spread[t] = value[order[first]] - value[order[r.leaf_start[t + 1] - 1]]
    tree_order = np.argsort(spread).astype(np.int32)
    return Task(value, order, tree_order, task.base, task.barrier, task.label, task.low, task.high)


@compiled
def first_stack(r: Any) -> Any:
    """Make a stack that holds the whole box."""
    n_features = r.feature_id.size
    stack = np.zeros((16, 2 * n_features), np.int32)
    for f in range(n_features):
        stack[0, n_features + f] = r.rank_start[f + 1] - r.rank_start[f] - 1
    return stack


@bare
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
