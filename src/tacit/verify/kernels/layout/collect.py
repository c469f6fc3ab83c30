"""Compiled: a walk through all trees inside a box of cells, listing the leaves it can reach."""

from typing import Any, NamedTuple

import numpy as np

from tacit.verify.kernels.jit import bare, compiled
from tacit.verify.kernels.layout.nodes import END

STEP, CON = np.uint64(4), np.uint64(4)
"""Words of a step on the way to a leaf, and of a constraint."""
ONE, TWO, THREE = np.uint64(1), np.uint64(2), np.uint64(3)
"""Unsigned, as are places: an index that cannot be negative saves the question whether it is."""


class Found(NamedTuple):
    """Trees with several reachable leaves, each leaf with what it constrains inside the box.

    Features are counted anew, in the order in which they are met; a slot is a (tree, feature) pair.
    """

    fixed_leaf: Any  # (trees): the only leaf that the box reaches, else -1
    tree_id: Any  # (open trees)
    leaf_start: Any  # (open trees + 1)
    leaf_node: Any
    con_start: Any  # (leaves + 1)
    cons: Any  # four words each: feature, first cell, last cell, slot
    slot_start: Any  # (open trees + 1)
    slot_feature: Any
    slot_tree: Any
    feature_id: Any  # (open features): place in the ensemble


@compiled
def collect(trees: Any, known: Any, cell_low: Any, cell_high: Any) -> Any:
    """List the leaves that a box of cells can reach, with their constraints in cells.

    Args:
        trees: the trees.
        known: the leaf of each tree of which it is known that the box reaches no other, else -1.
        cell_low: the box.
        cell_high: its other end.
    """
    walk, n_trees, n_features = trees.walk, trees.roots.size, cell_low.size
    low, high = cell_low.copy(), cell_high.copy()  # the intervals on the way to the current node
    fixed_leaf, tree_id = known.copy(), np.empty(n_trees, np.int32)
    leaf_start, slot_start = np.zeros(n_trees + 1, np.int32), np.zeros(n_trees + 1, np.int32)
    leaf_node, con_start = np.empty(1024, np.int32), np.zeros(1025, np.int32)
    cons = np.empty(8192, np.int32)
    slot_feature, slot_tree = np.empty(512, np.int32), np.empty(512, np.int32)
    feature_id, local = np.empty(n_features, np.int32), np.full(n_features, -1, np.int32)
    latest, stamp = np.full(n_features, -1, np.int32), np.full(n_features, -1, np.int32)
    # Every open question on the way gives a step: its feature, the interval before, the slot.
    # What lies to the right of it waits: node, number of the step, first cell.
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
    return Found(
        fixed_leaf,
        tree_id[:n_open],
        leaf_start[: n_open + 1],
        leaf_node[:leaves],
        con_start[: leaves + 1],
        cons[: 4 * int(n_cons)],
        slot_start[: n_open + 1],
        slot_feature[:n_slots],
        slot_tree[:n_slots],
        feature_id[:n_local],
    )


@bare
def _put(words: Any, at: Any, first: Any, second: Any, third: Any) -> None:
    words[at], words[at + ONE], words[at + TWO] = first, second, third


@bare
def _step_back(path: Any, depth: Any, to: Any, low: Any, high: Any) -> Any:
    """Restore the intervals of a shorter path."""
    while depth > to:
        depth -= ONE
        f = np.uint64(path[STEP * depth])
        low[f], high[f] = path[STEP * depth + ONE], path[STEP * depth + TWO]
    return depth


@compiled
def _longer(array: Any) -> Any:
    wider = np.empty(2 * array.size, np.int32)
    for i in range(array.size):
        wider[i] = array[i]
    return wider
