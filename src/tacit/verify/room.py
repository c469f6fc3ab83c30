"""Compiled: the arrays that descents and cuts work on, laid out in two that are made once.

A kernel hands every array of a tuple on by itself: two are passed on faster than thirty.
"""

from typing import Any, NamedTuple

from tacit.verify.jit import compiled, inlined

MOST_OPEN = 8
"""Boxes that may be open at a time where a box is cut."""
BUCKETS = 16
"""Places at which a feature may be cut."""


class Slope(NamedTuple):
    """What a descent works on."""

    bit: Any  # (features): a bit for each open one
    asks: Any  # (trees): the bits of the open features that a tree asks for on its way
    promise: Any  # (features): what a feature may bring
    steps: Any  # (cells): how a sum changes from cell to cell of one feature
    team: Any  # (trees): those that are looked at come first
    few: Any  # (trees): those of them that ask for one feature come first
    ranked: Any  # (features): those that promise most come first
    fork: Any  # (ways, 3): ways still to be seen: place, first and last cell


class Cuts(NamedTuple):
    """What the cutting of a box works on: the open boxes, and the least leaf of every tree."""

    low: Any  # (boxes, features)
    high: Any
    least: Any  # (boxes, trees)
    leaf: Any  # (boxes, trees): its place
    gap: Any  # (boxes): by how much the bound exceeds the barrier
    tree: Any  # (trees): the undecided ones come first
    to: Any  # (trees): which end of each counts
    here: Any  # (trees): what it pulls at the center
    rising: Any  # (trees): the ones whose way up is not yet at the root
    place: Any  # (trees): how far up they are
    asker: Any  # (wishes): which tree has it
    rank: Any  # (wishes): to be right of this cut, or to be left of its complement
    feature: Any  # (wishes)
    after: Any  # (wishes): the next wish about the same feature, or -1
    newest: Any  # (features): the first of them, or -1
    left: Any  # (features): what trees that wish to be left of a cut could lose
    right: Any  # (features): and to the right
    known: Any  # (features): those with wishes come first
    lefts: Any  # (buckets): the same, for one feature, cut by cut
    rights: Any  # (buckets)


@inlined
def _sizes(index: Any) -> Any:
    """Count features, trees and questions of the longest way, with some to spare."""
    return index.cut_start.size, index.trees.roots.size + 1, index.trees.depth + 2


@compiled
def count_words(index: Any) -> Any:
    """Count the small numbers that any of the two needs."""
    n_features, n_trees, depth = _sizes(index)
    cuts = MOST_OPEN * (2 * n_features + n_trees) + 4 * n_trees + 4 * n_trees * depth
    return max(cuts + 2 * n_features, 2 * n_trees + n_features + 3 * depth)


@compiled
def count_longs(index: Any) -> Any:
    """Count the large ones."""
    n_features, n_trees, _ = _sizes(index)
    widest = 0
    for f in range(n_features - 1):
        widest = max(widest, index.cut_start[f + 1] - index.cut_start[f])
    cuts = MOST_OPEN * (n_trees + 1) + n_trees + 2 * n_features + 2 * BUCKETS
    return max(cuts, n_trees + 2 * n_features + widest + 2)


@inlined
def make_slope(index: Any, words: Any, longs: Any) -> Any:
    """Lay out what a descent works on."""
    n_features, n_trees, depth = _sizes(index)
    few, ranked, fork = n_trees, 2 * n_trees, 2 * n_trees + n_features
    asks, promise, steps = n_features, n_features + n_trees, 2 * n_features + n_trees
    return Slope(
        longs[:asks],
        longs[asks:promise],
        longs[promise:steps],
        longs[steps:],
        words[:few],
        words[few:ranked],
        words[ranked:fork],
        words[fork : fork + 3 * depth],
    )


@inlined
def make_cuts(index: Any, words: Any, longs: Any) -> Any:
    """Lay out what the cutting of a box works on."""
    n_features, n_trees, depth = _sizes(index)
    n_wishes = n_trees * depth
    high = MOST_OPEN * n_features
    leaf = 2 * high
    tree = leaf + MOST_OPEN * n_trees
    asker = tree + 4 * n_trees
    newest = asker + 4 * n_wishes
    gap = MOST_OPEN * n_trees
    here = gap + MOST_OPEN
    left = here + n_trees
    lefts = left + 2 * n_features
    return Cuts(
        words[:high].reshape((MOST_OPEN, n_features)),
        words[high:leaf].reshape((MOST_OPEN, n_features)),
        longs[:gap].reshape((MOST_OPEN, n_trees)),
        words[leaf:tree].reshape((MOST_OPEN, n_trees)),
        longs[gap:here],
        words[tree : tree + n_trees],
        words[tree + n_trees : tree + 2 * n_trees],
        longs[here:left],
        words[tree + 2 * n_trees : tree + 3 * n_trees],
        words[tree + 3 * n_trees : asker],
        words[asker : asker + n_wishes],
        words[asker + n_wishes : asker + 2 * n_wishes],
        words[asker + 2 * n_wishes : asker + 3 * n_wishes],
        words[asker + 3 * n_wishes : newest],
        words[newest : newest + n_features],
        longs[left : left + n_features],
        longs[left + n_features : lefts],
        words[newest + n_features : newest + 2 * n_features],
        longs[lefts : lefts + BUCKETS],
        longs[lefts + BUCKETS : lefts + 2 * BUCKETS],
    )
