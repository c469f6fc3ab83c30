"""Compiled: coordinate descent, which finds counterexamples where the bounds are loose.

With all features but one held, the sum is a step function of that one; it is written down exactly
and its least step taken. A few rounds often cross a threshold that branch and bound would reach
only after hundreds of nodes. Nothing is proved here.
"""

import numpy as np

from tacit.jit import bare, compiled
from tacit.verify.kernels.layout.reach import Reach, is_reachable
from tacit.verify.kernels.search.problem import Problem
from tacit.verify.kernels.tables import Ints, Longs

MOST_ROUNDS = 8


@compiled
def descend(r: Reach, task: Problem, reached: Ints, low: Ints, high: Ints) -> int:
    """Improve the point at the lower ends; return its sum.

    Its leaves are written to `reached`; low and high become the ranks that reach them all.
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
    for f in range(point.size):
        low[f], high[f] = 0, r.rank_start[f + 1] - r.rank_start[f] - 1
    return evaluate_point(r, task, reached, point, low, high)


@bare
def evaluate_point(
    r: Reach, task: Problem, reached: Ints, point: Ints, low: Ints, high: Ints
) -> int:
    """Add up the leaves at one rank per feature; narrow low and high to what reaches them."""
    total = task.base
    for t in range(r.tree_id.size):
        leaf = r.leaf_start[t]
        while not is_reachable(r, leaf, point, point):
            leaf += 1
        for c in range(r.con_start[leaf], r.con_start[leaf + 1]):
            f = r.con_feature[c]
            low[f], high[f] = max(low[f], r.con_low[c]), min(high[f], r.con_high[c])
        reached[r.tree_id[t]] = r.leaf_node[leaf]
        total += task.value[leaf]
    return total


@compiled
def _move(r: Reach, task: Problem, point: Ints, f: int, steps: Longs) -> bool:
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
