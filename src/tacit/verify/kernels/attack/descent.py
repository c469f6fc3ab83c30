"""Compiled: coordinate descent, which finds counterexamples where the bounds are loose.

With all features but one held, the sum is a step function of that one; it is written down exactly
and its least step taken. A few rounds from the point of a dive often cross a barrier that the
search would reach only after hundreds of nodes. Nothing is proved here.
"""

from typing import Any

import numpy as np

from tacit.verify.kernels.jit import bare, compiled
from tacit.verify.kernels.search.bounds import is_open

MOST_ROUNDS = 8


@compiled
def polish(r: Any, task: Any, w: Any, low: Any, high: Any) -> Any:
    """Improve the point at the lower ends; return its sum, its leaves and how far it may move.

    The leaves are written to `w.reached`; low and high become the ranks that reach them all.
    """
    point = low.copy()
    widest = 1
    for f in range(point.size):
        widest = max(widest, r.rank_start[f + 1] - r.rank_start[f])
    steps = np.zeros(widest + 1, np.int64)
    for _ in range(MOST_ROUNDS):
        has_moved = False
        for f in range(point.size):
            if _move(r, task, point, f, steps):
                has_moved = True
        if not has_moved:
            break
    return _settle(r, task, w, point, low, high)


@compiled
def _move(r: Any, task: Any, point: Any, f: int, steps: Any) -> bool:
    """Move one feature to its least step; say whether the sum fell."""
    count = r.rank_start[f + 1] - r.rank_start[f]
    for rank in range(count + 1):
        steps[rank] = 0
    for i in range(r.slots_of_start[f], r.slots_of_start[f + 1]):
        t = r.slot_tree[r.slots_of[i]]
        for leaf in range(r.leaf_start[t], r.leaf_start[t + 1]):
            first, last, is_reached = 0, count - 1, True
            for c in range(r.con_start[leaf], r.con_start[leaf + 1]):
                g = r.con_feature[c]
                if g == f:
                    first, last = r.con_low[c], r.con_high[c]
                elif point[g] < r.con_low[c] or point[g] > r.con_high[c]:
                    is_reached = False
                    break
            if is_reached:
                steps[first] += task.value[leaf]
                steps[last + 1] -= task.value[leaf]
    height, least, here, best = 0, 0, 0, -1
    for rank in range(count):
        height += steps[rank]
        if rank == point[f]:
            here = height
        if best < 0 or height < least:
            least, best = height, rank
    if least < here:
        point[f] = best
        return True
    return False


@bare
def take_point(r: Any, task: Any, w: Any, point: Any, low: Any, high: Any) -> Any:
    """Add up the leaves at one rank per feature; narrow low and high to what reaches them."""
    total = task.base
    for t in range(r.tree_id.size):
        leaf = r.leaf_start[t]
        while not is_open(r, leaf, point, point):
            leaf += 1
        for c in range(r.con_start[leaf], r.con_start[leaf + 1]):
            f = r.con_feature[c]
            low[f], high[f] = max(low[f], r.con_low[c]), min(high[f], r.con_high[c])
        w.reached[r.tree_id[t]] = r.leaf_node[leaf]
        total += task.value[leaf]
    return total


@compiled
def _settle(r: Any, task: Any, w: Any, point: Any, low: Any, high: Any) -> Any:
    for f in range(point.size):
        low[f], high[f] = 0, r.rank_start[f + 1] - r.rank_start[f] - 1
    return take_point(r, task, w, point, low, high)
