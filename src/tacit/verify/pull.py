"""Compiled: bounds and an attack where every leaf pulls one number.

That is so with a single score, with two (their difference counts), and in boosting, where a tree
belongs to one class: a side then asks about the trees of two classes only. A group is bounded in
two steps: roughly, by the least leaf that any box would leave below the open ways, and only where
that does not suffice by the least leaf in the box.
"""

from typing import Any

import numpy as np

from tacit.verify.descent import can_slide, slide_apart, slide_on
from tacit.verify.glance import FAR, FELL, HELD, ONE, OPEN, SOME_FELL, TWO, weigh
from tacit.verify.jit import bare, inlined
from tacit.verify.leaf import NOBODY, descend, descend_by_keys, end_of, pair
from tacit.verify.rush import FALLEN, lunge

WEAK, FEEBLE = 0.5, 0.6
"""A side that must lose less than this part of all that it could lose is attacked at once; and
then by a descent as well."""
FRAIL, FIRM = 0.25, 0.53
"""Of few free features, a side that must lose less than the first part is attacked by a descent at
once; one that must lose more than the second may be closed by its least leaves."""
LEAST_PART, DOUBTFUL, HOPELESS = 0.6, 1.1, 1.25
"""Beyond the first, cutting may close a side. With what the lunge has left, it is tried before
the greedy attack beyond the second, and instead of it beyond the third."""
RUSH, CUT, LATE, PLAN_BITS = 1, 2, 4, 3
"""What else to do about a side that stays open, and whether the greedy attack comes late."""


@bare
def pull_sides(index: Any, sides: Any, g: Any, cell_low: Any, cell_high: Any) -> int:
    """Bound and attack side by side, the most endangered first.

    Returns:
        how many sides stay open, first in `g.order`, with what else to do about each in `g.bound`;
        or SOME_FELL, and the cells are narrowed.
    """
    paths, n_open, is_begun, is_fine, head = index.paths, 0, False, False, 0
    _order_sides(index, sides, g)
    for side in g.order:
        first, second, column = pair(paths, sides, side)
        barrier = sides.barrier[side] - weigh(index.base_units, sides.plus[side], sides.minus[side])
        if g.is_fine[0]:
            head, is_fine = g.bound[side] + barrier, True
        elif second == NOBODY or not is_begun:
            head, is_begun, is_fine = _bound_roughly(paths, g, first, column), True, False
        tail = 0 if second == NOBODY else _bound_roughly(paths, g, second, 1)
        if head + tail >= barrier:
            continue
        # The sum at the center exceeds the barrier by `excess`.
        excess = head + tail - barrier + _spare(paths, g, first, column)
        if second != NOBODY:
            excess += _spare(paths, g, second, 1)
        there = excess
        is_weak = excess < WEAK * (excess - (head + tail - barrier))
        for turn in range(2):
            # What is weak is attacked before it is bounded any better.
            if is_weak == (turn == 0):
                there = lunge(index, sides, g, first, second, column, excess, cell_low, cell_high)
                if there == FALLEN:
                    return SOME_FELL
                loss = excess - (head + tail - barrier)
                is_near = can_slide(g) and excess < FEEBLE * loss
                if is_near and slide_on(index, sides, side, g, there, cell_low, cell_high):
                    return SOME_FELL
                continue
            if not is_fine:
                # What several sides ask about is not left half done.
                enough = barrier if second == NOBODY else FAR
                head = _bound(paths, g, first, column, cell_low, cell_high, head, enough)
                is_fine = True
            if second != NOBODY and head + tail < barrier:
                tail = _bound(paths, g, second, 1, cell_low, cell_high, tail, barrier - head)
            if head + tail >= barrier:
                break
        gap = head + tail - barrier
        if gap >= 0:
            continue
        # A gap is less than 2^47; what to do about it stands below it.
        g.bound[side] = (gap << PLAN_BITS) | _plan(excess, there, gap)
        g.order[n_open] = side
        n_open += 1
    return n_open


@inlined
def _plan(excess: int, there: int, gap: int) -> int:
    """Decide what else to do about an open side: RUSH, CUT, both, or first CUT and then RUSH."""
    # How much of all that it could lose it must lose, and what the lunge has left of that.
    part, left = excess / max(excess - gap, 1), there / max(excess, 1)
    plan = RUSH
    if part > LEAST_PART:
        plan |= CUT
        if part + left > DOUBTFUL:
            plan |= LATE
        if part + left > HOPELESS:
            plan &= ~RUSH
    return plan


@bare
def refine_side(index: Any, sides: Any, side: int, g: Any, cell_low: Any, cell_high: Any) -> int:
    """Find the least leaves of the side of one group; return what they exceed the barrier by."""
    first, _, column = pair(index.paths, sides, side)
    total = _bound_roughly(index.paths, g, first, column)
    total = _bound(index.paths, g, first, column, cell_low, cell_high, total, FAR)
    base = weigh(index.base_units, sides.plus[side], sides.minus[side])
    return total + base - sides.barrier[side]  # type: ignore[no-any-return]


@inlined
def tug_side(index: Any, sides: Any, side: int, g: Any, cell_low: Any, cell_high: Any) -> int:
    """Bound the side of one group; then attack what is weak, and bound better what is not.

    Returns:
        HELD; or FELL, and the cells are narrowed; or OPEN.
    """
    paths = index.paths
    first, second, column = pair(paths, sides, side)
    barrier = sides.barrier[side] - weigh(index.base_units, sides.plus[side], sides.minus[side])
    bound = g.bound[0] + barrier
    if not g.is_rough[0]:
        bound = _bound_roughly(paths, g, first, column)
    loss = _spare(paths, g, first, column)
    excess = bound - barrier + loss
    if bound < barrier and excess < WEAK * loss:
        there = lunge(index, sides, g, first, second, column, excess, cell_low, cell_high)
        is_down = there == FALLEN
        if not is_down and excess < FRAIL * loss:
            is_down = slide_apart(index, sides, side, g, there, cell_low, cell_high)
        return FELL if is_down else OPEN
    if bound < barrier and excess > FIRM * loss:
        bound = _bound(paths, g, first, column, cell_low, cell_high, bound, barrier)
    return HELD if bound >= barrier else OPEN


@inlined
def hold_roughly(index: Any, sides: Any, g: Any) -> bool:
    """Say whether rough bounds, for which no cell need be known, suffice for all sides."""
    paths, head = index.paths, 0
    for side in range(sides.plus.size):
        first, second, column = pair(paths, sides, side)
        barrier = sides.barrier[side] - weigh(index.base_units, sides.plus[side], sides.minus[side])
        if second == NOBODY or side == 0:
            head = _bound_roughly(paths, g, first, column)
        tail = 0 if second == NOBODY else _bound_roughly(paths, g, second, 1)
        if head + tail < barrier:
            g.bound[side], g.is_rough[0] = head + tail - barrier, sides.plus.size == 1
            return False
    return True


@inlined
def hold_finely(index: Any, sides: Any, g: Any) -> bool:
    """Say whether least leaves in the box, found without a cell, suffice for the only side.

    It is not tried on a side that an attack is likely to fell. What is found is kept.
    """
    first, second, column = pair(index.paths, sides, 0)
    if second != NOBODY or sides.plus.size > 1:
        return False
    ends, to, total = index.paths.ends, np.uint64(column), g.bound[0]
    loss = _spare(index.paths, g, first, column)
    if total + loss < WEAK * loss:
        return False
    for k in range(g.open_start[first], g.open_start[first + 1]):
        tree, top = g.undecided[k], 0
        for way in range(g.pending_start[tree], g.pending_end[tree]):
            g.stack[top] = g.pending[way]
            top += 1
        place = np.uint64(g.reached[tree]) << TWO
        least, leaf = descend_by_keys(index, g, top, end_of(ends, place, to), place, to)
        total += least - g.least[tree]
        g.least[tree], g.leaf[tree] = least, leaf
        if total >= 0:
            return True
    g.bound[0], g.is_fine[0] = total, True
    return False


@inlined
def _order_sides(index: Any, sides: Any, g: Any) -> None:
    """Sort the sides by how close their classes come at the center."""
    order, sums, base = g.order, g.sums, index.base_units
    for side in range(order.size):
        at = side
        if index.paths.group_start.size > 2:
            here = sums[sides.minus[side]] + base[sides.minus[side]]
            while at > 0:
                rival = sides.minus[order[at - 1]]
                if sums[rival] + base[rival] >= here:
                    break
                order[at] = order[at - 1]
                at -= 1
        order[at] = side


@inlined
def _bound_roughly(paths: Any, g: Any, group: int, column: int) -> Any:
    """Bound what a group pulls without a walk."""
    ends, to = paths.ends, np.uint64(column)
    total = -g.sums[group] if column else g.sums[group]
    for k in range(g.open_start[group], g.open_start[group + 1]):
        tree = g.undecided[k]
        here = ends[(np.uint64(g.reached[tree]) << ONE) + to]
        least = here
        for way in range(g.pending_start[tree], g.pending_end[tree]):
            least = min(least, end_of(ends, g.pending[way], to))
        g.least[tree] = least
        total += least - here
    return total


@inlined
def _bound(
    paths: Any, g: Any, group: int, column: int, low: Any, high: Any, total: int, enough: int
) -> int:
    """Make a rough bound exact, tree by tree, until it is enough."""
    ends, stack, to = paths.ends, g.stack, np.uint64(column)
    for k in range(g.open_start[group], g.open_start[group + 1]):
        tree = g.undecided[k]
        top = 0
        for way in range(g.pending_start[tree], g.pending_end[tree]):
            stack[top] = g.pending[way]
            top += 1
        place = np.uint64(g.reached[tree]) << TWO
        least, leaf = descend(paths, stack, top, end_of(ends, place, to), place, to, low, high)
        total += least - g.least[tree]
        g.least[tree], g.leaf[tree] = least, leaf
        if total >= enough:
            break
    return total


@inlined
def _spare(paths: Any, g: Any, group: int, column: int) -> int:
    """Sum what the undecided trees of a group could lose."""
    total = 0
    for k in range(g.open_start[group], g.open_start[group + 1]):
        tree = g.undecided[k]
        here = paths.ends[(np.uint64(g.reached[tree]) << ONE) + np.uint64(column)]
        total += here - g.least[tree]
    return total
