"""Compiled: what one walk through the trees tells before any problem is built.

The leaf of every tree at the center, and the ways that the box leaves open beside it. What is made
of them stands in `pull` (leaves that pull one number) and `crowd` (leaves that pull several).
"""

from typing import Any, NamedTuple

import numpy as np

from tacit.verify.jit import compiled, inlined
from tacit.verify.kernel import add_leaves
from tacit.verify.lanes import WIDTH
from tacit.verify.paths import END
from tacit.verify.room import count_longs, count_words
from tacit.verify.slate import count_slate

FAR = 1 << 61
"""A weight beyond every sum of units."""

SOME_FELL = -1
"""In place of how many sides are open: one of them fell."""

HELD, FELL, OPEN = 0, 1, 2
"""What became of one side."""

ONE, TWO, THREE = np.uint64(1), np.uint64(2), np.uint64(3)
"""Unsigned, as are places: a place plus a signed number would be a float."""


class Glance(NamedTuple):
    """Scratch arrays of the walks, made once for many rows; trees are counted as in `Paths`."""

    at: Any  # (features): the cell of the center
    low: Any  # (features): the intervals that the attack has left
    high: Any
    point: Any  # (features): where the attack stands
    free: Any  # (features): those of which the box holds several cells come first
    reached: Any  # (trees): the leaf at the center
    taken: Any  # (trees): the leaf at the attack's point
    undecided: Any  # (trees): those that reach several leaves come first
    open_start: Any  # (groups + 1): where those of a group begin
    pending: Any  # (ways): places that the box can reach beside the center's path
    pending_start: Any  # (trees): where those of an undecided tree begin; tree after tree
    pending_end: Any  # (trees)
    least: Any  # (trees): the least pull of an undecided tree
    leaf: Any  # (trees): the place of the leaf that has it
    loss: Any  # (trees): by how much the attack hopes to lower a tree
    weight: Any  # (trees, scores): by how much an undecided tree lowers a class against another
    fixed: Any  # (scores): units of everything that is decided
    bound: Any  # (sides): the plain bound
    order: Any  # (sides): the most endangered first
    stack: Any  # (ways): places still to be seen
    scores: Any
    least_leaf: Any  # (trees, scores): the leaf that does it
    promise: Any  # (trees): those that the attack hopes to lower most come first
    ways: Any  # (ways): as `pending`, beside the path of the attack's point
    way_start: Any  # (trees)
    way_end: Any  # (trees)
    change: Any  # (ways): what one way alone would change
    vote: Any  # (2 * features): what it would change to sink, and to rise; zeros between attacks
    sums: Any  # (scores): units of the leaves at the center; in one group, all in the first
    key_low: Any  # (features): the ends of the box, as the library rounds them
    key_at: Any
    key_high: Any
    few: Any  # (3, features, and some to spare): the same of those with few cuts, side by side
    counts: Any  # (3, features, and some to spare): their cells
    is_fine: Any  # (1): the least leaves of the only side are known already
    is_rough: Any  # (1): or at least its rough bound is
    words: Any  # room for what descents and cuts make of it
    longs: Any
    slate: Any  # room for what halving makes of it


@compiled
def make_glance(index: Any, n_sides: int) -> Any:
    """Allocate the scratch arrays."""
    n_features, n_trees = index.cut_start.size - 1, index.trees.roots.size
    n_scores, depth = index.base_units.size, index.trees.depth + 2
    n_weights = n_trees if index.paths.ends.size == 0 else 0
    return Glance(
        np.zeros(n_features, np.int32),
        np.zeros(n_features, np.int32),
        np.zeros(n_features, np.int32),
        np.zeros(n_features, np.int32),
        np.zeros(n_features + 1, np.int32),
        np.zeros(n_trees, np.int32),
        np.zeros(n_trees, np.int32),
        np.zeros(n_trees + 1, np.int32),
        np.zeros(index.paths.group_start.size, np.int64),
        np.zeros(n_trees * depth, np.uint32),
        np.zeros(n_trees, np.int64),
        np.zeros(n_trees, np.int64),
        np.zeros(n_trees, np.int64),
        np.zeros(n_trees, np.uint32),
        np.zeros(n_trees, np.int64),
        np.zeros((n_weights, n_scores), np.int64),
        np.zeros(n_scores, np.int64),
        np.zeros(n_sides, np.int64),
        np.zeros(n_sides, np.int64),
        np.zeros(2 * depth, np.uint32),
        np.zeros(n_scores, np.float64),
        np.zeros((n_weights, n_scores), np.uint32),
        np.zeros(n_weights, np.int32),
        np.zeros(n_weights * depth, np.uint32),
        np.zeros(n_weights, np.int64),
        np.zeros(n_weights, np.int64),
        np.zeros(n_weights * depth, np.int64),
        np.zeros(2 * n_features, np.int64),
        np.zeros(n_scores, np.int64),
        np.zeros(n_features, np.float64),
        np.zeros(n_features, np.float64),
        np.zeros(n_features, np.float64),
        np.zeros((3, n_features + WIDTH), np.float32),
        np.zeros((3, n_features + WIDTH), np.int32),
        np.zeros(1, np.bool_),
        np.zeros(1, np.bool_),
        np.empty(count_words(index), np.int32),
        np.empty(count_longs(index), np.int64),
        np.empty(count_slate(index), np.uint64),
    )


@inlined
def look(paths: Any, g: Any, cell_low: Any, cell_high: Any) -> Any:
    """Find the leaf of each tree at the center; return how many trees are undecided in the box.

    `stride` does the same, faster, where a box has floats and its center lies inside.
    """
    walk, at, pending = paths.walk, g.at, g.pending
    count, ways = np.int64(0), np.uint64(0)
    for tree in range(g.reached.size):
        node, before = np.uint64(paths.entry[tree]), ways
        while walk[node + ONE] != END:
            f, rank = np.uint64(walk[node]), walk[node + ONE]
            goes_right = at[f] > rank
            to = np.uint64(goes_right)
            # Written in any case and counted only if the box goes there: no branch to mistake.
            # The center may lie outside of the box, so both ends are asked.
            pending[ways] = walk[node + THREE - to]
            is_open = (goes_right & (cell_low[f] <= rank)) | (~goes_right & (cell_high[f] > rank))
            ways += np.uint64(is_open)
            node = np.uint64(walk[node + TWO + to])
        g.reached[tree] = node >> TWO
        g.undecided[count], g.pending_start[tree], g.pending_end[tree] = tree, before, ways
        count += np.int64(ways > before)
    mark_groups(paths, g, count)
    return count


@inlined
def mark_groups(paths: Any, g: Any, count: Any) -> None:
    """Note where the undecided trees of each group begin."""
    at = 0
    for group in range(g.open_start.size - 1):
        g.open_start[group] = at
        while at < count and g.undecided[at] < paths.group_start[group + 1]:
            at += 1
    g.open_start[g.open_start.size - 1] = count


@inlined
def sum_center(index: Any, g: Any) -> None:
    """Sum the units of the leaves at the center, without what is constant."""
    paths, sums = index.paths, g.sums
    for score in range(sums.size):
        sums[score] = 0
    if paths.ends.size == 0:
        units = index.trees.units
        for tree in range(g.reached.size):
            node = np.uint64(g.reached[tree])
            for score in range(sums.size):
                sums[score] += units[node, score]
        return
    for group in range(g.open_start.size - 1):
        total = 0
        for tree in range(paths.group_start[group], paths.group_start[group + 1]):
            total += paths.ends[np.uint64(g.reached[tree]) << ONE]
        sums[group] = total


@inlined
def tally(index: Any, g: Any, leaves: Any) -> None:
    """Sum one leaf per tree to the scores of all classes, in the library's arithmetic."""
    paths, rule = index.paths, index.rule
    if paths.group_start.size - 1 != g.scores.size:
        add_leaves(index.trees, rule, leaves, g.scores)
        return
    for group in range(g.scores.size):
        g.scores[group] = tally_group(paths, rule, leaves, group)


@inlined
def tally_group(paths: Any, rule: Any, leaves: Any, group: int) -> float:
    """Sum the leaves of one group to its score, as `add_leaves` does; other trees add nothing."""
    pay, first, last = paths.pay, paths.group_start[group], paths.group_start[group + 1]
    if rule.is_single:
        single = np.float32(rule.base[group])
        for tree in range(first, last):
            single = np.float32(single + np.float32(pay[np.uint64(leaves[tree])]))
        return np.float64(np.float32(single / np.float32(rule.divisor)))
    total = rule.base[group]
    for tree in range(first, last):
        total += pay[np.uint64(leaves[tree])]
    return total / rule.divisor  # type: ignore[no-any-return]


@inlined
def weigh(row: Any, plus: int, minus: int) -> int:
    """Weigh the units of a leaf for one side."""
    total = 0
    if plus >= 0:
        total += row[plus]
    if minus >= 0:
        total -= row[minus]
    return total


@inlined
def narrow(rise: Any, place: Any, low: Any, high: Any) -> bool:
    """Narrow intervals to what reaches a leaf; say whether anything does."""
    node = np.uint64(place)
    is_open = True
    while rise[node] != END:
        f = np.uint64(rise[node + ONE])
        low[f], high[f] = max(low[f], rise[node + TWO]), min(high[f], rise[node + THREE])
        is_open &= low[f] <= high[f]
        node = np.uint64(rise[node])
    return is_open
