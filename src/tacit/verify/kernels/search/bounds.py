"""Compiled: lower bounds for the branch and bound over ranks.

The least leaf of each tree gives the *plain* bound. The *profile* of a feature says, for each of
its ranks, by how much the plain bound rises when the feature takes that rank; a rank that lifts
the bound to the barrier is cut off. Profiles of features that share no tree add up: trees are
shared out among features, which gives the *shared* bound, and cuts off more ranks.
"""

from typing import Any, NamedTuple

import numpy as np

from tacit.verify.kernels.jit import bare, compiled
from tacit.verify.kernels.layout.segments import make_segments


class Task(NamedTuple):
    """One question: leaf values in units, sorted within each tree, and what they must not reach."""

    value: Any  # (leaves): units, in the order of Reach.leaf_node
    order: Any  # (leaves): leaves of each tree by rising value
    tree_order: Any  # (open trees): widest spread first
    base: Any  # units of everything that is constant
    barrier: Any  # sums of at least this keep the prediction
    label: Any
    low: Any  # for a regression: the outputs that are still fine
    high: Any


class Work(NamedTuple):
    """Scratch arrays of one search."""

    low: Any
    high: Any
    least: Any  # (open trees): least possible leaf, as a place in `order`
    cost: Any  # (ranks): the profile of every feature
    cut: Any  # the segments of every slot
    profile: Any  # one row of ranks per slot
    part: Any  # (segments): the profile, as one tree sees it; -1 outside of the box
    is_stale: Any  # (open trees): a feature of it has changed since it was last looked at
    is_reset: Any  # (1): no profile has been added up yet
    is_blurred: Any  # (1): a point was too close to a tie to be judged
    has_choice: Any  # (open trees): a second leaf may be within the gap
    owner: Any  # (open trees): the feature it was given to, or -1
    gain: Any  # (features): the least cost of the feature's ranks
    owned: Any  # (ranks): the cost of a rank in the trees that its feature owns
    owned_gain: Any  # (features)
    reached: Any  # (trees): the leaf of every tree at the dive's point
    scores: Any


@compiled
def make_work(r: Any, n_scores: int) -> Any:
    """Allocate the scratch arrays for a problem."""
    n_features, n_open = r.feature_id.size, r.tree_id.size
    cut = make_segments(r)
    return Work(
        np.zeros(n_features, np.int32),
        np.zeros(n_features, np.int32),
        np.zeros(n_open, np.int32),
        np.zeros(r.rank_low.size, np.int64),
        cut,
        np.empty(cut.row_start[-1], np.int64),
        np.zeros(cut.first.size, np.int64),
        np.ones(n_open, np.bool_),
        np.ones(1, np.bool_),
        np.zeros(1, np.bool_),
        np.ones(n_open, np.bool_),
        np.full(n_open, -1, np.int32),
        np.zeros(n_features, np.int64),
        np.zeros(r.rank_low.size, np.int64),
        np.zeros(n_features, np.int64),
        r.fixed_leaf.copy(),
        np.zeros(n_scores, np.float64),
    )


@bare
def reset(w: Any) -> None:
    """Forget everything that was computed for another node."""
    for t in range(w.is_stale.size):
        w.is_stale[t] = True
    w.is_reset[0] = True
    for at in range(w.cost.size):
        w.cost[at] = 0


@bare
def is_open(r: Any, leaf: int, low: Any, high: Any) -> bool:
    """Say whether a leaf can be reached from an interval of ranks per feature."""
    for c in range(r.con_start[leaf], r.con_start[leaf + 1]):
        f = r.con_feature[c]
        if r.con_low[c] > high[f] or r.con_high[c] < low[f]:
            return False
    return True


@bare
def plain_bound(r: Any, task: Any, w: Any) -> Any:
    """Add up the least possible leaf of every tree and remember where it is."""
    total = task.base
    for t in range(r.tree_id.size):
        if w.is_stale[t]:
            at = r.leaf_start[t]
            while not is_open(r, task.order[at], w.low, w.high):
                at += 1
            w.least[t] = at
        total += task.value[task.order[w.least[t]]]
    return total


@bare
def _profile_tree(r: Any, task: Any, w: Any, t: int, gap: int) -> bool:
    """Fill the profiles of one tree, cut off at the gap; say whether a second leaf is below it."""
    cut, part, left = w.cut, w.part, 0
    for s in range(r.slot_start[t], r.slot_start[t + 1]):
        f = r.slot_feature[s]
        for k in range(cut.start[s], cut.start[s + 1]):
            is_inside = cut.first[k] <= w.high[f] and cut.last[k] >= w.low[f]
            part[k] = gap if is_inside else -1
            left += is_inside
    least = task.value[task.order[w.least[t]]]
    viable = 0
    for at in range(w.least[t], r.leaf_start[t + 1]):
        leaf = task.order[at]
        extra = task.value[leaf] - least
        if extra >= gap or left == 0:
            break
        if not is_open(r, leaf, w.low, w.high):
            continue
        viable += 1
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
    return viable > 1


@bare
def _add_profiles(r: Any, w: Any, t: int, sign: int) -> None:
    for s in range(r.slot_start[t], r.slot_start[t + 1]):
        f = r.slot_feature[s]
        to, start = r.rank_start[f], w.cut.row_start[s]
        for rank in range(w.low[f], w.high[f] + 1):
            w.cost[to + rank] += sign * w.profile[start + rank]


@bare
def refresh(r: Any, task: Any, w: Any, gap: int) -> None:
    """Bring the profiles of stale trees, and the costs and gains of features, up to date."""
    for t in range(r.tree_id.size):
        if w.is_stale[t]:
            if not w.is_reset[0]:
                _add_profiles(r, w, t, -1)
            # What was filled with an older, larger gap stays right elsewhere.
            w.has_choice[t] = _profile_tree(r, task, w, t, gap)
            _add_profiles(r, w, t, 1)
            w.is_stale[t] = False
    w.is_reset[0] = False
    for f in range(r.feature_id.size):
        least = gap
        for at in range(r.rank_start[f] + w.low[f], r.rank_start[f] + w.high[f] + 1):
            least = min(least, w.cost[at])
        w.gain[f] = least


@compiled
def share(r: Any, w: Any, gap: int) -> Any:
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
