"""Compiled: tabu search from point to point, which knows what every next step would change.

For the point where it stands, the search keeps a table: by how much the sum would change if one
feature alone moved to another rank. A step changes the table only in the trees that ask for the
feature that moved. Steps down are taken while there are any, then the least step up; what has just
moved rests for a while, so that the search does not run in circles (Glover 1989). Nothing is proved
here.
"""

from typing import NamedTuple

import numpy as np

from tacit.jit import bare, compiled
from tacit.verify.kernels.layout.reach import Reach
from tacit.verify.kernels.search.problem import Problem
from tacit.verify.kernels.tables import Bools, Ints, Longs

NOWHERE = 1 << 60
"""The change of a step that leads nowhere."""

REST = 10
"""For how many steps a feature that has moved rests."""


class Tabu(NamedTuple):
    """A point, and what one step from it would change."""

    near_low: Ints  # (features): the ranks of a smaller box
    near_high: Ints
    point: Ints  # (features): a rank each
    reached: Ints  # (open trees): the leaves of the point
    total: Longs  # (1): their sum
    start: Longs  # (features): where the steps of a feature begin
    steps: Longs  # by how much the change of the sum differs from that of the rank before
    near: Longs  # (features): the least change within the smaller box
    near_rank: Ints
    far: Longs  # (features): the least change
    far_rank: Ints
    is_stale: Bools  # (features): the four above are to be found again
    stale: Longs  # (features + 1): which these are, and in the end how many
    until: Longs  # (features): the step from which on it may move again
    clock: Longs  # (1): steps so far


@compiled
def make_tabu(r: Reach, interval_low: Ints, interval_high: Ints) -> Tabu:
    """Make room for walks in a box, and in a smaller box of intervals."""
    n = r.feature_id.size
    low, high = np.zeros(n, np.int32), np.zeros(n, np.int32)
    for g in range(n):
        f, first, last = r.feature_id[g], r.rank_start[g], r.rank_start[g + 1] - 1
        while first + low[g] < last and r.rank_high[first + low[g]] < interval_low[f]:
            low[g] += 1
        high[g] = low[g]
        while first + high[g] < last and r.rank_low[first + high[g] + 1] <= interval_high[f]:
            high[g] += 1
    return Tabu(
        near_low=low,
        near_high=high,
        point=np.zeros(n, np.int32),
        reached=np.zeros(r.tree_id.size, np.int32),
        total=np.zeros(1, np.int64),
        start=np.arange(n) + r.rank_start[:n],
        steps=np.zeros(n + r.rank_low.size, np.int64),
        near=np.zeros(n, np.int64),
        near_rank=np.zeros(n, np.int32),
        far=np.zeros(n, np.int64),
        far_rank=np.zeros(n, np.int32),
        is_stale=np.zeros(n, np.bool_),
        stale=np.zeros(n + 1, np.int64),
        until=np.zeros(n, np.int64),
        clock=np.zeros(1, np.int64),
    )


@bare
def begin(r: Reach, task: Problem, s: Tabu, point: Ints) -> None:
    """Begin a walk."""
    for f in range(point.size):
        s.point[f], s.near[f], s.far[f] = point[f], NOWHERE, NOWHERE
        s.is_stale[f], s.until[f] = False, 0
    s.stale[point.size] = s.clock[0] = 0
    s.steps[:] = 0
    s.total[0] = task.base
    for t in range(r.tree_id.size):
        _enter(r, task, s, t)
        _count(r, task, s, t, 1)
    _refresh(r, s)


@bare
def _enter(r: Reach, task: Problem, s: Tabu, t: int) -> None:
    """Find the leaf of a tree, and add it to the sum."""
    for leaf in range(r.leaf_start[t], r.leaf_start[t + 1]):
        is_reached = True
        for c in range(r.con_start[leaf], r.con_start[leaf + 1]):
            at = s.point[r.con_feature[c]]
            if at < r.con_low[c] or at > r.con_high[c]:
                is_reached = False
                break
        if is_reached:
            s.reached[t] = leaf
            s.total[0] += task.value[leaf]
            return


@bare
def _count(r: Reach, task: Problem, s: Tabu, t: int, sign: int) -> None:
    """Add what single steps change in one tree to the table, or take it away."""
    here, n = task.value[s.reached[t]], s.is_stale.size
    for leaf in range(r.leaf_start[t], r.leaf_start[t + 1]):
        missed = -1
        for c in range(r.con_start[leaf], r.con_start[leaf + 1]):
            at = s.point[r.con_feature[c]]
            if at < r.con_low[c] or at > r.con_high[c]:
                if missed >= 0:  # two features stand between
                    missed = -1
                    break
                missed = c
        if missed < 0:
            continue
        f, change = r.con_feature[missed], sign * (task.value[leaf] - here)
        s.steps[s.start[f] + r.con_low[missed]] += change
        s.steps[s.start[f] + r.con_high[missed] + 1] -= change
        if not s.is_stale[f]:
            s.is_stale[f] = True
            s.stale[s.stale[n]] = f
            s.stale[n] += 1


@bare
def _refresh(r: Reach, s: Tabu) -> None:
    """Find the least change again where the table has changed."""
    n = s.is_stale.size
    for i in range(s.stale[n]):
        f = s.stale[i]
        s.is_stale[f] = False
        near, far, change = NOWHERE, NOWHERE, 0
        for rank in range(r.rank_start[f + 1] - r.rank_start[f]):
            change += s.steps[s.start[f] + rank]
            if change == 0:
                continue
            if change < far:
                far, s.far_rank[f] = change, rank
            if change < near and s.near_low[f] <= rank <= s.near_high[f]:
                near, s.near_rank[f] = change, rank
        s.near[f], s.far[f] = near, far
    s.stale[n] = 0


@compiled
def move(r: Reach, task: Problem, s: Tabu, f: int, rank: int) -> None:
    """Move one feature."""
    first, last = r.slots_of_start[f], r.slots_of_start[f + 1]
    for i in range(first, last):
        _count(r, task, s, r.slot_tree[r.slots_of[i]], -1)
    s.point[f] = rank
    for i in range(first, last):
        t = r.slot_tree[r.slots_of[i]]
        s.total[0] -= task.value[s.reached[t]]
        _enter(r, task, s, t)
        _count(r, task, s, t, 1)
    _refresh(r, s)


@bare
def step(r: Reach, task: Problem, s: Tabu, change: Longs, rank: Ints, best: int) -> bool:
    """Take the step that changes least; what rests moves only to get lower than ever.

    Args:
        r: the problem.
        task: the objective.
        s: where the search stands.
        change: `s.near` to stay in the smaller box, or `s.far`.
        rank: `s.near_rank` or `s.far_rank`.
        best: the lowest sum so far.
    """
    chosen, least = -1, NOWHERE
    for f in range(change.size):
        is_ready = s.until[f] <= s.clock[0] or s.total[0] + change[f] < best
        if change[f] < least and is_ready:
            chosen, least = f, change[f]
    if chosen < 0:
        return False
    s.clock[0] += 1
    s.until[chosen] = s.clock[0] + REST
    move(r, task, s, chosen, rank[chosen])
    return True


@compiled
def descend_within(r: Reach, task: Problem, s: Tabu, steps: int) -> Ints:
    """Walk within the smaller box; return the lowest point."""
    best, lowest = s.total[0], s.point.copy()
    for _ in range(steps):
        if not step(r, task, s, s.near, s.near_rank, best):
            break
        if s.total[0] < best:
            best = s.total[0]
            lowest[:] = s.point
    return lowest
