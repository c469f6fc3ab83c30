"""Compiled: from a counterexample to the features that it needs, and to others like it."""

import numpy as np

from tacit.jit import bare, compiled
from tacit.verify.kernels.presolve.scores import add_leaves, judge, weigh
from tacit.verify.kernels.tables import (
    END,
    ONE,
    THREE,
    TWO,
    Bools,
    Floats,
    Index,
    Ints,
    Longs,
    Objectives,
    Outcome,
    Rule,
    Trees,
    Words,
)


@bare
def judge_intervals(
    trees: Trees,
    rule: Rule,
    objectives: Objectives,
    intervals: Ints,
    reached: Ints,
    scores: Floats,
) -> Outcome:
    """Say what the library makes of a point, given by its intervals."""
    walk = trees.walk
    for tree in range(trees.roots.size):
        node = np.uint64(trees.roots[tree]) << TWO
        while walk[node + ONE] != END:
            goes_right = np.uint64(intervals[np.uint64(walk[node])] > walk[node + ONE])
            node = np.uint64(walk[node + TWO + goes_right])
        reached[tree] = node >> TWO
    add_leaves(trees, rule, reached, scores)
    return judge(rule, scores, objectives.label, objectives.low, objectives.high)


@compiled
def judge_point(trees: Trees, rule: Rule, objectives: Objectives, intervals: Ints) -> Outcome:
    """Say what the library makes of a point, given by its intervals."""
    reached, scores = np.empty(trees.roots.size, np.int32), np.empty(rule.base.size)
    return judge_intervals(trees, rule, objectives, intervals, reached, scores)


@compiled
def put_back(
    index: Index, objectives: Objectives, intervals: Ints, low: Ints, high: Ints, order: Longs
) -> None:
    """Bring features back within eps, one by one, as long as the prediction stays changed."""
    trees, rule = index.trees, index.rule
    reached, scores = np.empty(trees.roots.size, np.int32), np.empty(rule.base.size)
    for f in order:
        was = intervals[f]
        if low[f] <= was <= high[f]:
            continue
        intervals[f] = min(max(was, low[f]), high[f])
        outcome = judge_intervals(trees, rule, objectives, intervals, reached, scores)
        if outcome != Outcome.COUNTEREXAMPLE:
            intervals[f] = was


@bare
def _rank(walk: Words, node: np.uint64) -> int:
    rank: int = np.int32(walk[node + ONE])  # type: ignore[assignment]
    return rank


@bare
def best_interval(
    trees: Trees,
    askers: Ints,
    plus: int,
    minus: int,
    intervals: Ints,
    own: int,
    low: int,
    high: int,
    steps: Longs,
    stack: Ints,
) -> tuple[int, np.int64]:
    """Find the interval of one feature that lowers a sum most, and by how much.

    With all other features held, the sum is a step function of this one.
    """
    walk, fixed = trees.walk, trees.fixed
    for k in range(high - low + 2):
        steps[k] = 0
    for tree in askers:
        node, first, last, top = np.uint64(trees.roots[tree]) << TWO, low, high, 0
        while True:
            while walk[node + ONE] != END and top < stack.shape[0]:
                f, rank = np.uint64(walk[node]), _rank(walk, node)
                if f != own:
                    node = np.uint64(walk[node + TWO + np.uint64(intervals[f] > rank)])
                elif last <= rank:
                    node = np.uint64(walk[node + TWO])
                elif first > rank:
                    node = np.uint64(walk[node + THREE])
                else:
                    stack[top, 0], stack[top, 1], stack[top, 2] = walk[node + THREE], rank + 1, last
                    top += 1
                    node, last = np.uint64(walk[node + TWO]), rank
            value = weigh(fixed[node >> TWO], plus, minus)
            steps[first - low] += value
            steps[last + 1 - low] -= value
            if top == 0:
                break
            top -= 1
            node, first, last = np.uint64(stack[top, 0]), stack[top, 1], stack[top, 2]
    height, here, best, lowest = np.int64(0), np.int64(0), low, np.int64(1) << 62
    for interval in range(low, high + 1):
        height += steps[interval - low]
        if interval == intervals[own]:
            here = height
        if height < lowest:
            best, lowest = interval, height
    return best, here - lowest


@bare
def _nearest_objective(
    trees: Trees, base_fixed: Longs, objectives: Objectives, reached: Ints
) -> tuple[int, np.int64]:
    """Find the objective whose sum is nearest to its threshold, and how far above it that is."""
    objective, least = 0, np.int64(1) << 62
    for s in range(objectives.plus.size):
        total = weigh(base_fixed, objectives.plus[s], objectives.minus[s]) - objectives.threshold[s]
        for tree in range(reached.size):
            total += weigh(trees.fixed[reached[tree]], objectives.plus[s], objectives.minus[s])
        if total < least:
            objective, least = s, total
    return objective, least


@compiled
def _make_steps(low: Ints, high: Ints) -> tuple[Longs, Ints]:
    widest = 0
    for f in range(low.size):
        widest = max(widest, high[f] - low[f])
    return np.zeros(widest + 2, np.int64), np.empty((64, 3), np.int32)


@compiled
def find_others(
    index: Index, objectives: Objectives, intervals: Ints, low: Ints, high: Ints, candidates: Longs
) -> Bools:
    """Find candidates each of which, moved alone from these intervals, changes the prediction.

    Whether it does is told by the library's arithmetic.
    """
    trees, rule, start = index.trees, index.rule, index.asker_start
    reached, scores = np.empty(trees.roots.size, np.int32), np.empty(rule.base.size)
    judge_intervals(trees, rule, objectives, intervals, reached, scores)
    nearest, missing = _nearest_objective(trees, index.base_fixed, objectives, reached)
    plus, minus = objectives.plus[nearest], objectives.minus[nearest]
    steps, stack = _make_steps(low, high)
    found = np.zeros(candidates.size, np.bool_)
    for i in range(candidates.size):
        f = candidates[i]
        to, gain = best_interval(
            trees,
            index.askers[start[f] : start[f + 1]],
            plus,
            minus,
            intervals,
            f,
            low[f],
            high[f],
            steps,
            stack,
        )
        if gain <= missing:
            continue
        was, intervals[f] = intervals[f], to
        outcome = judge_intervals(trees, rule, objectives, intervals, reached, scores)
        found[i] = outcome == Outcome.COUNTEREXAMPLE
        intervals[f] = was
    return found
