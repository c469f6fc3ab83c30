"""Compiled: which leaves a box can reach, and the small problem they make.

A box is a range of threshold intervals per feature. Trees that reach one leaf only are constant. Of
the others remain, per leaf, the features that the leaf constrains inside the box. Intervals that no
leaf tells apart are merged; a *rank* is the compressed index of what is left of them.

A feature may have hundreds of ranks, because hundreds of trees ask for it; one tree cuts them into
a handful of *segments*. Whatever is the same throughout a segment is computed once for it.
"""

from typing import NamedTuple

import numpy as np

from tacit.jit import bare, compiled
from tacit.verify.kernels.tables import END, ONE, THREE, TWO, Ints, Longs, Trees

STEP, CON = np.uint64(4), np.uint64(4)
"""Words of a step on the way to a leaf, and of a constraint."""
Word = int | np.int32 | np.uint64


class Reach(NamedTuple):
    """The problem left inside a box: trees with several reachable leaves.

    Leaves lie tree by tree (`leaf_start`), a leaf's constraints lie in `con_*` (`con_start`): the
    leaf is reached when the rank of `con_feature` is within [`con_low`, `con_high`]. A slot is a
    (tree, feature) pair; `slot_feature` counts features anew from 0.
    """

    fixed_leaf: Ints  # (trees): the only leaf of a constant tree, else -1
    tree_id: Ints  # (open trees): place in the ensemble
    leaf_start: Ints
    leaf_node: Ints
    con_start: Ints
    con_slot: Ints
    con_feature: Ints
    con_low: Ints
    con_high: Ints
    slot_start: Ints
    slot_feature: Ints
    slot_tree: Ints
    slots_of_start: Ints  # slots of a feature, as one list per feature
    slots_of: Ints
    feature_id: Ints  # (open features): place in the ensemble
    rank_start: Ints  # (open features + 1): offsets of the feature's ranks in rank_low/rank_high
    rank_low: Ints  # first interval of a rank
    rank_high: Ints


class _Found(NamedTuple):
    """Trees with several reachable leaves, each leaf with what it constrains inside the box.

    Features are counted anew, in the order in which they are met; a slot is a (tree, feature) pair.
    """

    fixed_leaf: Ints  # (trees): the only leaf that the box reaches, else -1
    tree_id: Ints  # (open trees)
    leaf_start: Ints  # (open trees + 1)
    leaf_node: Ints
    con_start: Ints  # (leaves + 1)
    cons: Ints  # four words each: feature, first interval, last interval, slot
    slot_start: Ints  # (open trees + 1)
    slot_feature: Ints
    slot_tree: Ints
    feature_id: Ints  # (open features): place in the ensemble


@compiled
def reach(trees: Trees, interval_low: Ints, interval_high: Ints) -> Reach:
    """Reduce the ensemble to what a box of intervals leaves open."""
    return reach_open(trees, np.full(trees.roots.size, -1, np.int32), interval_low, interval_high)


@compiled
def reach_open(trees: Trees, known: Ints, interval_low: Ints, interval_high: Ints) -> Reach:
    """Reduce the ensemble as `reach` does, where the leaves of some trees are known already."""
    found = _collect(trees, known, interval_low, interval_high)
    place, shift, rank_start, rank_low, rank_high = _number_ranks(
        found, interval_low, interval_high
    )
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
        fixed_leaf=found.fixed_leaf,
        tree_id=found.tree_id,
        leaf_start=found.leaf_start,
        leaf_node=found.leaf_node,
        con_start=found.con_start,
        con_slot=con_slot,
        con_feature=con_feature,
        con_low=con_low,
        con_high=con_high,
        slot_start=found.slot_start,
        slot_feature=found.slot_feature,
        slot_tree=found.slot_tree,
        slots_of_start=slots_of_start,
        slots_of=slots_of,
        feature_id=found.feature_id,
        rank_start=rank_start,
        rank_low=rank_low,
        rank_high=rank_high,
    )


@bare
def is_reachable(r: Reach, leaf: int, low: Ints, high: Ints) -> bool:
    """Say whether a leaf can be reached from a range of ranks per feature."""
    for c in range(r.con_start[leaf], r.con_start[leaf + 1]):
        f = r.con_feature[c]
        if r.con_low[c] > high[f] or r.con_high[c] < low[f]:
            return False
    return True


@compiled
def _number_ranks(
    found: _Found, interval_low: Ints, interval_high: Ints
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Merge neighbouring intervals that no constraint separates.

    Returns:
        the rank of each interval, and where to look for the intervals of each feature; the ranks.
    """
    size = found.feature_id.size
    wide_start, rank_start = np.zeros(size + 1, np.int32), np.zeros(size + 1, np.int32)
    shift = np.empty(size, np.int32)
    for g in range(size):
        f = found.feature_id[g]
        wide_start[g + 1] = wide_start[g] + interval_high[f] - interval_low[f] + 1
        shift[g] = wide_start[g] - interval_low[f]
    place = np.zeros(wide_start[size] + 1, np.int32)
    # Where a leaf ends another begins: first intervals are all there is to mark.
    for con in range(found.cons.size // 4):
        at = CON * np.uint64(con)
        place[np.uint64(shift[found.cons[at]] + found.cons[at + ONE])] = 1
    rank_low, rank_high = np.empty(place.size, np.int32), np.empty(place.size, np.int32)
    total = 0
    for g in range(size):
        first = total
        for interval in range(wide_start[g], wide_start[g + 1]):
            if interval == wide_start[g] or place[interval] == 1:
                rank_low[total] = interval - shift[g]
                total += 1
            rank_high[total - 1] = interval - shift[g]
            place[interval] = total - 1 - first
        rank_start[g + 1] = total
    return place, shift, rank_start, rank_low[:total], rank_high[:total]


@compiled
def _slots_by_feature(slot_feature: Ints, n_features: int) -> tuple[Ints, Ints]:
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


@compiled
def _collect(trees: Trees, known: Ints, interval_low: Ints, interval_high: Ints) -> _Found:
    """List the leaves that a box of intervals can reach, with their constraints in intervals.

    Args:
        trees: the trees.
        known: the leaf of each tree of which it is known that the box reaches no other, else -1.
        interval_low: the box.
        interval_high: its other end.
    """
    walk, n_trees, n_features = trees.walk, trees.roots.size, interval_low.size
    low, high = (
        interval_low.copy(),
        interval_high.copy(),
    )  # the intervals on the way to the current node
    fixed_leaf, tree_id = known.copy(), np.empty(n_trees, np.int32)
    leaf_start, slot_start = np.zeros(n_trees + 1, np.int32), np.zeros(n_trees + 1, np.int32)
    leaf_node, con_start = np.empty(1024, np.int32), np.zeros(1025, np.int32)
    cons = np.empty(8192, np.int32)
    slot_feature, slot_tree = np.empty(512, np.int32), np.empty(512, np.int32)
    feature_id, local = np.empty(n_features, np.int32), np.full(n_features, -1, np.int32)
    latest, stamp = np.full(n_features, -1, np.int32), np.full(n_features, -1, np.int32)
    # Every open question on the way gives a step: its feature, the interval before, the slot.
    # What lies to the right of it waits: node, number of the step, first interval.
    room = np.uint64(trees.depth + 2)
    path, stack = np.empty(STEP * room, np.int32), np.empty(THREE * room, np.int32)
    n_open, leaves, n_cons, n_slots, n_local = 0, 0, np.uint64(0), 0, 0
    for tree in range(n_trees):
        if known[tree] >= 0:
            continue
        first_leaf, first_slot = leaves, n_slots
        node, top, depth = np.uint64(trees.roots[tree]) << TWO, np.uint64(0), np.uint64(0)
        while True:
            while walk[node + ONE] != END:
                f, rank = np.uint64(walk[node]), np.int32(walk[node + ONE])
                if high[f] <= rank:
                    node = np.uint64(walk[node + TWO])
                elif low[f] > rank:
                    node = np.uint64(walk[node + THREE])
                else:
                    if latest[f] < first_slot:
                        if local[f] < 0:
                            local[f], feature_id[n_local] = n_local, f
                            n_local += 1
                        if n_slots == slot_feature.size:
                            slot_feature, slot_tree = _longer(slot_feature), _longer(slot_tree)
                        latest[f] = n_slots
                        slot_feature[n_slots], slot_tree[n_slots] = local[f], n_open
                        n_slots += 1
                    _put(stack, THREE * top, walk[node + THREE], depth, rank + 1)
                    _put(path, STEP * depth, f, low[f], high[f])
                    path[STEP * depth + THREE] = latest[f]
                    top, depth, high[f] = top + ONE, depth + ONE, rank
                    node = np.uint64(walk[node + TWO])
            if leaves + 1 >= leaf_node.size:
                leaf_node, con_start = _longer(leaf_node), _longer(con_start)
            while CON * (n_cons + depth) > np.uint64(cons.size):
                cons = _longer(cons)
            leaf_node[leaves] = node >> TWO
            for step in range(depth):
                f = np.uint64(path[STEP * step])
                if stamp[f] != leaves:
                    stamp[f] = leaves
                    _put(cons, CON * n_cons, local[f], low[f], high[f])
                    cons[CON * n_cons + THREE] = path[STEP * step + THREE]
                    n_cons += ONE
            leaves += 1
            con_start[leaves] = n_cons
            if top == 0:
                break
            top -= ONE
            node, to = np.uint64(stack[THREE * top]), np.uint64(stack[THREE * top + ONE])
            depth = _step_back(path, depth, to, low, high)
            low[np.uint64(path[STEP * to])] = stack[THREE * top + TWO]
            depth += ONE
        _step_back(path, depth, np.uint64(0), low, high)
        if leaves == first_leaf + 1:
            fixed_leaf[tree] = leaf_node[first_leaf]
            leaves = first_leaf
            continue
        tree_id[n_open] = tree
        n_open += 1
        leaf_start[n_open], slot_start[n_open] = leaves, n_slots
    return _Found(
        fixed_leaf=fixed_leaf,
        tree_id=tree_id[:n_open],
        leaf_start=leaf_start[: n_open + 1],
        leaf_node=leaf_node[:leaves],
        con_start=con_start[: leaves + 1],
        cons=cons[: 4 * int(n_cons)],
        slot_start=slot_start[: n_open + 1],
        slot_feature=slot_feature[:n_slots],
        slot_tree=slot_tree[:n_slots],
        feature_id=feature_id[:n_local],
    )


@bare
def _put(words: Ints, at: np.uint64, first: Word, second: Word, third: Word) -> None:
    words[at], words[at + ONE], words[at + TWO] = first, second, third


@bare
def _step_back(path: Ints, depth: np.uint64, to: np.uint64, low: Ints, high: Ints) -> np.uint64:
    """Restore the intervals of a shorter path."""
    while depth > to:
        depth -= ONE
        f = np.uint64(path[STEP * depth])
        low[f], high[f] = path[STEP * depth + ONE], path[STEP * depth + TWO]
    return depth


@compiled
def _longer(array: Ints) -> Ints:
    wider = np.empty(2 * array.size, np.int32)
    for i in range(array.size):
        wider[i] = array[i]
    return wider


class Segments(NamedTuple):
    """The segments of every slot, and those that reach each leaf."""

    row_start: Longs  # (slots + 1): offsets of rows that have one entry per rank
    start: Ints  # (slots + 1): the segments of a slot
    first: Ints  # (segments): first rank
    last: Ints
    pair_start: Longs  # (slots + 1): one pair of segments per slot and leaf of its tree
    pair_first: Ints  # the first segment that reaches the leaf
    pair_last: Ints


@compiled
def make_segments(r: Reach) -> Segments:
    """Cut the ranks of every slot where a leaf of its tree begins or ends."""
    n_slots = r.slot_feature.size
    row_start, pair_start = np.zeros(n_slots + 1, np.int64), np.zeros(n_slots + 1, np.int64)
    for s in range(n_slots):
        f, t = r.slot_feature[s], r.slot_tree[s]
        row_start[s + 1] = row_start[s] + r.rank_start[f + 1] - r.rank_start[f]
        pair_start[s + 1] = pair_start[s] + r.leaf_start[t + 1] - r.leaf_start[t]
    start, first, last = _cut(r, row_start)
    pair_first, pair_last = _pair_up(r, start, first, last, pair_start)
    return Segments(
        row_start=row_start,
        start=start,
        first=first,
        last=last,
        pair_start=pair_start,
        pair_first=pair_first,
        pair_last=pair_last,
    )


@compiled
def _cut(r: Reach, row_start: Longs) -> tuple[Ints, Ints, Ints]:
    """Sort the first ranks of each slot's segments into place, and number the segments."""
    n_slots = r.slot_feature.size
    room = np.zeros(n_slots + 1, np.int64)
    for s in r.con_slot:
        room[s + 1] += 1
    for s in range(n_slots):
        room[s + 1] += room[s] + 1
    begins, count = np.empty(room[-1], np.int32), np.ones(n_slots, np.int32)
    for s in range(n_slots):
        begins[room[s]] = 0
    for c in range(r.con_slot.size):
        # Where a leaf of a tree ends another one begins.
        if r.con_low[c] > 0:
            _insert(begins, room[r.con_slot[c]], count, r.con_slot[c], r.con_low[c])
    start = np.zeros(n_slots + 1, np.int32)
    for s in range(n_slots):
        start[s + 1] = start[s] + count[s]
    first, last = np.empty(start[-1], np.int32), np.empty(start[-1], np.int32)
    for s in range(n_slots):
        for i in range(count[s]):
            first[start[s] + i] = begins[room[s] + i]
            if i > 0:
                last[start[s] + i - 1] = begins[room[s] + i] - 1
        last[start[s + 1] - 1] = row_start[s + 1] - row_start[s] - 1
    return start, first, last


@bare
def _insert(begins: Ints, at: int, count: Ints, s: int, rank: int) -> None:
    """Put a rank into the sorted list of a slot, unless it is there."""
    i = at + count[s]
    while begins[i - 1] > rank:
        i -= 1
    if begins[i - 1] == rank:
        return
    for j in range(at + count[s], i, -1):
        begins[j] = begins[j - 1]
    begins[i] = rank
    count[s] += 1


@compiled
def _pair_up(
    r: Reach, start: Ints, seg_first: Ints, seg_last: Ints, pair_start: Longs
) -> tuple[Ints, Ints]:
    """Find the segments of each slot that reach each leaf of its tree."""
    first, last = np.empty(pair_start[-1], np.int32), np.empty(pair_start[-1], np.int32)
    for s in range(r.slot_feature.size):
        for at in range(pair_start[s], pair_start[s + 1]):
            first[at], last[at] = start[s], start[s + 1] - 1
    for t in range(r.tree_id.size):
        for leaf in range(r.leaf_start[t], r.leaf_start[t + 1]):
            for c in range(r.con_start[leaf], r.con_start[leaf + 1]):
                s = r.con_slot[c]
                at, k = pair_start[s] + leaf - r.leaf_start[t], start[s]
                while seg_first[k] < r.con_low[c]:
                    k += 1
                first[at] = k
                while seg_last[k] < r.con_high[c]:
                    k += 1
                last[at] = k
    return first, last
