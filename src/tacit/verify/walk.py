"""Compiled: a walk through all trees inside a box of cells, listing the leaves it can reach."""

from typing import Any, NamedTuple

import numpy as np

from tacit.verify.jit import compiled


class Found(NamedTuple):
    """Reachable leaves, tree by tree, each with the features it constrains inside the box."""

    leaf_start: Any  # (trees + 1)
    leaf_node: Any
    con_start: Any  # (leaves + 1)
    con_feature: Any
    con_low: Any  # cells
    con_high: Any


@compiled
def collect(trees: Any, known: Any, cell_low: Any, cell_high: Any) -> Any:
    """List the leaves that a box of cells can reach, with their constraints in cells.

    Args:
        trees: the trees.
        known: the leaf of each tree of which it is known that the box reaches no other, else -1.
        cell_low: the box.
        cell_high: its other end.
    """
    packed = trees.packed
    low, high = cell_low.copy(), cell_high.copy()  # the intervals on the way to the current node
    leaf_start = np.zeros(trees.roots.size + 1, np.int32)
    leaf_node, con_start = np.empty(1024, np.int32), np.zeros(1025, np.int32)
    cons = np.empty((4096, 3), np.int32)  # feature, low, high
    stamp = np.full(cell_low.size, -1, np.int32)
    stack = np.empty((64, 5), np.int32)  # node, depth, and the feature and interval of the step
    path = np.empty((64, 3), np.int32)  # features narrowed so far, and their intervals before
    leaves, n_cons = 0, 0
    for tree in range(trees.roots.size):
        if leaves + 1 >= leaf_node.size:
            leaf_node, con_start = _longer(leaf_node), _longer(con_start)
        if known[tree] >= 0:
            leaf_node[leaves] = known[tree]
            leaves += 1
            con_start[leaves], leaf_start[tree + 1] = n_cons, leaves
            continue
        _put(stack, 0, trees.roots[tree], 0, -1, 0, 0)
        top, depth = 1, 0
        while top > 0:
            top -= 1
            node, f = stack[top, 0], stack[top, 2]
            depth = _step_back(path, depth, max(stack[top, 1] - 1, 0), low, high)
            if f >= 0:
                depth = _narrow(path, depth, f, stack[top, 3], stack[top, 4], low, high)
            while packed[node, 0] >= 0:
                f, rank = packed[node, 0], packed[node, 1]
                if high[f] <= rank:
                    node = packed[node, 2]
                elif low[f] > rank:
                    node = packed[node, 3]
                else:
                    if top >= stack.shape[0] or depth + 2 >= path.shape[0]:
                        stack, path = _taller(stack), _taller(path)
                    _put(stack, top, packed[node, 3], depth + 1, f, rank + 1, high[f])
                    top += 1
                    depth = _narrow(path, depth, f, low[f], rank, low, high)
                    node = packed[node, 2]
            if leaves + 1 >= leaf_node.size:
                leaf_node, con_start = _longer(leaf_node), _longer(con_start)
            while n_cons + depth > cons.shape[0]:
                cons = _taller(cons)
            leaf_node[leaves] = node
            for step in range(depth):
                f = path[step, 0]
                if stamp[f] != leaves and (low[f] > cell_low[f] or high[f] < cell_high[f]):
                    cons[n_cons, 0], cons[n_cons, 1], cons[n_cons, 2] = f, low[f], high[f]
                    n_cons += 1
                stamp[f] = leaves
            leaves += 1
            con_start[leaves] = n_cons
        _step_back(path, depth, 0, low, high)
        leaf_start[tree + 1] = leaves
    return Found(
        leaf_start,
        leaf_node[:leaves],
        con_start[: leaves + 1],
        cons[:n_cons, 0].copy(),
        cons[:n_cons, 1].copy(),
        cons[:n_cons, 2].copy(),
    )


@compiled
def _put(stack: Any, top: int, node: int, depth: int, f: int, low: int, high: int) -> None:
    stack[top, 0], stack[top, 1], stack[top, 2] = node, depth, f
    stack[top, 3], stack[top, 4] = low, high


@compiled
def _narrow(path: Any, depth: int, f: int, to_low: int, to_high: int, low: Any, high: Any) -> int:
    """Give a feature a smaller interval and remember the one it had."""
    path[depth, 0], path[depth, 1], path[depth, 2] = f, low[f], high[f]
    low[f], high[f] = to_low, to_high
    return depth + 1


@compiled
def _step_back(path: Any, depth: int, to: int, low: Any, high: Any) -> int:
    """Restore the intervals of a shorter path."""
    while depth > to:
        depth -= 1
        low[path[depth, 0]], high[path[depth, 0]] = path[depth, 1], path[depth, 2]
    return to


@compiled
def _longer(array: Any) -> Any:
    wider = np.empty(2 * array.size, np.int32)
    for i in range(array.size):
        wider[i] = array[i]
    return wider


@compiled
def _taller(table: Any) -> Any:
    higher = np.empty((2 * table.shape[0], table.shape[1]), np.int32)
    for row in range(table.shape[0]):
        for column in range(table.shape[1]):
            higher[row, column] = table[row, column]
    return higher
