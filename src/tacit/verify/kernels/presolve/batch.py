"""Compiled: many boxes from floats to answers in one call, each timed by itself."""

from typing import Any, NamedTuple

import numpy as np

from tacit.verify.kernels.clock import PROCESSOR, make_hand, read_clock
from tacit.verify.kernels.jit import bare, compiled
from tacit.verify.kernels.layout.rounding import move_one
from tacit.verify.kernels.presolve.bisect import stand
from tacit.verify.kernels.presolve.presolve import decide_sides, walk_center
from tacit.verify.kernels.presolve.scores import FOUND, PAUSED

UNTOLD = -1
"""The class at a center that is not known yet, or that only the library's own sums can tell."""


class Cases(NamedTuple):
    """What must be ruled out: one row per class, or one per box of a regression."""

    plus: Any  # (cases, sides)
    minus: Any
    barrier: Any
    label: Any  # (cases)
    low: Any
    high: Any


class Boxes(NamedTuple):
    """The inputs that are asked about."""

    center: Any  # (boxes, features)
    low: Any
    high: Any
    case: Any  # (boxes): which case, or UNTOLD to find it from the class at the center
    is_whole: Any  # (features)
    is_single: Any


class Answers(NamedTuple):
    """What was found out, box by box."""

    outcome: Any
    nodes: Any
    case: Any
    seconds: Any  # processor time
    x: Any  # (boxes, features): the counterexample, where one was FOUND


def make_answers(count: int, n_features: int) -> Answers:
    """Allocate room for answers."""
    return Answers(
        np.empty(count, np.int64),
        np.zeros(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.float64),
        np.empty((count, n_features), np.float64),
    )


@compiled
def answer(m: Any, s: Any, cases: Any, boxes: Any, most: int, out: Any, seconds: float) -> Any:
    """Decide boxes one after another, until the seconds are over; PAUSED where it could not.

    Returns:
        how many were begun, how many of them are not decided, and how many were FOUND.
    """
    hand = make_hand()
    then = read_clock(PROCESSOR, hand)
    end, left, found, count = then + seconds, 0, 0, 0
    for i in range(boxes.center.shape[0]):
        outcome = _decide(m, s, cases, boxes, i, most, out.case)
        out.outcome[i] = outcome
        left += outcome == PAUSED
        if outcome == FOUND:
            found += 1
            _place(m, s, boxes, i, out.x)
        now = read_clock(PROCESSOR, hand)
        out.seconds[i], then, count = now - then, now, count + 1
        if now > end:
            break
    return count, left, found


@bare
def _decide(m: Any, s: Any, cases: Any, boxes: Any, i: int, most: int, case: Any) -> int:
    """Decide one box; if it is FOUND, its point is kept."""
    case[i] = boxes.case[i]
    if not _locate(m, s, boxes, i):
        return PAUSED
    walk_center(m, s)
    if case[i] == UNTOLD:
        case[i] = _tell(m, s, cases)
    if case[i] == UNTOLD:
        return PAUSED
    at = case[i]
    return decide_sides(m, s, cases.plus[at], cases.minus[at], cases.barrier[at], most)


@bare
def _tell(m: Any, s: Any, cases: Any) -> int:
    """Name the class that is beyond every barrier at the center, or UNTOLD."""
    for case in range(cases.plus.shape[0]):
        is_kept = True
        for side in range(cases.plus.shape[1]):
            plus, minus = cases.plus[case, side], cases.minus[case, side]
            if stand(m, s, plus, minus, cases.barrier[case, side]) < 0:
                is_kept = False
                break
        if is_kept:
            return case
    return UNTOLD


@bare
def _locate(m: Any, s: Any, boxes: Any, i: int) -> bool:
    """Find the cells of a box and its center; say whether the center is a number inside."""
    count = 0
    for f in m.asked:
        low, center, high = boxes.low[i, f], boxes.center[i, f], boxes.high[i, f]
        if not low <= center <= high:
            return False
        first, last = m.cut_start[f], m.cut_start[f + 1]
        at = cell = _cell(m.cuts, first, last, _round(low, boxes.is_single))
        key = _round(center, boxes.is_single)
        while first + at < last and m.cuts[first + at] < key:
            at += 1
        end, key = at, _round(high, boxes.is_single)
        while first + end < last and m.cuts[first + end] < key:
            end += 1
        s.low[0, f], s.at[f], s.high[0, f], s.point[f] = cell, at, end, at
        s.free[count] = f
        count += cell < end
    s.free[s.at.size] = count
    return True


@bare
def _cell(cuts: Any, first: int, last: int, key: float) -> int:
    """Count the cuts of a feature that are below a key, without a branch to mistake."""
    at, size = first, last - first
    while size > 1:
        half = size >> 1
        at += half * (cuts[at + half - 1] < key)
        size -= half
    return int(at - first + (cuts[at] < key))


@bare
def _round(value: float, is_single: bool) -> float:
    """Round a float as the library does before it compares it."""
    if not is_single:
        return value
    largest = np.float64(np.finfo(np.float32).max)
    return min(max(np.float64(np.float32(value)), -largest), largest)


@bare
def _place(m: Any, s: Any, boxes: Any, i: int, x: Any) -> None:
    """Write the counterexample: the center, moved as little as possible into the point's cells."""
    for f in range(s.at.size):
        x[i, f] = min(max(boxes.center[i, f], boxes.low[i, f]), boxes.high[i, f])
    for k in range(s.free[s.at.size]):
        f = s.free[k]
        to = s.point[f]
        if to == s.at[f]:
            continue
        key, cuts = _round(x[i, f], boxes.is_single), m.cuts[m.cut_start[f] : m.cut_start[f + 1]]
        moved = move_one(cuts, x[i, f], key, to, to, boxes.is_single, boxes.is_whole[f])
        x[i, f] = min(max(moved, boxes.low[i, f]), boxes.high[i, f])
