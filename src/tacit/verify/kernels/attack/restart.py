"""Compiled: local search that starts from points which came close to the threshold before.

One more feature goes free, and a counterexample, if there is one, nearly always moves it, and
little else differs from where the threshold was nearly crossed without it.
"""

import numpy as np

from tacit.verify.kernels.arrays import Ints
from tacit.verify.kernels.attack.diving import STEPS, Instance, search_on, write_intervals
from tacit.verify.kernels.attack.tabu import begin, descend_within, leave
from tacit.verify.kernels.jit import compiled
from tacit.verify.kernels.layout.reach import Reach
from tacit.verify.kernels.outcome import Outcome, worse


@compiled
def search_from(instance: Instance, points: Ints, intervals: Ints) -> Outcome:
    """Search from every point until the prediction changes, as `search_on` does."""
    r, s, worst = instance.r, instance.tabu, Outcome.ROBUST
    fresh, count = -1, 0
    for g in range(r.feature_id.size):
        width = r.rank_start[g + 1] - r.rank_start[g]
        if s.near_low[g] > 0 or s.near_high[g] < width - 1:
            fresh = g
            count += 1
    for i in range(points.shape[0]):
        begin(r, instance.task, s, _find_ranks(r, points[i]))
        if count == 1:
            leave(r, instance.task, s, fresh)
        outcome = search_on(instance, intervals, STEPS)
        if outcome == Outcome.COUNTEREXAMPLE:
            return outcome
        worst = worse(worst, outcome)
    return worst


@compiled
def near_miss(instance: Instance, intervals: Ints) -> Ints:
    """Go from a counterexample to a low point of the smaller box; return its intervals."""
    r, s, found = instance.r, instance.tabu, intervals.copy()
    point = _find_ranks(r, intervals)
    for g in range(point.size):
        point[g] = min(max(point[g], s.near_low[g]), s.near_high[g])
    begin(r, instance.task, s, point)
    write_intervals(instance, descend_within(r, instance.task, s, STEPS), found)
    return found


@compiled
def _find_ranks(r: Reach, intervals: Ints) -> Ints:
    """Find the ranks of a point; what lies beyond the box counts as its end."""
    point = np.zeros(r.feature_id.size, np.int32)
    for g in range(point.size):
        first, last, to = r.rank_start[g], r.rank_start[g + 1] - 1, intervals[r.feature_id[g]]
        while first + point[g] < last and r.rank_high[first + point[g]] < to:
            point[g] += 1
    return point
