"""Compiled: attacks from points that came close to the barrier before.

One more feature goes free, and a counterexample, if there is one, nearly always moves it, and
little else differs from where the barrier was nearly crossed without it.
"""

from typing import Any

import numpy as np

from tacit.verify.kernels.attack.diving import walk, write_cells
from tacit.verify.kernels.attack.tabu import begin, leave, sink
from tacit.verify.kernels.jit import compiled
from tacit.verify.kernels.presolve.scores import CHANGED, KEPT

STEPS = 30
"""Steps of a walk from each point, and back to a low one."""


@compiled
def chase(ground: Any, points: Any, cells: Any) -> Any:
    """Walk from every point until the prediction changes.

    Returns:
        CHANGED if it does, at what `cells` then holds; else TIED or KEPT.
    """
    r, s, worst = ground.r, ground.stroll, KEPT
    fresh, count = -1, 0
    for g in range(r.feature_id.size):
        width = r.rank_start[g + 1] - r.rank_start[g]
        if s.near_low[g] > 0 or s.near_high[g] < width - 1:
            fresh = g
            count += 1
    for i in range(points.shape[0]):
        begin(r, ground.task, s, _place(r, points[i]))
        if count == 1:
            leave(r, ground.task, s, fresh)
        verdict = walk(ground, cells, STEPS)
        if verdict == CHANGED:
            return verdict
        worst = max(worst, verdict)
    return worst


@compiled
def settle(ground: Any, cells: Any) -> Any:
    """Go from a counterexample to a low point of the smaller box; return its cells."""
    r, s, near_miss = ground.r, ground.stroll, cells.copy()
    point = _place(r, cells)
    for g in range(point.size):
        point[g] = min(max(point[g], s.near_low[g]), s.near_high[g])
    begin(r, ground.task, s, point)
    write_cells(ground, sink(r, ground.task, s, STEPS), near_miss)
    return near_miss


@compiled
def _place(r: Any, cells: Any) -> Any:
    """Find the ranks of a point; what lies beyond the box counts as its end."""
    point = np.zeros(r.feature_id.size, np.int32)
    for g in range(point.size):
        first, last = r.rank_start[g], r.rank_start[g + 1] - 1
        while first + point[g] < last and r.rank_high[first + point[g]] < cells[r.feature_id[g]]:
            point[g] += 1
    return point
