"""Trees to which zero is a missing value, written with questions about numbers alone.

Where a node sends zero another way than its threshold would, the tree first asks whether the number
is below, at or above zero; within each of the three the node is an ordinary one.
"""

from dataclasses import replace

import numpy as np

from tacit.errors import DataError
from tacit.verify.kernels.arrays import Bools
from tacit.verify.models.build import Tree

BELOW, ZERO, ABOVE = range(3)
MOST_NODES = 1 << 20
Zones = tuple[int, int]
"""The first and the last of BELOW, ZERO, ABOVE that a feature can still be in."""
Child = tuple[int, dict[int, Zones]]
"""A node of the tree as it was, and the zones of the features above it."""


def split_zeros(tree: Tree, is_zero_missing: Bools, *, zero: float) -> Tree:
    """Write a tree without nodes to which zero is missing.

    Args:
        tree: its nodes; `missing_left` says where those of `is_zero_missing` send zero and NaN.
        is_zero_missing: which nodes take zero for missing.
        zero: the largest size of a number that counts as zero; no threshold is nearer to 0.
    """
    if not is_zero_missing.any():
        return tree
    writer = _Writer(tree, is_zero_missing, zero)
    writer.write()
    return writer.tree()


class _Writer:
    """The nodes written so far: (the node it copies, feature, threshold, missing_left)."""

    def __init__(self, tree: Tree, is_zero_missing: Bools, zero: float) -> None:
        self._old, self._is_zero_missing, self._zero = tree, is_zero_missing, zero
        self._nodes: list[tuple[int, int, float, bool]] = []
        self._children: list[list[int]] = []

    def write(self) -> None:
        todo: list[tuple[int, dict[int, Zones], int, int]] = [(0, {}, -1, 0)]
        while todo:
            node, zones, parent, side = todo.pop()
            node = self._skip(node, zones)
            at = len(self._nodes)
            if parent >= 0:
                self._children[parent][side] = at
            if at >= MOST_NODES:
                raise DataError(
                    f"zero_as_missing makes a tree of more than {MOST_NODES} nodes; train with "
                    "zero_as_missing=false or with fewer leaves"
                )
            left, right = self._put(node, zones)
            self._children.append([-1, -1])
            todo += [(*child, at, side) for side, child in ((1, right), (0, left)) if child]

    def tree(self) -> Tree:
        old, feature, threshold, missing_left = (
            np.array(column) for column in zip(*self._nodes, strict=True)
        )
        children = np.array(self._children)
        sets = {at: self._old.sets[node] for at, node in enumerate(old) if node in self._old.sets}
        return replace(
            self._old,
            feature=feature,
            threshold=threshold,
            left=children[:, 0],
            right=children[:, 1],
            missing_left=missing_left,
            value=self._old.value[old],
            sets=sets,
        )

    def _skip(self, node: int, zones: dict[int, Zones]) -> int:
        """Follow nodes that the zones of their feature decide."""
        while self._old.left[node] >= 0 and self._is_zero_missing[node]:
            first, last = zones.get(int(self._old.feature[node]), (BELOW, ABOVE))
            is_high = self._old.threshold[node] >= 0.0
            if first == last == ZERO:
                goes_left = bool(self._old.missing_left[node])
            elif last == BELOW and is_high:
                goes_left = True
            elif first == ABOVE and not is_high:
                goes_left = False
            else:
                break
            node = int((self._old.left if goes_left else self._old.right)[node])
        return node

    def _put(self, node: int, zones: dict[int, Zones]) -> tuple[Child | None, Child | None]:
        """Write one node; return what lies left and right of it."""
        tree, feature = self._old, int(self._old.feature[node])
        threshold, missing_left = float(tree.threshold[node]), bool(tree.missing_left[node])
        if tree.left[node] < 0:
            self._nodes.append((node, feature, 0.0, False))
            return None, None
        first, last = zones.get(feature, (BELOW, ABOVE))
        if not self._is_zero_missing[node]:
            low, high = (first, last), (first, last)
        elif first <= ZERO <= last and missing_left != (threshold >= 0.0):
            # Zero goes its own way: this node comes again, once in each zone.
            cut = ZERO if first == ZERO else BELOW
            below = float(np.nextafter(-self._zero, -np.inf))
            self._nodes.append((node, feature, (below, self._zero)[cut], cut == ZERO))
            ways = {**zones, feature: (first, cut)}, {**zones, feature: (cut + 1, last)}
            return (node, ways[0]), (node, ways[1])
        else:
            low, high = (first, last), (first, last)
            if threshold >= 0.0:
                high = (ABOVE, ABOVE)
            else:
                low = (BELOW, BELOW)
        self._nodes.append((node, feature, threshold, missing_left))
        left, right = int(tree.left[node]), int(tree.right[node])
        return (left, {**zones, feature: low}), (right, {**zones, feature: high})
