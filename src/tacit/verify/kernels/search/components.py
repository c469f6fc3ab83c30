"""Compiled: trees that share no open feature.

What two such *parts* of an ensemble add to a sum does not depend on each other, so the least sum is
the sum of their least ones. Searched together, their nodes multiply; one by one, they add up.
"""

from typing import Any

import numpy as np

from tacit.verify.kernels.attack.descent import polish
from tacit.verify.kernels.attack.neighbours import judge_cells
from tacit.verify.kernels.jit import bare, compiled
from tacit.verify.kernels.layout.reach import reach_open
from tacit.verify.kernels.presolve.scores import CHANGED, judge
from tacit.verify.kernels.search.bounds import make_work
from tacit.verify.kernels.search.branch import first_trail, start_deep
from tacit.verify.kernels.search.problem import first_stack, make_load, make_unsorted


@compiled
def label_parts(r: Any) -> Any:
    """Number the parts that open trees fall into; trees that share nothing make one together.

    Returns:
        the part of each open tree, how many parts there are, and how many of them have several
        trees that share a feature. Only where there are two of those is anything gained.
    """
    root = np.arange(r.feature_id.size)
    for t in range(r.tree_id.size):
        head = _find(root, r.slot_feature[r.slot_start[t]])
        for s in range(r.slot_start[t] + 1, r.slot_start[t + 1]):
            root[_find(root, r.slot_feature[s])] = head
    members, number = np.zeros(root.size, np.int64), np.zeros(root.size, np.int64)
    label, lonely, count = np.empty(r.tree_id.size, np.int64), 0, 0
    for t in range(label.size):
        label[t] = _find(root, r.slot_feature[r.slot_start[t]])
        members[label[t]] += 1
    for f in range(root.size):
        if members[f] > 1:
            number[f] = count
            count += 1
        lonely += members[f] == 1
    for t in range(label.size):
        label[t] = number[label[t]] if members[label[t]] > 1 else count
    return label, count + (lonely > 0), count


@bare
def _find(root: Any, f: int) -> int:
    while root[f] != f:
        root[f] = root[root[f]]
        f = root[f]
    return f


@bare
def hull_cells(r: Any, stack: Any, top: int, cell_low: Any, cell_high: Any) -> None:
    """Narrow cells to the least box around those on a stack."""
    n_features = r.feature_id.size
    for g in range(n_features):
        first, last = stack[0, g], stack[0, n_features + g]
        for row in range(1, top):
            first, last = min(first, stack[row, g]), max(last, stack[row, n_features + g])
        cell_low[r.feature_id[g]] = r.rank_low[r.rank_start[g] + first]
        cell_high[r.feature_id[g]] = r.rank_high[r.rank_start[g] + last]


@compiled
def isolate(trees: Any, r: Any, label: Any, part: int, leaves: Any, box: Any) -> Any:
    """Make the problem of one part, in which every other tree has the leaf that is given."""
    known = leaves.copy()
    for t in range(label.size):
        if label[t] == part:
            known[r.tree_id[t]] = -1
    return reach_open(trees, known, box[0], box[1])


@compiled
def settle_others(index: Any, sides: Any, side: int) -> Any:
    """Give the trees that add nothing to either class of a side some leaf; -1 for the rest."""
    paths, roots = index.paths, index.trees.roots
    known, start = np.full(roots.size, -1, np.int32), paths.group_start
    if start.size == 2:
        return known
    for group in range(start.size - 1):
        if group in (sides.plus[side], sides.minus[side]):
            continue
        for at in range(start[group], start[group + 1]):
            node = roots[paths.order[at]]
            while index.trees.left[node] >= 0:
                node = index.trees.left[node]
            known[paths.order[at]] = node
    return known


@compiled
def start_joint(index: Any, sides: Any, side: int, r: Any) -> Any:
    """Find a point to start from; return its sum, the leaves of all trees and its ranks."""
    load = make_load(index.trees, index.base_units, r)
    task, work = make_unsorted(r, load, sides, side), make_work(r, index.base_units.size)
    row = first_stack(r)[0].copy()
    n_features = r.feature_id.size
    total = polish(r, task, work, row[:n_features], row[n_features:])
    return total, work.reached, row


@compiled
def start_component(
    index: Any, sides: Any, side: int, r: Any, label: Any, part: int, leaves: Any, box: Any
) -> Any:
    """Make the problem of one part, the boxes to search, and room for its best point."""
    r = isolate(index.trees, r, label, part, leaves, box)
    load = make_load(index.trees, index.base_units, r)
    task, work = make_unsorted(r, load, sides, side), make_work(r, index.base_units.size)
    stack, trail = first_stack(r), first_trail()
    return r, task, work, start_deep(r, work.cut), (stack, trail), stack[0].copy()


@compiled
def falls_at(index: Any, sides: Any, side: int, cells: Any) -> bool:
    """Say whether a side falls at these cells, whatever the classes that it is not about score."""
    rule = index.rule
    reached, scores = np.empty(index.trees.roots.size, np.int32), np.empty(rule.base.size)
    judge_cells(index.trees, rule, sides, cells, reached, scores)
    if index.paths.group_start.size > 2:
        # Where their trees lead was not asked: elsewhere in the same cells it may be another leaf.
        for score in range(scores.size):
            if score != sides.plus[side] and score != sides.minus[side]:
                scores[score] = -np.inf
    return judge(rule, scores, sides.label, sides.low, sides.high) == CHANGED
