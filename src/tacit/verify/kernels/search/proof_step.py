"""Compiled: how one node of a written proof is closed, or where it is split.

A node is an interval of ranks per feature, for one sum of trees and one barrier.
"""

from typing import Any

from tacit.verify.kernels.jit import bare, compiled
from tacit.verify.kernels.search.bounds import is_open, plain_bound, refresh, share

FAR = 1 << 61
"""A cost beyond every sum of units."""


@bare
def choose_split(r: Any, task: Any, w: Any, gap: int) -> Any:
    """Pick the feature and the rank after which to split."""
    best, best_f, best_s = 0.0, -1, -1
    for f in range(r.feature_id.size):
        start = r.rank_start[f]
        if w.low[f] == w.high[f]:
            continue
        suffix = gap
        prefix_best, place = -1, -1
        # Scan from above; the least cost of the ranks below needs a second look.
        for s in range(w.high[f] - 1, w.low[f] - 1, -1):
            suffix = min(suffix, w.cost[start + s + 1])
            if suffix > prefix_best:
                prefix_best, place = suffix, s
        prefix = gap
        for s in range(w.low[f], w.high[f]):
            prefix = min(prefix, w.cost[start + s])
            if prefix > prefix_best:
                prefix_best, place = prefix, s
        # Worth: what both sides gain for certain, then what the better side gains; features that
        # many trees ask for untie the most.
        trees = r.slots_of_start[f + 1] - r.slots_of_start[f]
        score = trees * (32.0 * w.gain[f] + prefix_best)
        if score > best:
            best, best_f, best_s = score, f, place
    if best_f >= 0:
        return best_f, best_s
    return _separate(r, task, w, gap)


@bare
def _separate(r: Any, task: Any, w: Any, gap: int) -> Any:
    """Split between the two least leaves of some tree that has two."""
    for t in task.tree_order:
        first = task.order[w.least[t]]
        for at in range(w.least[t] + 1, r.leaf_start[t + 1]):
            leaf = task.order[at]
            if task.value[leaf] - task.value[first] >= gap:
                break
            if not is_open(r, leaf, w.low, w.high):
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


@compiled
def close_node(r: Any, task: Any, w: Any) -> Any:
    """Say how a written proof goes on: 0 bound, 1 share, 2 split (feature, rank) or 3 point.

    Where `tighten` would cut a rank off, the proof splits it off, one at a time.
    """
    bound = plain_bound(r, task, w)
    if bound >= task.barrier:
        return 0, -1, -1
    gap = task.barrier - bound
    refresh(r, task, w, gap)
    total = share(r, w, gap)
    if total >= gap:
        return 1, -1, -1
    for f in range(r.feature_id.size):
        if w.low[f] == w.high[f]:
            continue
        start, rest = r.rank_start[f], gap - (total - w.owned_gain[f])
        is_owner = w.owned_gain[f] > 0
        for end in (w.low[f], w.high[f]):
            if w.cost[start + end] >= gap or (is_owner and w.owned[start + end] >= rest):
                return 2, f, min(end, w.high[f] - 1)
    f, s = choose_split(r, task, w, gap)
    if f < 0:
        f, s = _separate(r, task, w, FAR)
    return (3, -1, -1) if f < 0 else (2, f, s)
