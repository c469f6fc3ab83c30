"""Compiled: branch and bound over ranks, for one sum of trees and one barrier.

The question: can one point of the box bring the sum of units below `barrier`, so that the library
decides otherwise? A node of the search is an interval of ranks per feature. A node that no bound
closes is dived into (each tree in turn takes its least leaf that is still possible): that is a
real point, judged in the library's own arithmetic.
"""

from typing import Any

import numpy as np

from tacit.verify.bounds import is_open, mark_stale, plain_bound, refresh, reset, share, tighten
from tacit.verify.jit import bare, compiled
from tacit.verify.kernel import CHANGED, TIED, add_leaves, judge
from tacit.verify.polish import polish

FAR = 1 << 61
"""A cost beyond every sum of units."""

PROVED, FOUND, BLURRED, PAUSED = 0, 1, 2, 3


@bare
def dive(r: Any, task: Any, w: Any, low: Any, high: Any) -> Any:
    """Give each tree in turn its least leaf that is still possible; narrows low and high."""
    total = task.base
    for t in task.tree_order:
        at = w.least[t]
        while not is_open(r, task.order[at], low, high):
            at += 1
        leaf = task.order[at]
        for c in range(r.con_start[leaf], r.con_start[leaf + 1]):
            f = r.con_feature[c]
            low[f], high[f] = max(low[f], r.con_low[c]), min(high[f], r.con_high[c])
        w.reached[r.tree_id[t]] = r.leaf_node[leaf]
        total += task.value[leaf]
    return total


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


@compiled
def _write(stack: Any, row: int, low: Any, high: Any) -> None:
    for f in range(low.size):
        stack[row, f], stack[row, low.size + f] = low[f], high[f]


@compiled
def _taller(stack: Any) -> Any:
    taller = np.empty((2 * stack.shape[0], stack.shape[1]), np.int32)
    for row in range(stack.shape[0]):
        for column in range(stack.shape[1]):
            taller[row, column] = stack[row, column]
    return taller


@compiled
def search(
    trees: Any, rule: Any, r: Any, task: Any, w: Any, stack: Any, top: int, nodes: int
) -> Any:
    """Explore at most `nodes` nodes; return the outcome, the stack and what is known.

    The stack holds intervals of ranks, lower ends first; a FOUND answer leaves the narrowed
    intervals of the witness in row 0.
    """
    n_features = r.feature_id.size
    visited = 0
    low, high = np.empty(n_features, np.int32), np.empty(n_features, np.int32)
    last_split = -1
    while top > 0:
        if visited == nodes:
            return PAUSED, stack, top, visited
        visited += 1
        top -= 1
        for f in range(n_features):
            w.low[f], w.high[f] = stack[top, f], stack[top, n_features + f]
        if last_split >= 0:
            mark_stale(r, w, last_split)
        else:
            reset(w)
        last_split = -1
        bound, has_choice = tighten(r, task, w)
        if bound >= task.barrier:
            continue
        for f in range(n_features):
            low[f], high[f] = w.low[f], w.high[f]
        total = dive(r, task, w, low, high)
        # Rarely, and never at a node that may be the only one.
        if total >= task.barrier and visited > 1 and visited & (visited - 1) == 0:
            total = polish(r, task, w, low, high)
        if total < task.barrier:
            add_leaves(trees, rule, w.reached, w.scores)
            verdict = judge(rule, w.scores, task.label, task.low, task.high)
            if verdict == CHANGED:
                _write(stack, 0, low, high)
                return FOUND, stack, 1, visited
            if verdict == TIED:
                w.is_blurred[0] = True
        if not has_choice:
            continue
        plain = task.base
        for t in range(r.tree_id.size):
            plain += task.value[task.order[w.least[t]]]
        f, s = choose_split(r, task, w, task.barrier - plain)
        if f < 0:
            continue
        last_split = f
        if top + 2 > stack.shape[0]:
            stack = _taller(stack)
        start = r.rank_start[f]
        below, above = FAR, FAR
        for rank in range(w.low[f], w.high[f] + 1):
            if rank <= s:
                below = min(below, w.cost[start + rank])
            else:
                above = min(above, w.cost[start + rank])
        # The promising side goes on top.
        for side in range(2):
            _write(stack, top, w.low, w.high)
            if (side == 0) == (below <= above):
                stack[top, f] = s + 1
            else:
                stack[top, n_features + f] = s
            top += 1
    return (BLURRED if w.is_blurred[0] else PROVED), stack, 0, visited
