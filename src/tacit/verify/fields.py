"""Compiled: a small branch and bound on plain bounds alone, four features at a time.

A range of cells in each of four features is four numbers of 15 bits to a word, so a word of limits
is compared with a word of ranges at once. The first leaves of all trees lie side by side, then the
second ones of all that have two, and so on: the least leaf of every tree, in the lower and in the
upper halves of all four features, is found in one pass of vector instructions without a branch.
What is closed in one half is cut off; otherwise the box is split where that helps most.

Everything is rounded so that a proof stands: an excess down, the gap up.
"""

from typing import Any

import numpy as np

from tacit.verify.glance import ONE, TWO
from tacit.verify.jit import inlined
from tacit.verify.slate import LANE

WIDE = 4
"""How many features count."""

FIELD, FIELDS = np.uint64(0x7FFF), np.uint64(0x7FFF7FFF7FFF7FFF)
TOPS = np.uint64(0x8000800080008000)
"""The highest bit of every field is spare: a comparison leaves its answer there."""
UNITS, EVEN = np.uint64(0x0001000100010001), np.uint64(0x0000FFFF0000FFFF)
BITS, LAST, WORD = np.uint64(16), np.uint64(15), np.uint64(0xFFFFFFFF)
NONE = np.uint64(0)

CLOSED, CUT, STUCK, SPLIT_LOWER, SPLIT_UPPER, SPENT = 0, 1, 2, 3, 4, 5
"""What is done with a part; of two halves, the one that promises less comes first. SPENT is said
of a box only: there would be too many parts."""


@inlined
def close(slate: Any, n_rows: int, goal: Any, widths: Any, most: int) -> Any:
    """Find out whether the excesses add up to a goal wherever in a box.

    Args:
        slate: with the leaves in rows: by how many cells a leaf starts above the box, by how many
            it ends below it, and its excess in every field.
        n_rows: how many rows of leaves.
        goal: what the sum of excesses must reach.
        widths: how many cells beyond the first the box holds, field by field.
        most: how many parts to look at.

    Returns:
        CLOSED if they do; STUCK if they do not in a part that is no further narrowed; SPENT; and
        the limits of the last part.
    """
    waiting, top, parts, ceiling, floor = slate.waiting, TWO, 0, widths, widths
    waiting[0], waiting[1] = widths, widths
    while top > 0:
        top -= TWO
        ceiling, floor = waiting[top], waiting[top + ONE]
        while True:
            parts += 1
            if parts > most:
                return SPENT, ceiling, floor
            lower, upper = _halve(ceiling, floor, widths)
            limits = (ceiling, floor, lower, upper)
            sums, highest = _add_up(slate, n_rows, limits)
            step, below, above = _decide(limits, widths, sums, goal)
            if step == CLOSED:
                break
            if step == STUCK or highest < goal:
                return STUCK, ceiling, floor
            if step == CUT:
                ceiling, floor = put(ceiling, lower, below), put(floor, upper, above)
                continue
            first = TWO * np.uint64(step == SPLIT_LOWER)
            waiting[top + first] = put(ceiling, lower, below)
            waiting[top + first + ONE] = floor
            waiting[top + TWO - first] = ceiling
            waiting[top + TWO - first + ONE] = put(floor, upper, above)
            top += TWO + TWO
            break
    return CLOSED, ceiling, floor


@inlined
def put(word: Any, other: Any, field: Any) -> Any:
    """Take some fields of a word from another."""
    return word ^ ((word ^ other) & field)


@inlined
def _halve(ceiling: Any, floor: Any, widths: Any) -> Any:
    """Halve every feature; return the limits of leaves that reach a lower or an upper half."""
    first = widths - floor
    middle = ((first + ceiling) >> ONE) & FIELDS
    is_split = (((ceiling | TOPS) - (first + UNITS)) & TOPS) >> LAST
    return middle, widths - middle - is_split


@inlined
def _exceeds(word: Any, limit: Any) -> Any:
    """Mark the fields of a word that are beyond a limit, in their highest bits."""
    return ((word | TOPS) - (limit + UNITS)) & TOPS


@inlined
def _fill(marks: Any) -> Any:
    """Fill the fields that are marked."""
    return marks - (marks >> LAST)


@inlined
def _least(one: Any, other: Any) -> Any:
    """Take the lesser of every two fields."""
    return put(one, other, _fill(((one | TOPS) - other) & TOPS))


@inlined
def _add_up(slate: Any, n_rows: int, limits: Any) -> Any:
    """Add up the least leaves of all trees in every half of a part.

    Returns:
        the sums: lower halves of features 0 and 2, of 1 and 3, upper halves likewise; and what the
        greatest leaves in the whole part add up to.
    """
    below, above, greatest = slate.below, slate.above, slate.greatest
    n_lanes, start = np.int64(slate.lanes[0]), np.int64(0)
    for k in range(LANE * n_lanes):
        below[k], above[k], greatest[k] = FIELDS, FIELDS, NONE
    for row in range(n_rows):
        size = LANE * np.int64(slate.lanes[row])
        _look(slate, size, start, limits)
        start += size
    one, two, three, four, highest = NONE, NONE, NONE, NONE, NONE
    for k in range(LANE * n_lanes):
        one += below[k] & EVEN
        two += (below[k] >> BITS) & EVEN
        three += above[k] & EVEN
        four += (above[k] >> BITS) & EVEN
        highest += greatest[k]
    return (one, two, three, four), highest


@inlined
def _look(slate: Any, size: Any, start: Any, limits: Any) -> None:
    """Look at a row of leaves: each is one of another tree."""
    ceiling, floor, lower, upper = limits
    below, above, greatest = slate.below, slate.above, slate.greatest
    low, high = slate.low[start : start + size], slate.high[start : start + size]
    excess = slate.excess[start : start + size]
    for k in range(size):
        is_out = (_exceeds(low[k], ceiling) | _exceeds(high[k], floor)) != NONE
        gone = FIELDS if is_out else NONE
        below[k] = _least(below[k], excess[k] | gone | _fill(_exceeds(low[k], lower)))
        above[k] = _least(above[k], excess[k] | gone | _fill(_exceeds(high[k], upper)))
        greatest[k] = max(greatest[k], excess[k] & FIELD & ~gone)


@inlined
def _decide(limits: Any, widths: Any, sums: Any, goal: Any) -> Any:
    """Say what to do with a part, and in which fields to narrow it from above and from below."""
    ceiling, floor, _, _ = limits
    best, step, chosen, from_above, from_below = NONE, STUCK, NONE, NONE, NONE
    for s in range(WIDE):
        by = BITS * np.uint64(s)
        half = BITS * np.uint64(s & 2)
        below = ((sums[1] if s & 1 else sums[0]) >> half) & WORD
        above = ((sums[3] if s & 1 else sums[2]) >> half) & WORD
        below, above = min(below, goal), min(above, goal)
        if below == goal and above == goal:
            return CLOSED, NONE, NONE
        if ((ceiling ^ (widths - floor)) >> by) & FIELD == 0:
            continue  # one cell is left, and stands for both halves
        score = below + above + TWO * min(below, above) + ONE
        if below == goal:
            from_below |= FIELD << by
        elif above == goal:
            from_above |= FIELD << by
        elif score > best:
            best, chosen = score, FIELD << by
            step = SPLIT_LOWER if below < above else SPLIT_UPPER
    if from_above | from_below != 0:
        return CUT, from_above, from_below
    return step, chosen, chosen
