"""Compiled: many boxes from floats to answers in one call, each timed by itself."""

from typing import Any, NamedTuple

import numpy as np

from tacit.verify.branch import FOUND, PAUSED, PROVED
from tacit.verify.clock import PROCESSOR, WALL, make_hand, read_clock
from tacit.verify.glance import SOME_FELL, look, make_glance, mark_groups, sum_center, tally, weigh
from tacit.verify.index import BINARY
from tacit.verify.jit import bare, compiled, inlined
from tacit.verify.press import try_sides
from tacit.verify.pull import hold_finely, hold_roughly
from tacit.verify.solve import Sides, search_open
from tacit.verify.stride import hold_keys, locate, round_key, stride
from tacit.verify.witness import move_one

UNTOLD = -1
"""The class at a center that only the library's own softmax can tell."""
ASKED = 4
"""An outcome beside those of the search: the class at the center is untold."""


LONG = 2e-5
"""Seconds by the wall, from which on processor time is read, too: that takes half a microsecond."""


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
    seconds: Any  # processor time; by the wall, where a box took less than LONG
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
    n_features = boxes.center.shape[1]
    g = make_glance(index, cases.plus.shape[1])
    cell_low, cell_high = np.zeros(n_features, np.int32), np.zeros(n_features, np.int32)
    hand = make_hand()
    then, before = read_clock(WALL, hand), read_clock(PROCESSOR, hand)
    end = then + seconds
    left, found, told, most = 0, 0, 0.0, effort.quick + effort.deep
    for i in range(boxes.center.shape[0]):
        n_open = _begin(index, cases, boxes, i, g, cell_low, cell_high, out, most)
        if n_open > 0:
            sides = _pick(cases, out.case[i])
            out.outcome[i], out.nodes[i] = search_open(
                index, sides, g, n_open, cell_low, cell_high, effort
            )
            if out.outcome[i] == FOUND:
                _place(index, boxes, i, g, cell_low, cell_high, out.x)
        left += out.outcome[i] >= PAUSED
        found += out.outcome[i] == FOUND
        now = read_clock(WALL, hand)
        out.seconds[i] = now - then
        told += now - then
        if now - then > LONG:
            # What was told of short boxes since the last reading is theirs.
            spent = read_clock(PROCESSOR, hand) - before
            out.seconds[i] = min(now - then, max(spent - (told - (now - then)), 0.0))
            before, told, now = before + spent, 0.0, read_clock(WALL, hand)
        then = now
        if now > end:
            return i + 1, left, found
    return boxes.center.shape[0], left, found


@bare
def _begin(
    index: Any,
    cases: Any,
    boxes: Any,
    i: int,
    g: Any,
    cell_low: Any,
    cell_high: Any,
    out: Any,
    most: int,
) -> int:
    """Decide a box by all that needs no problem to be built; return how many sides stay open."""
    out.case[i], out.nodes[i], out.outcome[i], g.is_fine[0] = boxes.case[i], 0, ASKED, False
    is_inside = hold_keys(index, boxes, i, g)
    if is_inside:
        count = stride(index.lanes, g)
        mark_groups(index.paths, g, count)
    else:
        locate(index, g, cell_low, cell_high)
        count = look(index.paths, g, cell_low, cell_high)
    sum_center(index, g)
    if out.case[i] == UNTOLD and (is_inside or _is_number(index, boxes.center[i])):
        out.case[i] = _tell(index, cases, g)
    if out.case[i] == UNTOLD:
        return 0
    out.outcome[i], sides = PROVED, _pick(cases, out.case[i])
    if _holds(index, sides, g, count):
        return 0
    if is_inside:
        # Cells of many features take longer to find than least leaves.
        is_slow = index.paths.ends.size > 0 and index.planes.size.size > 0
        if is_slow and hold_finely(index, sides, g):
            return 0
        locate(index, g, cell_low, cell_high)
    n_open = try_sides(index, sides, g, count, cell_low, cell_high, most)
    if n_open == SOME_FELL:
        out.outcome[i] = FOUND
        _place(index, boxes, i, g, cell_low, cell_high, out.x)
    return max(n_open, 0)


@inlined
def _holds(index: Any, sides: Any, g: Any, count: int) -> bool:
    """Say whether a box is proved by what is known before any cell is."""
    if index.paths.ends.size > 0:
        return hold_roughly(index, sides, g)
    return count == 0 and _is_kept(index, sides, g)


@inlined
def _is_kept(index: Any, sides: Any, g: Any) -> bool:
    """Say whether the sums at the center are beyond the barrier of every side."""
    for side in range(sides.plus.size):
        plus, minus = sides.plus[side], sides.minus[side]
        if weigh(g.sums, plus, minus) + weigh(index.base_units, plus, minus) < sides.barrier[side]:
            return False
    return True


@inlined
def _is_number(index: Any, center: Any) -> bool:
    """Say whether no feature that counts is missing: what then happens is not asked of cells."""
    missing = 0
    for f in index.asked:
        missing += np.isnan(center[f])
    return missing == 0


@inlined
def _tell(index: Any, cases: Any, g: Any) -> int:
    """Name the class at the center, or UNTOLD if only the library's softmax can.

    Sums of units beyond every barrier of a class leave no doubt; else the library's are taken.
    """
    best = 0
    for case in range(cases.plus.shape[0]):
        if cases.plus.shape[0] <= 2:
            if _is_kept(index, _pick(cases, case), g):
                return case
        elif g.sums[case] + index.base_units[case] > g.sums[best] + index.base_units[best]:
            best = case
    if cases.plus.shape[0] > 2 and _is_kept(index, _pick(cases, best), g):
        return best
    tally(index, g, g.reached)
    return _classify(index.rule, g.scores)


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


@bare
def _place(index: Any, boxes: Any, i: int, g: Any, cell_low: Any, cell_high: Any, x: Any) -> None:
    """Write the counterexample: the center, moved as little as possible into its cells."""
    for f in range(cell_low.size):
        x[i, f] = min(max(boxes.center[i, f], boxes.low[i, f]), boxes.high[i, f])
    for k in range(g.free[cell_low.size]):
        f = g.free[k]
        if cell_low[f] <= g.at[f] <= cell_high[f]:
            continue
        key = round_key(boxes.center[i, f], boxes.is_single)
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
