"""Compiled: the least sum of trees over a box, by branch and bound with the bound of `dual`."""

from typing import Any, NamedTuple

import numpy as np

from tacit.verify.kernels.attack.descent import polish
from tacit.verify.kernels.jit import compiled
from tacit.verify.kernels.search.bounds import Task
from tacit.verify.kernels.search.branch import choose, count_live
from tacit.verify.kernels.search.messages import squeeze


class Least(NamedTuple):
    """Where a search stands."""

    stack: Any  # boxes of ranks that are still open
    trail: Any  # (rows, 3): feature, side, and the bound before the split
    top: Any  # how many are open
    best: Any  # the least sum found so far
    point: Any  # the ranks that reach it


@compiled
def _taller(table: Any) -> Any:
    higher = np.empty((2 * table.shape[0], table.shape[1]), table.dtype)
    higher[: table.shape[0]] = table
    return higher


@compiled
def lower(r: Any, task: Any, w: Any, deep: Any, state: Any, nodes: int) -> Any:
    """Explore at most `nodes` boxes; return where the search stands, and how many were visited."""
    n_features, visited = r.feature_id.size, 0
    stack, trail, top, best, point = state
    low, high = np.empty(n_features, np.int32), np.empty(n_features, np.int32)
    while top > 0 and visited < nodes:
        visited += 1
        top -= 1
        low[:], high[:] = stack[top, :n_features], stack[top, n_features:]
        aim = Task(task.value, task.order, task.tree_order, task.base, best, 0, 0.0, 0.0)
        bound = min(squeeze(r, aim, deep.dual, low, high), best)
        f, side = trail[top, 0], 2 * trail[top, 1]
        if f >= 0:
            deep.gains[f, side] += bound - trail[top, 2]
            deep.gains[f, side + 1] += 1
        if bound >= best:
            continue
        first, last = np.minimum(np.maximum(deep.dual.pick, low), high), high.copy()
        total = polish(r, aim, w, first, last)
        if total < best:
            best, point = total, np.concatenate((first, last))
        count_live(r, deep, low, high)
        f, cut = choose(r, deep, low, high, float(max(best - bound, 1)))
        if f < 0 or bound >= best:
            continue
        if top + 2 > stack.shape[0]:
            stack, trail = _taller(stack), _taller(trail)
        is_below = deep.dual.pick[f] <= cut
        for side in (int(is_below), int(not is_below)):
            stack[top, :n_features], stack[top, n_features:] = low, high
            if side == 1:
                stack[top, f] = cut + 1
            else:
                stack[top, n_features + f] = cut
            trail[top, 0], trail[top, 1], trail[top, 2] = f, side, bound
            top += 1
    return Least(stack, trail, top, best, point), visited
