"""Compiled: how one node of a written proof is closed, or where it is split.

A node is a range of ranks per feature, for one objective. The least leaf of each tree gives the
*plain* bound. The *profile* of a feature says, for each of its ranks, by how much the plain bound
rises when the feature takes that rank; a rank that lifts the bound to the threshold is split off.
Profiles of features that share no tree add up: trees are shared out among features, which gives the
*shared* bound. It is weaker than that of `mplp`, and can be checked in a few lines.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from tacit.jit import bare, compiled
from tacit.verify.kernels.layout.reach import Reach, Segments, is_reachable, make_segments
from tacit.verify.kernels.search.problem import Problem
from tacit.verify.kernels.tables import Ints, Longs

FAR = 1 << 61
"""A cost beyond every sum."""
BOTH = 32.0
"""How much more a rise on both branches counts than one on the better branch alone."""


class Closing(IntEnum):
    """How a written proof goes on from a node."""

    BOUND = 0
    SHARE = 1
    SPLIT = 2
    POINT = 3


class ProofSpace(NamedTuple):
    """Workspace of a proof writer: the leaves in order, and the profiles of a node."""

    order: Ints  # (leaves): leaves of each tree by rising value
    tree_order: Ints  # (open trees): widest spread first
    low: Ints  # (features): the node
    high: Ints
    least: Ints  # (open trees): least possible leaf, as a place in `order`
    cost: Longs  # (ranks): the profile of every feature
    cut: Segments
    profile: Longs  # one row of ranks per slot
    part: Longs  # (segments): the profile, as one tree sees it; -1 outside of the box
    owner: Ints  # (open trees): the feature it was given to, or -1
    gain: Longs  # (features): the least cost of the feature's ranks
    owned: Longs  # (ranks): the cost of a rank in the trees that its feature owns
    owned_gain: Longs  # (features)


@compiled
def make_proof_space(r: Reach, task: Problem) -> ProofSpace:
    """Allocate a workspace, and sort the leaves of every tree."""
    n_features, n_open, cut = r.feature_id.size, r.tree_id.size, make_segments(r)
    order, tree_order = _sort_leaves(r, task.value)
    return ProofSpace(
        order=order,
        tree_order=tree_order,
        low=np.zeros(n_features, np.int32),
        high=np.zeros(n_features, np.int32),
        least=np.zeros(n_open, np.int32),
        cost=np.zeros(r.rank_low.size, np.int64),
        cut=cut,
        profile=np.empty(cut.row_start[-1], np.int64),
        part=np.zeros(cut.first.size, np.int64),
        owner=np.full(n_open, -1, np.int32),
        gain=np.zeros(n_features, np.int64),
        owned=np.zeros(r.rank_low.size, np.int64),
        owned_gain=np.zeros(n_features, np.int64),
    )


@compiled
def close_node(r: Reach, task: Problem, w: ProofSpace) -> tuple[Closing, int, int]:
    """Say how a written proof goes on from the node: the step, and feature and rank of a split."""
    bound = _plain_bound(r, task, w)
    if bound >= task.threshold:
        return Closing.BOUND, -1, -1
    gap = task.threshold - bound
    _profile_node(r, task, w, gap)
    total = _share_out(r, w, gap)
    if total >= gap:
        return Closing.SHARE, -1, -1
    for f in range(r.feature_id.size):
        if w.low[f] == w.high[f]:
            continue
        start, rest = r.rank_start[f], gap - (total - w.owned_gain[f])
        is_owner = w.owned_gain[f] > 0
        for end in (w.low[f], w.high[f]):
            if w.cost[start + end] >= gap or (is_owner and w.owned[start + end] >= rest):
                return Closing.SPLIT, f, min(end, w.high[f] - 1)
    f, s = _choose_split(r, task, w, gap)
    if f < 0:
        f, s = _separate(r, task, w, FAR)
    return (Closing.POINT, -1, -1) if f < 0 else (Closing.SPLIT, f, s)


@compiled
def _sort_leaves(r: Reach, value: Longs) -> tuple[Ints, Ints]:
    order, spread = np.empty(value.size, np.int32), np.empty(r.tree_id.size, np.int64)
    for t in range(spread.size):
        first, last = r.leaf_start[t], r.leaf_start[t + 1]
        order[first:last] = first + np.argsort(value[first:last], kind="mergesort")
        spread[t] = value[order[first]] - value[order[last - 1]]
    return order, np.argsort(spread).astype(np.int32)


@bare
def _plain_bound(r: Reach, task: Problem, w: ProofSpace) -> int:
    """Add up the least possible leaf of every tree and remember where it is."""
    total = task.base
    for t in range(r.tree_id.size):
        at = r.leaf_start[t]
        while not is_reachable(r, w.order[at], w.low, w.high):
            at += 1
        w.least[t] = at
        total += task.value[w.order[at]]
    return total


@bare
def _profile_node(r: Reach, task: Problem, w: ProofSpace, gap: int) -> None:
    """Fill the profiles of all trees, and the costs and gains of features."""
    for at in range(w.cost.size):
        w.cost[at] = 0
    for t in range(r.tree_id.size):
        _profile_tree(r, task, w, t, gap)
        for s in range(r.slot_start[t], r.slot_start[t + 1]):
            f = r.slot_feature[s]
            to, start = r.rank_start[f], w.cut.row_start[s]
            for rank in range(w.low[f], w.high[f] + 1):
                w.cost[to + rank] += w.profile[start + rank]
    for f in range(r.feature_id.size):
        least = gap
        for at in range(r.rank_start[f] + w.low[f], r.rank_start[f] + w.high[f] + 1):
            least = min(least, w.cost[at])
        w.gain[f] = least


@bare
def _profile_tree(r: Reach, task: Problem, w: ProofSpace, t: int, gap: int) -> None:
    """Fill the profiles of one tree, cut off at the gap."""
    cut, part, left = w.cut, w.part, 0
    for s in range(r.slot_start[t], r.slot_start[t + 1]):
        f = r.slot_feature[s]
        for k in range(cut.start[s], cut.start[s + 1]):
            is_inside = cut.first[k] <= w.high[f] and cut.last[k] >= w.low[f]
            part[k] = gap if is_inside else -1
            left += is_inside
    least = task.value[w.order[w.least[t]]]
    for at in range(w.least[t], r.leaf_start[t + 1]):
        leaf = w.order[at]
        extra = task.value[leaf] - least
        if extra >= gap or left == 0:
            break
        if not is_reachable(r, leaf, w.low, w.high):
            continue
        for s in range(r.slot_start[t], r.slot_start[t + 1]):
            pair = cut.pair_start[s] + leaf - r.leaf_start[t]
            for k in range(cut.pair_first[pair], cut.pair_last[pair] + 1):
                if part[k] == gap:
                    part[k] = extra
                    left -= 1
    for s in range(r.slot_start[t], r.slot_start[t + 1]):
        f, start = r.slot_feature[s], cut.row_start[s]
        for k in range(cut.start[s], cut.start[s + 1]):
            for rank in range(max(cut.first[k], w.low[f]), min(cut.last[k], w.high[f]) + 1):
                w.profile[start + rank] = part[k]


@compiled
def _share_out(r: Reach, w: ProofSpace, gap: int) -> int:
    """Share trees out among features, greedily; return what the bound gains.

    Afterwards `owned` and `owned_gain` of a feature count the trees it was given.
    """
    for t in range(w.owner.size):
        w.owner[t] = -1
    for f in range(w.owned_gain.size):
        w.owned_gain[f] = 0
    total = 0
    for f in np.argsort(-w.gain):
        if w.gain[f] <= 0:
            break
        start = r.rank_start[f]
        least = gap
        for rank in range(w.low[f], w.high[f] + 1):
            cost = 0
            for i in range(r.slots_of_start[f], r.slots_of_start[f + 1]):
                s = r.slots_of[i]
                if w.owner[r.slot_tree[s]] < 0:
                    cost += w.profile[w.cut.row_start[s] + rank]
            w.owned[start + rank] = min(cost, gap)
            least = min(least, cost)
            if least == 0:
                break
        if least == 0:
            continue
        total += least
        w.owned_gain[f] = least
        for i in range(r.slots_of_start[f], r.slots_of_start[f + 1]):
            t = r.slot_tree[r.slots_of[i]]
            if w.owner[t] < 0:
                w.owner[t] = f
        if total >= gap:
            return gap
    return total


@bare
def _choose_split(r: Reach, task: Problem, w: ProofSpace, gap: int) -> tuple[int, int]:
    """Pick the feature and the rank after which to split."""
    best, best_f, best_s = 0.0, -1, -1
    for f in range(r.feature_id.size):
        start = r.rank_start[f]
        if w.low[f] == w.high[f]:
            continue
        suffix, prefix, rise, place = gap, gap, -1, -1
        # Scan from above; the least cost of the ranks below needs a second look.
        for s in range(w.high[f] - 1, w.low[f] - 1, -1):
            suffix = min(suffix, w.cost[start + s + 1])
            if suffix > rise:
                rise, place = suffix, s
        for s in range(w.low[f], w.high[f]):
            prefix = min(prefix, w.cost[start + s])
            if prefix > rise:
                rise, place = prefix, s
        # Features that many trees ask for untie the most.
        trees = r.slots_of_start[f + 1] - r.slots_of_start[f]
        score = trees * (BOTH * w.gain[f] + rise)
        if score > best:
            best, best_f, best_s = score, f, place
    if best_f >= 0:
        return best_f, best_s
    return _separate(r, task, w, gap)


@bare
def _separate(r: Reach, task: Problem, w: ProofSpace, gap: int) -> tuple[int, int]:
    """Split between the two least leaves of some tree that has two."""
    for t in w.tree_order:
        first = w.order[w.least[t]]
        for at in range(w.least[t] + 1, r.leaf_start[t + 1]):
            leaf = w.order[at]
            if task.value[leaf] - task.value[first] >= gap:
                break
            if not is_reachable(r, leaf, w.low, w.high):
                continue
            for c in range(r.con_start[first], r.con_start[first + 1]):
                for d in range(r.con_start[leaf], r.con_start[leaf + 1]):
                    if r.con_feature[c] != r.con_feature[d]:
                        continue
                    if r.con_high[c] < r.con_low[d]:
                        return r.con_feature[c], r.con_high[c]
                    if r.con_high[d] < r.con_low[c]:
                        return r.con_feature[c], r.con_high[d]
    return -1, -1
