"""Compiled: what is tried about a side that bounds and a first attack have left open.

Before a problem is built: a greedy attack, and proofs that cut the box. What is likely to fall is
attacked before anything is proved, for one side that falls is enough; what is likely to be closed
is closed first.
"""

from typing import Any

import numpy as np

from tacit.verify.crowd import crowd_sides
from tacit.verify.cuts import cut_box
from tacit.verify.descent import slide
from tacit.verify.glance import FELL, HELD, OPEN, SOME_FELL
from tacit.verify.halves import FEW_PARTS, MOST_FREE, MOST_PARTS, halve_side, halve_sides
from tacit.verify.jit import inlined
from tacit.verify.leaf import pair
from tacit.verify.pull import CUT, LATE, PLAN_BITS, RUSH, pull_sides, refine_side, tug_side
from tacit.verify.rush import rush

FEW_FREE = 10
"""Free features, up to which a box is halved before any long attack."""


@inlined
def try_sides(
    index: Any, sides: Any, g: Any, count: int, cell_low: Any, cell_high: Any, most: int
) -> int:
    """Try everything about a box that needs no problem to be built.

    Args:
        index: the model.
        sides: what could change.
        g: what `look` has found out.
        count: how many trees are undecided.
        cell_low: the first cell of each feature.
        cell_high: the last.
        most: into how many parts the box may be cut.

    Returns:
        how many sides stay open, first in `g.order`; or SOME_FELL, and the cells are narrowed.
    """
    if index.paths.ends.size == 0:
        return crowd_sides(index, sides, g, count, cell_low, cell_high)
    if index.paths.group_start.size == 2 and g.free[g.at.size] <= FEW_FREE:
        return _halve_first(index, sides, g, cell_low, cell_high, most)
    n_open = pull_sides(index, sides, g, cell_low, cell_high)
    if n_open > 0:
        n_open = press_sides(index, sides, g, n_open, cell_low, cell_high)
    if n_open > 0 and index.paths.group_start.size == 2:
        n_open = halve_sides(index, sides, g, n_open, cell_low, cell_high, most)
    return n_open


@inlined
def _halve_first(index: Any, sides: Any, g: Any, cell_low: Any, cell_high: Any, most: int) -> int:
    """Try everything where few features are free: halving decides nearly all of that."""
    n_open, parts = 0, min(max(most, FEW_PARTS), MOST_PARTS)
    for side in range(sides.plus.size):
        outcome = tug_side(index, sides, side, g, cell_low, cell_high)
        if outcome == OPEN:
            outcome = halve_side(index, sides, side, g, cell_low, cell_high, parts)
        if outcome == OPEN:
            gap = refine_side(index, sides, side, g, cell_low, cell_high)
            is_down = rush(index, sides, side, g, gap, cell_low, cell_high)
            # From where that got stuck, a descent finds some that it misses elsewhere.
            is_down = is_down or slide(index, sides, side, g, gap, cell_low, cell_high)
            outcome = FELL if is_down else OPEN
        if outcome == FELL:
            return SOME_FELL
        g.order[n_open] = side
        n_open += outcome == OPEN
    return n_open


@inlined
def press_sides(index: Any, sides: Any, g: Any, n_open: int, cell_low: Any, cell_high: Any) -> int:
    """Attack open sides greedily and cut those that are nearly closed; return as `pull_sides` does.

    Args:
        index: the model; leaves pull one number.
        sides: what could change.
        g: what `pull_sides` has found out.
        n_open: how many sides are open, first in `g.order`.
        cell_low: the first cell of each feature.
        cell_high: the last.
    """
    for is_late in range(2):
        left = 0
        for at in range(n_open):
            side = g.order[at]
            gap, plan = g.bound[side] >> PLAN_BITS, g.bound[side]
            if sides.plus.size > 1 and index.paths.group_start.size == 2:
                # The other side has asked about the same trees since.
                refine_side(index, sides, side, g, cell_low, cell_high)
            is_cut = (is_late == 1) & ((plan & CUT) != 0)
            closing = OPEN
            if is_cut:
                closing = _close(index, sides, side, g, gap, cell_low, cell_high)
            if closing == FELL:
                return SOME_FELL
            if closing == HELD:
                continue
            is_due = ((plan & RUSH) != 0) & (((plan & LATE) != 0) == is_late)
            if is_due and rush(index, sides, side, g, gap, cell_low, cell_high):
                return SOME_FELL
            # From where that got stuck, a descent finds some that it misses elsewhere.
            is_single = index.paths.group_start.size == 2
            if is_due and is_single and slide(index, sides, side, g, gap, cell_low, cell_high):
                return SOME_FELL
            g.order[left] = side
            left += 1
        n_open = left
    return n_open


@inlined
def _close(
    index: Any, sides: Any, side: int, g: Any, gap: int, cell_low: Any, cell_high: Any
) -> int:
    """Try to decide a side by cutting its box; few free features are halved all at once."""
    if index.paths.group_start.size == 2 and g.free[g.at.size] <= MOST_FREE:
        return halve_side(index, sides, side, g, cell_low, cell_high, np.int64(FEW_PARTS))
    first, second, column = pair(index.paths, sides, side)
    is_closed = cut_box(index, g, first, second, column, gap, cell_low, cell_high)
    return HELD if is_closed else OPEN
