"""Compiled: branch and bound with the bound of `dual`, for what the quick search leaves open.

A node costs several times as much as in the quick search, and there are far fewer of them. The
feature to split is the one whose earlier splits raised the bound most on both sides.
"""

from typing import Any, NamedTuple

import numpy as np

from tacit.verify.branch import BLURRED, FOUND, PAUSED, PROVED
from tacit.verify.dual import GONE, make_dual, squeeze
from tacit.verify.jit import compiled
from tacit.verify.kernel import CHANGED, TIED, add_leaves, judge
from tacit.verify.polish import polish, take_point
from tacit.verify.segments import make_segments

POLISH_EVERY = 4
"""Nodes between two attempts to improve a point feature by feature."""
SLIGHT = 0.001
"""The part of the gap that a split gains at least, for the choice of splits."""
EXPECTED = 0.02
"""The part of the gap that a split is expected to gain, per tree, before one was tried."""


class Deep(NamedTuple):
    """What the search carries from node to node."""

    dual: Any
    gains: Any  # (features, 4): sum and count of gains below and above the splits of a feature
    live: Any  # (features): how many leaves that are open constrain it further


@compiled
def make_deep(r: Any) -> Any:
    """Start with no experience."""
    return start_deep(r, make_segments(r))


@compiled
def start_deep(r: Any, cut: Any) -> Any:
    """Start with no experience, where the segments are known."""
    n_features = r.feature_id.size
    return Deep(make_dual(r, cut), np.zeros((n_features, 4)), np.zeros(n_features, np.int64))


@compiled
def first_trail() -> Any:
    """Make the trail of a stack that holds the whole box: it comes from no split."""
    return np.full((16, 3), -1, np.int64)  # feature, side, bound before the split


@compiled
def count_live(r: Any, deep: Any, low: Any, high: Any) -> None:
    """Count, per feature, the leaves of undecided trees that need a part of its ranks."""
    cost, live = deep.dual.cost, deep.live
    for f in range(live.size):
        live[f] = 0
    for t in range(r.tree_id.size):
        is_open_tree = 0
        for leaf in range(r.leaf_start[t], r.leaf_start[t + 1]):
            if cost[leaf] != GONE:
                is_open_tree += 1
        if is_open_tree < 2:
            continue
        for leaf in range(r.leaf_start[t], r.leaf_start[t + 1]):
            if cost[leaf] == GONE:
                continue
            for c in range(r.con_start[leaf], r.con_start[leaf + 1]):
                f = r.con_feature[c]
                if r.con_low[c] > low[f] or r.con_high[c] < high[f]:
                    live[f] += 1


@compiled
def choose(r: Any, deep: Any, low: Any, high: Any, gap: float) -> Any:
    """Pick the feature that promises most on both sides, and the rank after which to split."""
    best, chosen = -1.0, -1
    for f in range(low.size):
        if low[f] == high[f] or deep.live[f] == 0:
            continue
        trees = r.slots_of_start[f + 1] - r.slots_of_start[f]
        below, above = EXPECTED * gap * trees, EXPECTED * gap * trees
        if deep.gains[f, 1] > 0:
            below = deep.gains[f, 0] / deep.gains[f, 1]
        if deep.gains[f, 3] > 0:
            above = deep.gains[f, 2] / deep.gains[f, 3]
        score = max(below, SLIGHT * gap) * max(above, SLIGHT * gap)
        if score > best:
            best, chosen = score, f
    if chosen < 0:
        return -1, -1
    # The two best ranks go to different sides.
    pick, second = deep.dual.pick[chosen], deep.dual.second[chosen]
    place = pick if second > pick else pick - 1
    return chosen, min(max(place, low[chosen]), high[chosen] - 1)


@compiled
def _push(stack: Any, trail: Any, top: int, low: Any, high: Any) -> Any:
    """Write a box on top of the stack, which may have to grow."""
    if top == stack.shape[0]:
        wider = np.empty((2 * top, stack.shape[1]), np.int32)
        wider[:top] = stack
        longer = np.empty((2 * top, 3), np.int64)
        longer[:top] = trail
        stack, trail = wider, longer
    for f in range(low.size):
        stack[top, f], stack[top, low.size + f] = low[f], high[f]
    return stack, trail


@compiled
def search_deep(
    trees: Any,
    rule: Any,
    r: Any,
    task: Any,
    w: Any,
    deep: Any,
    stack: Any,
    trail: Any,
    top: int,
    nodes: int,
) -> Any:
    """Explore at most `nodes` nodes, as `search` does; the trail goes with the stack."""
    n_features, visited = r.feature_id.size, 0
    low, high = np.empty(n_features, np.int32), np.empty(n_features, np.int32)
    first, last = low.copy(), high.copy()
    pick = deep.dual.pick
    while top > 0:
        if visited == nodes:
            return PAUSED, stack, trail, top, visited
        visited += 1
        top -= 1
        for f in range(n_features):
            low[f], high[f] = stack[top, f], stack[top, n_features + f]
        bound = min(squeeze(r, task, deep.dual, low, high), task.barrier)
        if trail[top, 0] >= 0:
            f, side = trail[top, 0], 2 * trail[top, 1]
            deep.gains[f, side] += bound - trail[top, 2]
            deep.gains[f, side + 1] += 1
        if bound == task.barrier:
            continue
        for f in range(n_features):
            pick[f] = min(max(pick[f], low[f]), high[f])
            first[f], last[f] = low[f], high[f]
        total = take_point(r, task, w, pick, first, last)
        if total >= task.barrier and visited % POLISH_EVERY == 0:
            for f in range(n_features):
                first[f] = pick[f]
            total = polish(r, task, w, first, last)
        if total < task.barrier:
            add_leaves(trees, rule, w.reached, w.scores)
            verdict = judge(rule, w.scores, task.label, task.low, task.high)
            if verdict == CHANGED:
                stack, trail = _push(stack, trail, 0, first, last)
                return FOUND, stack, trail, 1, visited
            if verdict == TIED:
                w.is_blurred[0] = True
        count_live(r, deep, low, high)
        f, place = choose(r, deep, low, high, float(task.barrier - bound))
        if f < 0:
            continue
        # The side of the best rank goes on top.
        is_below = pick[f] <= place
        for side in (int(is_below), int(not is_below)):
            stack, trail = _push(stack, trail, top, low, high)
            if side == 1:
                stack[top, f] = place + 1
            else:
                stack[top, n_features + f] = place
            trail[top, 0], trail[top, 1], trail[top, 2] = f, side, bound
            top += 1
    return (BLURRED if w.is_blurred[0] else PROVED), stack, trail, 0, visited
