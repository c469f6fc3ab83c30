"""Compiled: a proof by halving, for boxes that leave few features free.

Next to no problem is built for it: of each leaf remain its excess over the least leaf of its tree
and its range of cells in the four widest features, which `fields` searches. A feature that is left
out only makes leaves reach further.
"""

from typing import Any

import numpy as np

from tacit.verify.fields import BITS, FIELD, MARK, NONE, WIDE, close, put
from tacit.verify.glance import FAR, ONE, THREE, TWO, weigh
from tacit.verify.jit import inlined
from tacit.verify.paths import END
from tacit.verify.slate import lay_slate

MOST_FREE = 32
"""Features that a box may leave free."""
MOST_PARTS, FEW_PARTS = 384, 24
CARD = np.uint64(8)
FIRST, FINAL, FIRST_EVER, FINAL_EVER, MASK, PLACE = (np.uint64(word) for word in range(6))
"""Words of a feature's card."""


@inlined
def halve_sides(
    index: Any, sides: Any, g: Any, n_open: int, cell_low: Any, cell_high: Any, most: int
) -> int:
    """Try to prove the sides that are first in `g.order`; return how many stay open, first there.

    They are proved one by one, each in at most so many parts and in MOST_PARTS.
    """
    left = 0
    for i in range(n_open):
        side = g.order[i]
        g.order[left] = side
        left += not halve_side(index, sides, side, g, cell_low, cell_high, min(most, MOST_PARTS))
    return left


@inlined
def halve_side(
    index: Any, sides: Any, side: int, g: Any, cell_low: Any, cell_high: Any, most: int
) -> bool:
    """Try to prove a side that the plain bound has left open, in at most so many parts.

    Leaves must pull one number, and all trees belong to one group.
    """
    paths, n_free = index.paths, g.free[g.at.size]
    if n_free > MOST_FREE:
        return False
    plus, minus = sides.plus[side], sides.minus[side]
    column, barrier = np.uint64(plus != 0), sides.barrier[side]
    barrier -= weigh(index.base_units, plus, minus)
    undecided = g.undecided[: g.open_start[1]]
    barrier -= g.sums[0] if column == 0 else -g.sums[0]
    for k in range(undecided.size):
        barrier += paths.ends[(np.uint64(g.reached[undecided[k]]) << ONE) + column]
    slate = lay_slate(index, g.slate)
    chosen, widths = _choose(slate, g.free[:n_free], cell_low, cell_high)
    count, least = _list_leaves(paths, undecided, slate, chosen, column)
    gap = barrier - least
    return count > 0 and (gap <= 0 or close(slate, count, gap, widths, most))


@inlined
def _choose(slate: Any, free: Any, cell_low: Any, cell_high: Any) -> Any:
    """Choose the features of which the box holds most cells; write down what is known of all.

    Eight words for each feature: its cells within the box, first and last, as they are on the way
    to the current leaf and at first, the mask and the place of its field, if it has one.

    Returns:
        the words' places for features that are chosen; and how many cells beyond the first the box
        holds, field by field.
    """
    card, chosen, count = slate.card, slate.chosen, 0
    for f in range(cell_low.size):
        at = CARD * np.uint64(f)
        card[at + FIRST], card[at + FIRST_EVER] = cell_low[f], cell_low[f]
        card[at + FINAL], card[at + FINAL_EVER] = cell_high[f], cell_high[f]
        card[at + MASK], card[at + PLACE] = NONE, NONE
    for f in free:
        width, to = cell_high[f] - cell_low[f], count
        if width >= FIELD:
            continue
        while to > 0 and _width(card, chosen[to - 1]) < width:
            if to < WIDE:
                chosen[to] = chosen[to - 1]
            to -= 1
        if to < WIDE:
            chosen[to] = CARD * np.uint64(f)
            count = min(count + 1, WIDE)
    widths = NONE
    for s in range(count):
        at, by = chosen[s], BITS * np.uint64(s)
        card[at + MASK], card[at + PLACE] = FIELD << by, by
        widths |= _width(card, at) << by
    return chosen[:count], widths


@inlined
def _width(card: Any, at: Any) -> Any:
    return card[at + FINAL_EVER] - card[at + FIRST_EVER]


@inlined
def _list_leaves(paths: Any, undecided: Any, slate: Any, chosen: Any, column: Any) -> Any:
    """List the leaves that a box can reach.

    Three words for each leaf: by how many cells it starts above the box and by how many it ends
    below it, and what it pulls beyond the least leaf of its tree, with a mark on every other tree.

    Returns:
        how many words there are, 0 if too many; and what the least leaves pull.
    """
    walk, ends, entry = paths.walk, paths.ends, paths.entry
    card, leaves, stack = slate.card, slate.leaves, slate.stack
    n, total = NONE, 0
    for k in range(undecided.size):
        node, top = np.uint64(entry[undecided[k]]), NONE
        above, below, first, least = NONE, NONE, n, FAR
        while True:
            while True:
                at, rank = CARD * np.uint64(walk[node]), np.uint64(walk[node + ONE])
                is_above = card[at + FIRST] > rank
                if (is_above | (card[at + FINAL] <= rank)) & (rank != END):
                    node = np.uint64(walk[node + TWO + np.uint64(is_above)])
                    continue
                if rank == END:
                    break
                field, by = card[at + MASK], card[at + PLACE]
                stack[top], stack[top + TWO] = walk[node + THREE], below
                start = (rank + ONE - card[at + FIRST_EVER]) << by
                stack[top + ONE] = put(above, start, field)
                top += THREE
                node = np.uint64(walk[node + TWO])
                if field != 0:
                    card[at + FINAL] = rank
                    below = put(below, (card[at + FINAL_EVER] - rank) << by, field)
            if n == np.uint64(leaves.size):
                return NONE, 0
            pull = ends[(node >> ONE) + column]
            least = min(least, pull)
            leaves[n], leaves[n + ONE], leaves[n + TWO] = above, below, np.uint64(pull)
            n += THREE
            is_last = top == 0
            if is_last:
                above, below = NONE, NONE
            else:
                top -= THREE
                node, above, below = stack[top], stack[top + ONE], stack[top + TWO]
            for at in chosen:
                by = card[at + PLACE]
                card[at + FIRST] = card[at + FIRST_EVER] + ((above >> by) & FIELD)
                card[at + FINAL] = card[at + FINAL_EVER] - ((below >> by) & FIELD)
            if is_last:
                break
        total += least
        for word in range(first + TWO, n, THREE):
            leaves[word] = (leaves[word] - np.uint64(least)) | (np.uint64(k & 1) << MARK)
    return n, total
