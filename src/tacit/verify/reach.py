"""Compiled: which leaves a box can reach, and the small problem they make.

A box is an interval of cells per feature. Trees that reach one leaf only are constant. Of the
others remain, per leaf, the features that the leaf constrains inside the box, with cells counted
anew so that only cuts which still separate two leaves count ("ranks").
"""

from typing import Any, NamedTuple

import numpy as np

from tacit.verify.jit import compiled
from tacit.verify.walk import collect


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
    local, feature_id = _number_features(found, cell_low.size)
    place, wide_start, rank_start, rank_low, rank_high = _number_ranks(
        found, local, feature_id, cell_low, cell_high
    )
    fixed_leaf, tree_id = _open_trees(found)
    leaf_start, leaf_node, con_start, cons = _gather(found, tree_id)
    con_slot, con_feature, con_low, con_high = cons
    for con in range(con_feature.size):
        g, f = local[con_feature[con]], con_feature[con]
        start = wide_start[g] - cell_low[f]
        con_feature[con] = g
        con_low[con], con_high[con] = place[start + con_low[con]], place[start + con_high[con]]
    slot_start, slot_feature, slot_tree = _number_slots(
        leaf_start, con_start, con_slot, con_feature, feature_id.size
    )
    slots_of_start, slots_of = _slots_by_feature(slot_feature, feature_id.size)
    return Reach(
        fixed_leaf,
        tree_id,
        leaf_start,
        leaf_node,
        con_start,
        con_slot,
        con_feature,
        con_low,
        con_high,
        slot_start,
        slot_feature,
        slot_tree,
        slots_of_start,
        slots_of,
        feature_id,
        rank_start,
        rank_low,
        rank_high,
    )


@compiled
def _number_features(found: Any, n_features: int) -> Any:
    """Count the constrained features anew."""
    local = np.full(n_features, -1, np.int32)
    feature_id = np.empty(min(n_features, found.con_feature.size), np.int32)
    size = 0
    for f in found.con_feature:
        if local[f] < 0:
            local[f] = size
            feature_id[size] = f
            size += 1
    return local, feature_id[:size].copy()


@compiled
def _number_ranks(found: Any, local: Any, feature_id: Any, cell_low: Any, cell_high: Any) -> Any:
    """Merge neighbouring cells that no constraint separates; `place` leads from cell to rank."""
    size = feature_id.size
    wide_start, rank_start = np.zeros(size + 1, np.int32), np.zeros(size + 1, np.int32)
    for g in range(size):
        f = feature_id[g]
        wide_start[g + 1] = wide_start[g] + cell_high[f] - cell_low[f] + 1
    place = np.zeros(wide_start[size], np.int32)
    for con in range(found.con_feature.size):
        f = found.con_feature[con]
        start = wide_start[local[f]] - cell_low[f]
        if found.con_low[con] > cell_low[f]:
            place[start + found.con_low[con]] = 1
        if found.con_high[con] < cell_high[f]:
            place[start + found.con_high[con] + 1] = 1
    rank_low, rank_high = np.empty(place.size, np.int32), np.empty(place.size, np.int32)
    total = 0
    for g in range(size):
        first, offset = total, cell_low[feature_id[g]] - wide_start[g]
        for at in range(wide_start[g], wide_start[g + 1]):
            if at == wide_start[g] or place[at] == 1:
                rank_low[total] = at + offset
                total += 1
            rank_high[total - 1] = at + offset
            place[at] = total - 1 - first
        rank_start[g + 1] = total
    return place, wide_start, rank_start, rank_low[:total].copy(), rank_high[:total].copy()


@compiled
def _open_trees(found: Any) -> Any:
    n_trees = found.leaf_start.size - 1
    fixed_leaf, tree_id = np.full(n_trees, -1, np.int32), np.empty(n_trees, np.int32)
    size = 0
    for tree in range(n_trees):
        if found.leaf_start[tree + 1] - found.leaf_start[tree] == 1:
            fixed_leaf[tree] = found.leaf_node[found.leaf_start[tree]]
        else:
            tree_id[size] = tree
            size += 1
    return fixed_leaf, tree_id[:size].copy()


@compiled
def _gather(found: Any, tree_id: Any) -> Any:
    """Copy the leaves of open trees; the leaf of a constant tree has no constraints."""
    leaf_start = np.zeros(tree_id.size + 1, np.int32)
    for t in range(tree_id.size):
        tree = tree_id[t]
        leaf_start[t + 1] = leaf_start[t] + found.leaf_start[tree + 1] - found.leaf_start[tree]
    leaf_node = np.empty(leaf_start[-1], np.int32)
    con_start = np.zeros(leaf_start[-1] + 1, np.int32)
    for t in range(tree_id.size):
        old = found.leaf_start[tree_id[t]]
        for leaf in range(leaf_start[t], leaf_start[t + 1]):
            leaf_node[leaf] = found.leaf_node[old]
            con_start[leaf + 1] = found.con_start[old + 1]
            old += 1
    slot = np.empty(found.con_feature.size, np.int32)
    cons = (slot, found.con_feature.copy(), found.con_low.copy(), found.con_high.copy())
    return leaf_start, leaf_node, con_start, cons


@compiled
def _number_slots(
    leaf_start: Any, con_start: Any, con_slot: Any, con_feature: Any, n_features: int
) -> Any:
    """Number the (tree, feature) pairs, tree by tree."""
    n_open = leaf_start.size - 1
    slot_start = np.zeros(n_open + 1, np.int32)
    slot_feature = np.empty(con_feature.size, np.int32)
    slot_tree = np.empty(con_feature.size, np.int32)
    latest = np.full(n_features, -1, np.int32)
    slot = 0
    for t in range(n_open):
        for con in range(con_start[leaf_start[t]], con_start[leaf_start[t + 1]]):
            g = con_feature[con]
            if latest[g] < slot_start[t]:
                latest[g] = slot
                slot_feature[slot], slot_tree[slot] = g, t
                slot += 1
            con_slot[con] = latest[g]
        slot_start[t + 1] = slot
    return slot_start, slot_feature[:slot].copy(), slot_tree[:slot].copy()


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
