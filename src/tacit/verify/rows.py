"""Compiled: many boxes from floats to answers in one call, each timed by itself."""

from typing import Any, NamedTuple

import numpy as np

from tacit.verify.branch import FOUND, PAUSED
from tacit.verify.clock import PROCESSOR, WALL, make_hand, read_clock
from tacit.verify.glance import ONE, look, make_glance, tally
from tacit.verify.index import BINARY
from tacit.verify.jit import compiled, inlined
from tacit.verify.solve import Sides, solve_open
from tacit.verify.witness import move_one

UNTOLD = -1
"""The class at a center that only the library's own softmax can tell."""
ASKED = 4
"""An outcome beside those of the search: the class at the center is untold."""


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
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.float64),
        np.empty((count, n_features), np.float64),
    )


@compiled
def answer(index: Any, cases: Any, boxes: Any, effort: Any, out: Any, seconds: float) -> Any:
    """Decide boxes one after another, until the seconds are over.

    Returns:
        how many were begun, how many of them are not decided, and how many were FOUND.
    """
    rule, n_features = index.rule, boxes.center.shape[1]
    g = make_glance(index, cases.plus.shape[1])
    cell_low, cell_high = np.zeros(n_features, np.int32), np.zeros(n_features, np.int32)
    hand = make_hand()
    end = read_clock(WALL, hand) + seconds
    then = read_clock(PROCESSOR, hand)
    left, found = 0, 0
    for i in range(boxes.center.shape[0]):
        is_told = _locate(index, boxes, i, g, cell_low, cell_high)
        count = look(index.paths, g, cell_low, cell_high)
        tally(index, g, g.reached)
        case = boxes.case[i]
        if case == UNTOLD and is_told:
            case = _classify(rule, g.scores)
        out.case[i], out.nodes[i], out.outcome[i] = case, 0, ASKED
        if case != UNTOLD:
            sides = _pick(cases, case)
            out.outcome[i], out.nodes[i] = solve_open(
                index, sides, g, count, cell_low, cell_high, effort
            )
            if out.outcome[i] == FOUND:
                _place(index, boxes, i, g, cell_low, cell_high, out.x)
        left += out.outcome[i] >= PAUSED
        found += out.outcome[i] == FOUND
        now = read_clock(PROCESSOR, hand)
        out.seconds[i] = now - then
        then = now
        if read_clock(WALL, hand) > end:
            return i + 1, left, found
    return boxes.center.shape[0], left, found


@inlined
def _pick(cases: Any, case: int) -> Any:
    return Sides(
        cases.plus[case],
        cases.minus[case],
        cases.barrier[case],
        cases.label[case],
        cases.low[case],
        cases.high[case],
    )


@inlined
def _classify(rule: Any, scores: Any) -> int:
    """Name the class that scores lead to, or UNTOLD if two are too close for that."""
    if rule.kind == BINARY:
        return int(scores[0] >= rule.cutoff)
    best = 0
    for score in range(1, scores.size):
        if scores[score] > scores[best]:
            best = score
    if rule.guard > 0.0:
        for score in range(scores.size):
            if score != best and scores[best] - scores[score] <= rule.guard:
                return UNTOLD
    return best


@inlined
def _key(value: float, is_single: bool) -> float:
    if not is_single:
        return value
    largest = np.float64(np.finfo(np.float32).max)
    return min(max(np.float64(np.float32(value)), -largest), largest)


@inlined
def _locate(index: Any, boxes: Any, i: int, g: Any, cell_low: Any, cell_high: Any) -> bool:
    """Find the cells of a box and of its center; say whether the center is a number throughout."""
    cuts, start, is_single, at = index.cuts, index.cut_start, boxes.is_single, g.at
    is_number, count = True, 0
    for f in index.asked:
        first, size = np.uint64(start[f]), np.uint64(start[f + 1] - start[f])
        center = boxes.center[i, f]
        is_number &= center == center
        low, high = _key(boxes.low[i, f], is_single), _key(boxes.high[i, f], is_single)
        center = _key(center, is_single)
        # Three searches at a time, without a branch that depends on the row.
        below, inside, above = first, first, first
        while size > 1:
            half = size >> ONE
            below += half * np.uint64(cuts[below + half - ONE] < low)
            inside += half * np.uint64(cuts[inside + half - ONE] < center)
            above += half * np.uint64(cuts[above + half - ONE] < high)
            size -= half
        below += np.uint64(cuts[below] < low)
        inside += np.uint64(cuts[inside] < center)
        above += np.uint64(cuts[above] < high)
        cell_low[f], at[f], cell_high[f] = below - first, inside - first, above - first
        g.free[count] = f
        count += (below < above) | (inside != below)
    g.free[at.size] = count
    return is_number


@inlined
def _place(index: Any, boxes: Any, i: int, g: Any, cell_low: Any, cell_high: Any, x: Any) -> None:
    """Write the counterexample: the center, moved as little as possible into its cells."""
    for f in range(cell_low.size):
        x[i, f] = min(max(boxes.center[i, f], boxes.low[i, f]), boxes.high[i, f])
    for k in range(g.free[cell_low.size]):
        f = g.free[k]
        key = _key(boxes.center[i, f], boxes.is_single)
        cuts = index.cuts[index.cut_start[f] : index.cut_start[f + 1]]
        to = move_one(
            cuts,
            boxes.center[i, f],
            key,
            cell_low[f],
            cell_high[f],
            boxes.is_single,
            boxes.is_whole[f],
        )
        x[i, f] = min(max(to, boxes.low[i, f]), boxes.high[i, f])
