"""Compiled: what a search is asked: the objectives of a box, and what its open leaves add to them.

An *objective* is one way in which the prediction could change: a rival class, or for a single score
the one direction that crosses the cutoff, or for a regression one of the two bounds. It asks
whether the sum of ``plus`` minus the sum of ``minus`` can fall below its threshold; -1 stands for
nothing.
"""

from typing import NamedTuple

import numpy as np

from tacit.jit import bare, compiled
from tacit.verify.kernels.layout.reach import Reach
from tacit.verify.kernels.presolve.scores import weigh
from tacit.verify.kernels.tables import Ints, Longs, Objectives, Trees


class Load(NamedTuple):
    """What the open leaves and everything constant add to each score, in fixed point."""

    leaf: Longs  # (leaves, scores)
    constant: Longs  # (scores)


class Problem(NamedTuple):
    """One objective: what its leaves add to the sum, and what the sum must not fall below."""

    value: Longs  # (leaves): fixed point, in the order of Reach.leaf_node
    base: int  # everything that is constant
    threshold: int  # sums of at least this keep the prediction
    label: int
    low: float  # for a regression: the outputs that are still fine
    high: float


@compiled
def make_load(trees: Trees, base_fixed: Longs, r: Reach) -> Load:
    """Gather the fixed-point values of the leaves that a box leaves open."""
    n_scores = base_fixed.size
    leaf, constant = np.empty((r.leaf_node.size, n_scores), np.int64), base_fixed.copy()
    for i in range(r.leaf_node.size):
        for score in range(n_scores):
            leaf[i, score] = trees.fixed[r.leaf_node[i], score]
    for tree in range(r.fixed_leaf.size):
        if r.fixed_leaf[tree] >= 0:
            for score in range(n_scores):
                constant[score] += trees.fixed[r.fixed_leaf[tree], score]
    return Load(leaf=leaf, constant=constant)


@bare
def plain_bound(r: Reach, load: Load, plus: int, minus: int) -> int:
    """Add up the least leaf of every tree."""
    total = weigh(load.constant, plus, minus)
    for t in range(r.tree_id.size):
        least = weigh(load.leaf[r.leaf_start[t]], plus, minus)
        for leaf in range(r.leaf_start[t] + 1, r.leaf_start[t + 1]):
            least = min(least, weigh(load.leaf[leaf], plus, minus))
        total += least
    return total


@compiled
def make_problem(r: Reach, load: Load, objectives: Objectives, objective: int) -> Problem:
    """Weigh the leaves for one objective."""
    plus, minus = objectives.plus[objective], objectives.minus[objective]
    value = np.empty(r.leaf_node.size, np.int64)
    for leaf in range(value.size):
        value[leaf] = weigh(load.leaf[leaf], plus, minus)
    return Problem(
        value=value,
        base=weigh(load.constant, plus, minus),
        threshold=objectives.threshold[objective],
        label=objectives.label,
        low=objectives.low,
        high=objectives.high,
    )


@compiled
def order_objectives(r: Reach, load: Load, objectives: Objectives) -> Longs:
    """List the objectives that the plain bound leaves open, the most endangered first."""
    gaps = np.empty(objectives.plus.size, np.int64)
    for k in range(gaps.size):
        bound = plain_bound(r, load, objectives.plus[k], objectives.minus[k])
        gaps[k] = bound - objectives.threshold[k]
    order: Longs = np.argsort(gaps)
    return order[: np.sum(gaps < 0)]


@compiled
def whole_box(r: Reach) -> Ints:
    """Write the whole box as a row: the first rank of every feature, then the last."""
    n_features = r.feature_id.size
    row = np.zeros(2 * n_features, np.int32)
    for f in range(n_features):
        row[n_features + f] = r.rank_start[f + 1] - r.rank_start[f] - 1
    return row


@bare
def narrow_intervals(r: Reach, row: Ints, low: Ints, high: Ints) -> None:
    """Narrow a box of intervals to the ranks of a row."""
    n_features = r.feature_id.size
    for g in range(n_features):
        start, f = r.rank_start[g], r.feature_id[g]
        low[f] = r.rank_low[start + row[g]]
        high[f] = r.rank_high[start + row[n_features + g]]
