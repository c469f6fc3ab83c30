"""Compiled: diving, and other quick ways to a counterexample that hardly crosses the threshold.

And the way back from one: to a near miss, from where one more feature may suffice.
"""

from typing import NamedTuple

import numpy as np

from tacit.jit import bare, compiled
from tacit.verify.kernels.attack.neighbours import judge_point
from tacit.verify.kernels.attack.tabu import Tabu, begin, descend_within, step
from tacit.verify.kernels.layout.reach import Reach
from tacit.verify.kernels.search.branch import State
from tacit.verify.kernels.search.mplp import Mplp, price, reparametrise, revive
from tacit.verify.kernels.search.problem import Problem
from tacit.verify.kernels.tables import Ints, Objectives, Outcome, Rule, Trees, worse

TABU_EVERY = 8
"""Steps of a dive between two tabu searches from its point."""

STEPS = 30
"""Steps of a tabu search."""


class Instance(NamedTuple):
    """One objective of a box of intervals, and what is needed to judge its points."""

    trees: Trees
    rule: Rule
    objectives: Objectives
    r: Reach
    task: Problem
    state: State
    tabu: Tabu
    low: Ints  # (all features): the box of intervals
    high: Ints
    home: Ints  # (all features): the intervals of the input


@compiled
def write_intervals(instance: Instance, point: Ints, intervals: Ints) -> None:
    """Write a point of one rank per feature as intervals, those nearest to the input."""
    r, low, high = instance.r, instance.low, instance.high
    for f in range(intervals.size):
        intervals[f] = min(max(instance.home[f], low[f]), high[f])
    for g in range(point.size):
        f, at = r.feature_id[g], r.rank_start[g] + point[g]
        first, last = max(r.rank_low[at], low[f]), min(r.rank_high[at], high[f])
        intervals[f] = min(max(intervals[f], first), last)


@compiled
def search_on(instance: Instance, intervals: Ints, steps: int) -> Outcome:
    """Search from where the tabu search stands, judging in the library's arithmetic.

    Returns:
        COUNTEREXAMPLE if the prediction changes, at what `intervals` then holds; else NEAR_TIE or
        ROBUST, which says nothing about other points.
    """
    r, task, s = instance.r, instance.task, instance.tabu
    best, worst = s.total[0], Outcome.ROBUST
    for k in range(steps + 1):
        best = min(best, s.total[0])
        if s.total[0] < task.threshold:
            write_intervals(instance, s.point, intervals)
            outcome = judge_point(instance.trees, instance.rule, instance.objectives, intervals)
            if outcome == Outcome.COUNTEREXAMPLE:
                return outcome
            worst = worse(worst, outcome)
        if k == steps or not step(r, task, s, s.far, s.far_rank, best):
            break
    return worst


@compiled
def try_point(instance: Instance, pick: Ints, intervals: Ints, is_thorough: bool) -> Outcome:
    """Judge the point of one rank per feature, or what a tabu search from it comes to."""
    if is_thorough:
        begin(instance.r, instance.task, instance.tabu, pick)
        return search_on(instance, intervals, STEPS)
    write_intervals(instance, pick, intervals)
    return judge_point(instance.trees, instance.rule, instance.objectives, intervals)


@compiled
def dive(instance: Instance, low: Ints, high: Ints, intervals: Ints) -> Outcome:
    """Give a part of the open features, the surest, their best rank, again and again.

    Branching would fix one feature at a time. Where too many were fixed at once, fewer are. Low,
    high, the messages and the picks are left changed.

    Returns:
        what `try_point` says of the last point, or NEAR_TIE if it said so of another.
    """
    r, task, a = instance.r, instance.task, instance.state.mplp
    regret, order = np.empty(low.size, np.int64), np.empty(low.size, np.int64)
    was_low, was_high, picks = low.copy(), high.copy(), a.pick.copy()
    worst, part, surest, depth = Outcome.ROBUST, 2, order[:0], 0
    while True:
        depth += 1
        revive(r, a)
        bound, n_open = price(r, task, a, low, high), 0
        for f in range(low.size):
            if low[f] < high[f] and bound < task.threshold:
                bound = reparametrise(r, task, a, low, high, f, bound)
                if low[f] < high[f]:
                    regret[n_open], order[n_open] = _regret(a, f, low[f], high[f]), f
                    n_open += 1
            a.pick[f] = min(max(a.pick[f], low[f]), high[f])
        if bound < task.threshold:
            is_thorough = n_open == 0 or depth % TABU_EVERY == 0
            outcome = try_point(instance, a.pick, intervals, is_thorough)
            if outcome == Outcome.COUNTEREXAMPLE:
                return outcome
            worst = worse(worst, outcome)
            if n_open == 0:
                return worst
            was_low[:], was_high[:], picks[:] = low, high, a.pick
            surest, part = order[np.argsort(regret[:n_open])], max(part // 2, 2)
        elif surest.size < part:
            return worst
        else:
            low[:], high[:] = was_low, was_high
            part *= 4
        for f in surest[: (surest.size + part - 1) // part]:
            low[f] = high[f] = picks[f]


@bare
def _regret(a: Mplp, f: int, low: int, high: int) -> int:
    """Say what the second best rank of a feature costs more, as a negative number."""
    best, second = a.total[a.pick[f]], np.int64(1) << 60
    for rank in range(low, high + 1):
        if rank != a.pick[f]:
            second = min(second, a.total[rank])
    regret: int = best - second
    return regret


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
