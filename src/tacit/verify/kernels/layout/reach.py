"""Compiled: which leaves a box can reach, and the small problem they make.

A box is an interval of cells per feature. Trees that reach one leaf only are constant. Of the
others remain, per leaf, the features that the leaf constrains inside the box, with cells counted
anew so that only cuts which still separate two leaves count ("ranks").
"""

from typing import Any, NamedTuple

import numpy as np

from tacit.verify.kernels.jit import compiled
from tacit.verify.kernels.layout.collect import CON, ONE, THREE, TWO, collect


class Reach(NamedTuple):
    """The problem left inside a box: trees with several reachable leaves.

    Leaves lie tree by tree (`leaf_start`), a leaf's constraints lie in `con_*` (`con_start`): the
    leaf is reached when the rank of `con_feature` is within [`con_low`, `con_high`]. A slot is a
    (tree, feature) pair; `slot_feature` counts features anew from 0.
    """

    fixed_leaf: Any  # (trees): the only leaf of a constant tree, else -1
    tree_id: Any  # (open trees): place in the ensemble
    leaf_start: Any
    leaf_node: Any
    con_start: Any
    con_slot: Any
    con_feature: Any
    con_low: Any
    con_high: Any
    slot_start: Any
    slot_feature: Any
    slot_tree: Any
    slots_of_start: Any  # slots of a feature, as one list per feature
    slots_of: Any
    feature_id: Any  # (open features): place in the ensemble
    rank_start: Any  # (open features + 1): offsets of the feature's ranks in rank_low/rank_high
    rank_low: Any  # first cell of a rank
    rank_high: Any


@compiled
def reach(trees: Any, cell_low: Any, cell_high: Any) -> Any:
    """Reduce the ensemble to what a box of cells leaves open."""
    return reach_open(trees, np.full(trees.roots.size, -1, np.int32), cell_low, cell_high)


@compiled
def reach_open(trees: Any, known: Any, cell_low: Any, cell_high: Any) -> Any:
    """Reduce the ensemble as `reach` does, where the leaves of some trees are known already."""
    found = collect(trees, known, cell_low, cell_high)
    place, shift, rank_start, rank_low, rank_high = _number_ranks(found, cell_low, cell_high)
    n_cons = found.cons.size // 4
    con_slot, con_feature = np.empty(n_cons, np.int32), np.empty(n_cons, np.int32)
    con_low, con_high = np.empty(n_cons, np.int32), np.empty(n_cons, np.int32)
    for con in range(n_cons):
        at = CON * np.uint64(con)
        g = np.uint64(found.cons[at])
        con_feature[con], con_slot[con] = g, found.cons[at + THREE]
        con_low[con] = place[np.uint64(shift[g] + found.cons[at + ONE])]
        con_high[con] = place[np.uint64(shift[g] + found.cons[at + TWO])]
    slots_of_start, slots_of = _slots_by_feature(found.slot_feature, found.feature_id.size)
    return Reach(
        found.fixed_leaf,
        found.tree_id,
        found.leaf_start,
        found.leaf_node,
        found.con_start,
        con_slot,
        con_feature,
        con_low,
        con_high,
        found.slot_start,
        found.slot_feature,
        found.slot_tree,
        slots_of_start,
        slots_of,
        found.feature_id,
        rank_start,
        rank_low,
        rank_high,
    )


@compiled
def _number_ranks(found: Any, cell_low: Any, cell_high: Any) -> Any:
    """Merge neighbouring cells that no constraint separates.

    Returns:
        the rank of each cell, and where to look for the cells of each feature; the ranks.
    """
    size = found.feature_id.size
    wide_start, rank_start = np.zeros(size + 1, np.int32), np.zeros(size + 1, np.int32)
    shift = np.empty(size, np.int32)
    for g in range(size):
        f = found.feature_id[g]
        wide_start[g + 1] = wide_start[g] + cell_high[f] - cell_low[f] + 1
        shift[g] = wide_start[g] - cell_low[f]
    place = np.zeros(wide_start[size] + 1, np.int32)
    # Where a leaf ends another begins: first cells are all there is to mark.
    for con in range(found.cons.size // 4):
        at = CON * np.uint64(con)
        place[np.uint64(shift[found.cons[at]] + found.cons[at + ONE])] = 1
    rank_low, rank_high = np.empty(place.size, np.int32), np.empty(place.size, np.int32)
    total = 0
    for g in range(size):
        first = total
        for cell in range(wide_start[g], wide_start[g + 1]):
            if cell == wide_start[g] or place[cell] == 1:
                rank_low[total] = cell - shift[g]
                total += 1
            rank_high[total - 1] = cell - shift[g]
            place[cell] = total - 1 - first
        rank_start[g + 1] = total
    return place, shift, rank_start, rank_low[:total], rank_high[:total]


@compiled
def _slots_by_feature(slot_feature: Any, n_features: int) -> Any:
    start = np.zeros(n_features + 1, np.int32)
    for g in slot_feature:
        start[g + 1] += 1
    for g in range(n_features):
        start[g + 1] += start[g]
    fill, slots_of = start.copy(), np.empty(slot_feature.size, np.int32)
    for slot in range(slot_feature.size):
        g = slot_feature[slot]
        slots_of[fill[g]] = slot
        fill[g] += 1
    return start, slots_of
