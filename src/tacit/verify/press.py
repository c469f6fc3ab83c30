"""Compiled: what is tried about a side that bounds and a first attack have left open.

Before a problem is built: a greedy attack, and proofs that cut the box. What is likely to fall is
attacked before anything is proved, for one side that falls is enough; what is likely to be closed
is closed first.
"""

from typing import Any

from tacit.verify.crowd import crowd_sides
from tacit.verify.cuts import cut_box
from tacit.verify.descent import slide
from tacit.verify.glance import SOME_FELL
from tacit.verify.halves import FEW_PARTS, MOST_FREE, halve_side, halve_sides
from tacit.verify.jit import bare, inlined
from tacit.verify.leaf import pair
from tacit.verify.pull import CUT, LATE, PLAN_BITS, RUSH, pull_sides, refine_side
from tacit.verify.rush import rush


@bare
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
    n_open = pull_sides(index, sides, g, cell_low, cell_high)
    if n_open > 0:
        n_open = press_sides(index, sides, g, n_open, cell_low, cell_high)
    if n_open > 0 and index.paths.group_start.size == 2:
        n_open = halve_sides(index, sides, g, n_open, cell_low, cell_high, most)
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
            if is_cut and _close(index, sides, side, g, gap, cell_low, cell_high):
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
) -> bool:
    """Try to prove a side by cutting its box; few free features are halved all at once."""
    if index.paths.group_start.size == 2 and g.free[g.at.size] <= MOST_FREE:
        return halve_side(index, sides, side, g, cell_low, cell_high, FEW_PARTS)
    first, second, column = pair(index.paths, sides, side)
    return cut_box(index, g, first, second, column, gap, cell_low, cell_high)
