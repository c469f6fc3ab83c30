"""Compiled: trees that share no open feature.

What two such *components* of an ensemble add to a sum does not depend on each other, so the least
sum is the sum of their least ones. Searched together, their nodes multiply; one by one, they add
up.
"""

from typing import NamedTuple

import numpy as np

from tacit.jit import bare, compiled
from tacit.verify.kernels.attack.descent import descend
from tacit.verify.kernels.attack.neighbours import judge_intervals
from tacit.verify.kernels.layout.reach import Reach, reach_open
from tacit.verify.kernels.presolve.scores import judge
from tacit.verify.kernels.search.branch import Open, State, make_state, open_whole
from tacit.verify.kernels.search.problem import (
    Problem,
    make_load,
    make_problem,
    plain_bound,
    whole_box,
)
from tacit.verify.kernels.tables import Index, Ints, Longs, Objectives, Outcome


class Part(NamedTuple):
    """The problem of one component, in which every other tree has a leaf that is given."""

    r: Reach
    task: Problem
    state: State
    stack: Open
    bound: int  # of its least sum
    best: Ints  # becomes the ranks of its least sum


@compiled
def label_components(r: Reach) -> tuple[Longs, int, int]:
    """Number the components of open trees; trees that share nothing make one together.

    Returns:
        the component of each open tree, how many there are, and how many of them have several
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
def _find(root: Longs, f: int) -> int:
    while root[f] != f:
        root[f] = root[root[f]]
        f = root[f]
    return f


@bare
def hull_intervals(r: Reach, stack: Open, top: int, low: Ints, high: Ints) -> None:
    """Narrow a box of intervals to the least box around those on a stack."""
    n_features, box = r.feature_id.size, stack.box
    for g in range(n_features):
        first, last = box[0, g], box[0, n_features + g]
        for row in range(1, top):
            first, last = min(first, box[row, g]), max(last, box[row, n_features + g])
        low[r.feature_id[g]] = r.rank_low[r.rank_start[g] + first]
        high[r.feature_id[g]] = r.rank_high[r.rank_start[g] + last]


@compiled
def fix_other_trees(index: Index, objectives: Objectives, objective: int) -> Ints:
    """Give trees that add nothing to an objective's classes some leaf; -1 for the rest."""
    nodes, roots = index.nodes, index.trees.roots
    known, start = np.full(roots.size, -1, np.int32), nodes.group_start
    if start.size == 2:
        return known
    for group in range(start.size - 1):
        if group in (objectives.plus[objective], objectives.minus[objective]):
            continue
        for at in range(start[group], start[group + 1]):
            node = roots[nodes.order[at]]
            while index.trees.left[node] >= 0:
                node = index.trees.left[node]
            known[nodes.order[at]] = node
    return known


@compiled
def start_incumbent(
    index: Index, objectives: Objectives, objective: int, r: Reach
) -> tuple[int, Ints, Ints]:
    """Find a point to start from; return its sum, the leaves of all trees and its ranks."""
    load = make_load(index.trees, index.base_fixed, r)
    task, reached = make_problem(r, load, objectives, objective), r.fixed_leaf.copy()
    row, n_features = whole_box(r), r.feature_id.size
    total = descend(r, task, reached, row[:n_features], row[n_features:])
    return total, reached, row


@compiled
def start_part(
    index: Index,
    objectives: Objectives,
    objective: int,
    r: Reach,
    label: Longs,
    component: int,
    leaves: Ints,
    box: tuple[Ints, Ints],
) -> Part:
    """Make the problem of one component, in which every other tree has the leaf that is given."""
    known = leaves.copy()
    for t in range(label.size):
        if label[t] == component:
            known[r.tree_id[t]] = -1
    own = reach_open(index.trees, known, box[0], box[1])
    load = make_load(index.trees, index.base_fixed, own)
    state = make_state(own, index.base_fixed.size)
    plus, minus = objectives.plus[objective], objectives.minus[objective]
    return Part(
        r=own,
        task=make_problem(own, load, objectives, objective),
        state=state,
        stack=open_whole(own, state.mplp),
        bound=plain_bound(own, load, plus, minus),
        best=whole_box(own),
    )


@compiled
def falls_at(index: Index, objectives: Objectives, objective: int, intervals: Ints) -> bool:
    """Say whether an objective falls at a point, whatever the classes it is not about score."""
    rule = index.rule
    reached, scores = np.empty(index.trees.roots.size, np.int32), np.empty(rule.base.size)
    judge_intervals(index.trees, rule, objectives, intervals, reached, scores)
    if index.nodes.group_start.size > 2:
        # Where their trees lead was not asked: elsewhere in the same box it may be another leaf.
        for score in range(scores.size):
            if score != objectives.plus[objective] and score != objectives.minus[objective]:
                scores[score] = -np.inf
    outcome = judge(rule, scores, objectives.label, objectives.low, objectives.high)
    return bool(outcome == Outcome.COUNTEREXAMPLE)
