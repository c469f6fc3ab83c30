"""Compiled: many boxes from floats to answers in one call, each timed by itself."""

from typing import Any, NamedTuple

import numpy as np

from tacit.verify.branch import FOUND, PAUSED, PROVED
from tacit.verify.clock import PROCESSOR, WALL, make_hand, read_clock
from tacit.verify.glance import SOME_FELL, look, make_glance, mark_groups, sum_center, tally, weigh
from tacit.verify.index import BINARY
from tacit.verify.jit import bare, compiled, inlined
from tacit.verify.lanes import FEW_FEATURES
from tacit.verify.press import try_sides
from tacit.verify.pull import hold_finely, hold_roughly
from tacit.verify.solve import Sides, search_open
from tacit.verify.stride import hold_keys, is_summed, locate, round_key, stride
from tacit.verify.witness import move_one

UNTOLD = -1
"""The class at a center that only the library's own softmax can tell."""
ASKED, BEGUN = 4, 5
"""Outcomes beside those of the search: the class at the center is untold; a search is to come."""


LONG = 2e-5
"""Seconds by the wall, from which on processor time is read, too: that takes half a microsecond."""


MANY, SMALL = 16, 1 << 14
"""Boxes that make it worth to fetch a model as a whole, and the largest array that is."""
THEN, BEFORE, TOLD, END = 0, 1, 2, 3
"""What is kept of clocks: by the wall, when the current box began; processor time at its last
reading, and what was told of boxes since; by the wall, when to stop."""
LINE, PAGE = 64, 4096
"""Bytes that memory is fetched by, and made by."""


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

    What is made for all of them counts as time of the first.

    Returns:
        how many were begun, how many of them are not decided, and how many were FOUND.
    """
    hand, watch = make_hand(), np.zeros(4)
    watch[THEN], watch[BEFORE] = read_clock(WALL, hand), read_clock(PROCESSOR, hand)
    watch[END] = watch[THEN] + seconds
    n_boxes, n_features = boxes.center.shape
    g = make_glance(index, cases.plus.shape[1])
    cell_low, cell_high = np.zeros(n_features, np.int32), np.zeros(n_features, np.int32)
    if n_boxes >= MANY:
        _fetch(index, g)
    # A plain 0 would be a type of its own, and all kernels be compiled for it as well.
    i, most = np.int64(0), effort.quick + effort.deep
    while i < n_boxes and watch[THEN] <= watch[END]:
        i = _begin_each(index, cases, boxes, i, g, cell_low, cell_high, out, most, hand, watch)
        if i < n_boxes and out.outcome[i] == BEGUN:
            sides, n_open = _pick(cases, out.case[i]), out.nodes[i]
            out.outcome[i], out.nodes[i] = search_open(
                index, sides, g, n_open, cell_low, cell_high, effort
            )
            if out.outcome[i] == FOUND:
                _place(index, boxes, i, g, cell_low, cell_high, out.x)
            _stop_watch(hand, watch, out.seconds, i)
            i += 1
    left, found = 0, 0
    for k in range(i):
        left += out.outcome[k] >= PAUSED
        found += out.outcome[k] == FOUND
    return i, left, found


@inlined
def _stop_watch(hand: Any, watch: Any, seconds: Any, i: Any) -> None:
    """Write down how long a box took, and begin to count for the next."""
    now = read_clock(WALL, hand)
    took = now - watch[THEN]
    seconds[i] = took
    watch[TOLD] += took
    if took > LONG:
        # What was told of short boxes since the last reading is theirs.
        spent = read_clock(PROCESSOR, hand) - watch[BEFORE]
        seconds[i] = min(took, max(spent - (watch[TOLD] - took), 0.0))
        watch[BEFORE] += spent
        watch[TOLD], now = 0.0, read_clock(WALL, hand)
    watch[THEN] = now


@bare
def _begin_each(
    index: Any,
    cases: Any,
    boxes: Any,
    i: Any,
    g: Any,
    cell_low: Any,
    cell_high: Any,
    out: Any,
    most: int,
    hand: Any,
    watch: Any,
) -> Any:
    """Decide boxes from one on, until one of them needs a problem to be built, or time is over.

    In one kernel: handing it all its arrays takes as long as a fifth of a short box.

    Returns:
        the box that was begun only, with how many sides of it stay open as its nodes; or the first
        that was not begun.
    """
    while i < boxes.center.shape[0] and watch[THEN] <= watch[END]:
        n_open = _begin(index, cases, boxes, i, g, cell_low, cell_high, out, most)
        if n_open > 0:
            out.outcome[i], out.nodes[i] = BEGUN, n_open
            return i
        _stop_watch(hand, watch, out.seconds, i)
        i += 1
    return i


@bare
def _fetch(index: Any, g: Any) -> None:
    """Read a small model from end to end, and touch the room to work in.

    Rows would fetch it from far memory piece by piece, and the first dozens wait for that.
    """
    total = _read(index.lanes.turn, LINE // 8) + _read(index.paths.ends, LINE // 8)
    total += _read(index.lanes.node, LINE // 4) + _read(index.paths.walk, LINE // 4)
    for at in range(0, min(g.slate.size, 2 * SMALL), PAGE // 8):
        g.slate[at] = 0
    for at in range(0, min(g.longs.size, 2 * SMALL), PAGE // 8):
        g.longs[at] = 0
    # Kept somewhere, or the compiler would leave all this reading out.
    g.slate[0] = total


@inlined
def _read(array: Any, step: int) -> Any:
    """Read every so many numbers of an array, if it is small."""
    total = np.uint64(0)
    for at in range(0, array.size if array.size <= SMALL else 0, step):
        total += np.uint64(array[at])
    return total


@inlined
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
    out.case[i], out.nodes[i], out.outcome[i] = boxes.case[i], 0, ASKED
    g.is_fine[0], g.is_rough[0] = False, False
    is_inside = hold_keys(index, boxes, i, g)
    if is_inside:
        count = stride(index, g)
        mark_groups(index.paths, g, count)
    else:
        locate(index, g, cell_low, cell_high)
        count = look(index.paths, g, cell_low, cell_high)
    if not (is_inside and is_summed(index)):
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
        is_slow = index.paths.ends.size > 0 and index.asked.size > FEW_FEATURES
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


@inlined
def _place(index: Any, boxes: Any, i: Any, g: Any, cell_low: Any, cell_high: Any, x: Any) -> None:
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
