"""Compiled: a small branch and bound on plain bounds alone, four features at a time.

A range of cells in each of four features is four numbers of 15 bits to a word, so a word of limits
is compared with a word of ranges at once, and the least leaf of every tree is found in the lower
and in the upper halves of all four features in one pass over the leaves. What is closed in one half
is cut off; otherwise the box is split where that helps most.

Everything is rounded so that a proof stands: an excess down, the gap up.
"""

from typing import Any

import numpy as np

from tacit.verify.glance import ONE, THREE, TWO
from tacit.verify.jit import inlined

WIDE = 4
"""How many features count."""

FIELD, FIELDS = np.uint64(0x7FFF), np.uint64(0x7FFF7FFF7FFF7FFF)
TOPS = np.uint64(0x8000800080008000)
"""The highest bit of every field is spare: a comparison leaves its answer there."""
UNITS, EVEN = np.uint64(0x0001000100010001), np.uint64(0x0000FFFF0000FFFF)
BITS, LAST, MARK, WORD = np.uint64(16), np.uint64(15), np.uint64(63), np.uint64(0xFFFFFFFF)
NONE, FOUR, ENTRY = np.uint64(0), np.uint64(4), np.uint64(5)

CLOSED, CUT, STUCK, SPLIT_LOWER, SPLIT_UPPER = 0, 1, 2, 3, 4
"""What is done with a part; of two halves, the one that promises less comes first."""


@inlined
def close(slate: Any, count: Any, gap: int, widths: Any, most: int) -> bool:
    """Say whether the excesses add up to the gap wherever in a box; False may mean unknown.

    Args:
        slate: with the leaves, three words each, tree by tree: by how many cells a leaf starts
            above the box, by how many it ends below it, and its excess, with a mark on every
            other tree.
        count: how many words.
        gap: what the sum of excesses must reach.
        widths: how many cells beyond the first the box holds, field by field.
        most: how many parts to look at.
    """
    room, waiting, top, parts = slate.room, slate.waiting, ENTRY, 0
    goal = _scale(slate.leaves, count, gap, room)
    _wait(waiting, NONE, widths, widths, (NONE, count, NONE))
    while top > 0:
        top -= ENTRY
        ceiling, floor, base = waiting[top], waiting[top + ONE], waiting[top + FOUR]
        start, stop = waiting[top + TWO], waiting[top + THREE]
        to = stop  # the other half may need the list
        while True:
            parts += 1
            if parts > most or to + stop - start > np.uint64(room.size):
                return False
            lower, upper = _halve(ceiling, floor, widths)
            limits = (ceiling, floor, lower, upper)
            stop, base, sums = _sift(room, start, stop, to, limits, base)
            start = to
            step, below, above = _decide(limits, widths, sums, goal)
            if step == CLOSED:
                break
            if step == STUCK or start == stop:
                return False
            if step == CUT:
                ceiling, floor = put(ceiling, lower, below), put(floor, upper, above)
                continue
            rest, first = (start, stop, base), ENTRY * np.uint64(step == SPLIT_LOWER)
            _wait(waiting, top + first, put(ceiling, lower, below), floor, rest)
            _wait(waiting, top + ENTRY - first, ceiling, put(floor, upper, above), rest)
            top += ENTRY + ENTRY
            break
    return True


@inlined
def put(word: Any, other: Any, field: Any) -> Any:
    """Take some fields of a word from another."""
    return word ^ ((word ^ other) & field)


@inlined
def _scale(leaves: Any, count: Any, gap: int, room: Any) -> Any:
    """Round every excess down to 15 bits and number the trees; return the gap, rounded up."""
    goal, by = np.uint64(gap), NONE
    while goal >> by >= FIELD:
        by += ONE
    goal = (goal + (ONE << by) - ONE) >> by
    tree, mark = NONE, NONE
    for at in range(NONE, count, THREE):
        word = leaves[at + TWO]
        tree += (word >> MARK) ^ mark
        mark = word >> MARK
        room[at], room[at + ONE] = leaves[at], leaves[at + ONE]
        room[at + TWO] = min((word & ~(ONE << MARK)) >> by, goal) | (tree << BITS)
    return goal


@inlined
def _wait(waiting: Any, at: Any, ceiling: Any, floor: Any, rest: Any) -> None:
    """Write down a box, where the list of its leaves is, and what trees add that are decided."""
    waiting[at], waiting[at + ONE] = ceiling, floor
    waiting[at + TWO], waiting[at + THREE], waiting[at + FOUR] = rest


@inlined
def _halve(ceiling: Any, floor: Any, widths: Any) -> Any:
    """Halve every feature; return the limits of leaves that reach a lower or an upper half."""
    first = widths - floor
    middle = ((first + ceiling) >> ONE) & FIELDS
    is_split = (((ceiling | TOPS) - (first + UNITS)) & TOPS) >> LAST
    return middle, widths - middle - is_split


@inlined
def _beyond(word: Any, limit: Any) -> Any:
    """Fill the fields of a word that are beyond a limit, and empty the others."""
    bits = ((word | TOPS) - (limit + UNITS)) & TOPS
    return bits - (bits >> LAST)


@inlined
def _least(one: Any, other: Any) -> Any:
    """Take the lesser of every two fields."""
    bits = ((one | TOPS) - other) & TOPS
    return put(one, other, bits - (bits >> LAST))


@inlined
def _sift(room: Any, start: Any, stop: Any, to: Any, limits: Any, base: Any) -> Any:
    """Copy the leaves that a part reaches; add up the least ones of its trees in every half.

    Returns:
        where the copies end; what trees add of which one leaf is left, which are not copied; and
        the sums: lower halves of features 0 and 2, of 1 and 3, upper halves likewise, and what
        is to be added to all of them.
    """
    ceiling, floor, lower, upper = limits
    n, first, tree, decided = to, to, room[start + TWO] >> BITS, base
    below, above = FIELDS, FIELDS
    sums = (NONE, NONE, NONE, NONE)
    for at in range(start, stop, THREE):
        low, high, tag = room[at], room[at + ONE], room[at + TWO]
        if tag >> BITS != tree:
            tree = tag >> BITS
            sums = _add(sums, below, above)
            below, above = FIELDS, FIELDS
            if n == first + THREE:
                n = first
                decided += room[n + TWO] & FIELD
            first = n
        is_in = (_beyond(low, ceiling) | _beyond(high, floor)) == 0
        room[n], room[n + ONE], room[n + TWO] = low, high, tag
        n += THREE * np.uint64(is_in)
        excess = ((tag & FIELD) * UNITS) | (FIELDS * np.uint64(not is_in))
        below = _least(below, excess | _beyond(low, lower))
        above = _least(above, excess | _beyond(high, upper))
    sums = _add(sums, below, above)
    if n == first + THREE:
        n = first
        decided += room[n + TWO] & FIELD
    return n, decided, (sums[0], sums[1], sums[2], sums[3], base)


@inlined
def _add(sums: Any, below: Any, above: Any) -> Any:
    return (
        sums[0] + (below & EVEN),
        sums[1] + ((below >> BITS) & EVEN),
        sums[2] + (above & EVEN),
        sums[3] + ((above >> BITS) & EVEN),
    )


@inlined
def _decide(limits: Any, widths: Any, sums: Any, goal: Any) -> Any:
    """Say what to do with a part, and in which fields to narrow it from above and from below."""
    ceiling, floor, _, _ = limits
    best, step, chosen, from_above, from_below = NONE, STUCK, NONE, NONE, NONE
    for s in range(WIDE):
        by = BITS * np.uint64(s)
        if ((ceiling ^ (widths - floor)) >> by) & FIELD == 0:
            continue
        half = BITS * np.uint64(s & 2)
        below = ((sums[1] if s & 1 else sums[0]) >> half) & WORD
        above = ((sums[3] if s & 1 else sums[2]) >> half) & WORD
        below, above = min(below + sums[4], goal), min(above + sums[4], goal)
        if below == goal and above == goal:
            return CLOSED, NONE, NONE
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
