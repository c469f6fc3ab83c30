"""Compiled: branch and bound with the bound of `accord`, for what the quick search leaves open.

Nodes are cheap: one or two rounds of messages, which go on from those of the node above. The
feature to split is the one whose earlier splits raised the bound most on both sides; its ranks are
halved.
"""

from typing import Any, NamedTuple

import numpy as np

from tacit.verify.kernels.attack.descent import polish, take_point
from tacit.verify.kernels.jit import bare, compiled
from tacit.verify.kernels.layout.segments import make_segments
from tacit.verify.kernels.presolve.scores import (
    BLURRED,
    CHANGED,
    FOUND,
    PAUSED,
    PROVED,
    TIED,
    add_leaves,
    judge,
)
from tacit.verify.kernels.search.bounds import Task
from tacit.verify.kernels.search.messages import GONE, make_dual
from tacit.verify.kernels.search.mplp import make_accord, recall, remember, squeeze

POLISH_EVERY, POLISH_WIDE = 4, 12
"""Nodes between two attempts to improve a point feature by feature; where that costs more."""
SLIGHT = 0.001
"""The part of the gap that a split gains at least, for the choice of splits."""
EXPECTED = 0.02
"""The part of the gap that a split is expected to gain, per tree, before one was tried."""
TRAIL = 3
"""Words of a trail before the messages: feature, side, bound before the split."""
MANY_RANKS = 12
"""Ranks per feature, on average, from which on the deep search comes first."""


class Deep(NamedTuple):
    """What the search carries from node to node."""

    dual: Any
    gains: Any  # (features, 4): sum and count of gains below and above the splits of a feature
    live: Any  # (features): how many leaves that are open constrain it further


@compiled
def make_deep(r: Any) -> Any:
    """Start with no experience, and with messages that can be carried to another box."""
    n_features, cut = r.feature_id.size, make_segments(r)
    return Deep(make_dual(r, cut), np.zeros((n_features, 4)), np.zeros(n_features, np.int64))


@compiled
def start_deep(r: Any, cut: Any) -> Any:
    """Start with no experience, where the segments are known, for `search_deep`."""
    n_features = r.feature_id.size
    return Deep(make_accord(r, cut), np.zeros((n_features, 4)), np.zeros(0, np.int64))


@compiled
def first_trail() -> Any:
    """Make the trail of a stack that holds the whole box: it comes from no split."""
    return np.full((16, TRAIL), -1, np.int64)


@bare
def is_wide(r: Any) -> Any:
    """Say whether features have so many ranks that the quick search is not the quicker one."""
    return r.rank_low.size > MANY_RANKS * r.feature_id.size


@bare
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


@bare
def _is_live(r: Any, a: Any, f: int, low: int, high: int) -> bool:
    """Say whether some leaf that is open needs a part of a feature's ranks."""
    for i in range(r.slots_of_start[f], r.slots_of_start[f + 1]):
        s = r.slots_of[i]
        t = r.slot_tree[s]
        for at in range(r.leaf_start[t], r.leaf_start[t] + a.count[t]):
            leaf = a.alive[at]
            pair = a.cut.pair_start[s] + leaf - r.leaf_start[t]
            first, last = a.cut.first[a.cut.pair_first[pair]], a.cut.last[a.cut.pair_last[pair]]
            if a.cost[leaf] != GONE and (first > low or last < high):
                return True
    return False


@bare
def _promise(r: Any, deep: Any, f: int, gap: float) -> Any:
    """Say what a split of a feature promises, on both sides together."""
    trees = r.slots_of_start[f + 1] - r.slots_of_start[f]
    below, above = EXPECTED * gap * trees, EXPECTED * gap * trees
    if deep.gains[f, 1] > 0:
        below = deep.gains[f, 0] / deep.gains[f, 1]
    if deep.gains[f, 3] > 0:
        above = deep.gains[f, 2] / deep.gains[f, 3]
    return max(below, SLIGHT * gap) * max(above, SLIGHT * gap)


@bare
def choose(r: Any, deep: Any, low: Any, high: Any, gap: float) -> Any:
    """Pick the feature that promises most on both sides, and the rank after which to split."""
    best, chosen = -1.0, -1
    for f in range(low.size):
        if low[f] == high[f] or deep.live[f] == 0:
            continue
        score = _promise(r, deep, f, gap)
        if score > best:
            best, chosen = score, f
    if chosen < 0:
        return -1, -1
    # The two best ranks go to different sides.
    pick, second = deep.dual.pick[chosen], deep.dual.second[chosen]
    place = pick if second > pick else pick - 1
    return chosen, min(max(place, low[chosen]), high[chosen] - 1)


@bare
def choose_half(r: Any, deep: Any, low: Any, high: Any, gap: float) -> Any:
    """Pick the feature that promises most on both sides, and the middle of its ranks."""
    best, chosen = -1.0, -1
    for f in range(low.size):
        if low[f] == high[f]:
            continue
        score = _promise(r, deep, f, gap)
        if score > best and _is_live(r, deep.dual, f, low[f], high[f]):
            best, chosen = score, f
    if chosen < 0:
        return -1, -1
    return chosen, (low[chosen] + high[chosen] - 1) // 2


@compiled
def _widen(stack: Any, trail: Any, a: Any) -> Any:
    """Make room in every row for how many leaves are alive, and for messages to go on from.

    Of a stack that has no such room only the first row is in use.
    """
    n_rows, n_ends = stack.shape
    wider = np.empty((n_rows, n_ends + a.count.size), np.int32)
    longer = np.empty((n_rows, TRAIL + a.toll.size + a.fare.shape[1]), np.int64)
    wider[0, :n_ends], wider[0, n_ends:] = stack[0], a.count
    longer[0, :TRAIL] = trail[0]
    remember(a, longer[0, TRAIL:])
    return wider, longer


@compiled
def _push(stack: Any, trail: Any, top: int, low: Any, high: Any, a: Any) -> Any:
    """Write a box on top of the stack, which may have to grow, and messages to go on from."""
    if top == stack.shape[0]:
        wider = np.empty((2 * top, stack.shape[1]), np.int32)
        wider[:top] = stack
        longer = np.empty((2 * top, trail.shape[1]), np.int64)
        longer[:top] = trail
        stack, trail = wider, longer
    for f in range(low.size):
        stack[top, f], stack[top, low.size + f] = low[f], high[f]
    for t in range(a.count.size):
        stack[top, 2 * low.size + t] = a.count[t]
    remember(a, trail[top, TRAIL:])
    return stack, trail


@bare
def _enter(r: Any, task: Any, deep: Any, stack: Any, trail: Any, top: int, ends: Any) -> int:
    """Go to a box of the stack and squeeze it; return its bound, the barrier at most."""
    (low, high), a = ends, deep.dual
    n_features = low.size
    for f in range(n_features):
        low[f], high[f] = stack[top, f], stack[top, n_features + f]
    for t in range(a.count.size):
        a.count[t] = stack[top, 2 * n_features + t]
    recall(r, a, trail[top, TRAIL:])
    bound = min(squeeze(r, task, a, low, high), task.barrier)
    if trail[top, 0] >= 0:
        f, side = trail[top, 0], 2 * trail[top, 1]
        deep.gains[f, side] += bound - trail[top, 2]
        deep.gains[f, side + 1] += 1
    return bound  # type: ignore[no-any-return]


@compiled
def _aim(r: Any, task: Any, w: Any, pick: Any, ends: Any, point: Any, is_polished: bool) -> int:
    """Go to the best ranks of a box; return the sum there. The point becomes what reaches it."""
    (low, high), (first, last) = ends, point
    for f in range(low.size):
        pick[f] = min(max(pick[f], low[f]), high[f])
        first[f], last[f] = low[f], high[f]
    total = take_point(r, task, w, pick, first, last)
    if total >= task.barrier and is_polished:
        for f in range(low.size):
            first[f] = pick[f]
        total = polish(r, task, w, first, last)
    return total  # type: ignore[no-any-return]


@compiled
def _halve(
    r: Any, task: Any, deep: Any, stack: Any, trail: Any, top: int, ends: Any, bound: int
) -> Any:
    """Put the halves of a box on the stack, if it can be split; return the stack."""
    low, high = ends
    f, place = choose_half(r, deep, low, high, float(task.barrier - bound))
    if f < 0:
        return stack, trail, top
    # The side of the best rank goes on top.
    is_below = deep.dual.pick[f] <= place
    for side in (int(is_below), int(not is_below)):
        stack, trail = _push(stack, trail, top, low, high, deep.dual)
        if side == 1:
            stack[top, f] = place + 1
        else:
            stack[top, low.size + f] = place
        trail[top, 0], trail[top, 1], trail[top, 2] = f, side, bound
        top += 1
    return stack, trail, top


@compiled
def _make_ends(r: Any) -> Any:
    n_features = r.feature_id.size
    return np.empty(n_features, np.int32), np.empty(n_features, np.int32)


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
    visited, a, ends, point = 0, deep.dual, _make_ends(r), _make_ends(r)
    every = POLISH_WIDE if is_wide(r) else POLISH_EVERY
    if stack.shape[1] == 2 * r.feature_id.size:
        stack, trail = _widen(stack, trail, a)
    while top > 0:
        if visited == nodes:
            return PAUSED, stack, trail, top, visited
        visited += 1
        top -= 1
        bound = _enter(r, task, deep, stack, trail, top, ends)
        if bound == task.barrier:
            continue
        is_polished = visited % every == POLISH_EVERY % every
        if _aim(r, task, w, a.pick, ends, point, is_polished) < task.barrier:
            add_leaves(trees, rule, w.reached, w.scores)
            verdict = judge(rule, w.scores, task.label, task.low, task.high)
            if verdict == CHANGED:
                stack, trail = _push(stack, trail, 0, point[0], point[1], a)
                return FOUND, stack, trail, 1, visited
            if verdict == TIED:
                w.is_blurred[0] = True
        stack, trail, top = _halve(r, task, deep, stack, trail, top, ends, bound)
    return (BLURRED if w.is_blurred[0] else PROVED), stack, trail, 0, visited


@compiled
def lower_deep(
    r: Any,
    task: Any,
    w: Any,
    deep: Any,
    stack: Any,
    trail: Any,
    top: int,
    floor: int,
    best: Any,
    nodes: int,
) -> Any:
    """Look for sums below the barrier, which each of them lowers, in at most `nodes` nodes.

    Args:
        r: the problem.
        task: where the barrier stands at first.
        w: scratch.
        deep: what was learned so far.
        stack: boxes that are open.
        trail: goes with the stack.
        top: how many are open.
        floor: a sum below it ends the search.
        best: becomes the ranks, first and last, that reach the last sum found.
        nodes: how many boxes to look at.

    Returns:
        the stack, its trail and height, the barrier, and how many nodes were visited. No sum
        outside of the boxes on the stack is below the barrier.
    """
    visited, a, ends, point = 0, deep.dual, _make_ends(r), _make_ends(r)
    n_features = r.feature_id.size
    every = POLISH_WIDE if is_wide(r) else POLISH_EVERY
    if stack.shape[1] == 2 * n_features:
        stack, trail = _widen(stack, trail, a)
    while top > 0 and visited < nodes:
        visited += 1
        top -= 1
        bound = _enter(r, task, deep, stack, trail, top, ends)
        if bound == task.barrier:
            continue
        is_polished = visited % every == POLISH_EVERY % every
        total = _aim(r, task, w, a.pick, ends, point, is_polished)
        if total < task.barrier:
            task = _lower_barrier(task, total)
            best[:n_features], best[n_features:] = point
        if bound < task.barrier:
            stack, trail, top = _halve(r, task, deep, stack, trail, top, ends, bound)
        if task.barrier < floor:
            break
    return stack, trail, top, task.barrier, visited


@compiled
def _lower_barrier(task: Any, barrier: int) -> Any:
    return Task(
        task.value,
        task.order,
        task.tree_order,
        task.base,
        barrier,
        task.label,
        task.low,
        task.high,
    )
