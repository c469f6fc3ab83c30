"""Taking questions out of trees, once their answers are known."""

from typing import TypedDict

import numpy as np

from tacit.verify.kernels.arrays import Bools, Floats, Ints
from tacit.verify.models.index import Forest

OPEN, MISSING, GOES_LEFT, GOES_RIGHT = range(4)
"""What is known of a column: nothing, that it is missing, or the answer about a category."""


class Kept(TypedDict):
    """The arrays of an ensemble that differ."""

    roots: Ints
    left: Ints
    right: Ints
    feature: Ints
    threshold: Floats
    missing_left: Bools
    value: Floats


def take_out(forest: Forest, told: bytes) -> Kept:
    """Lead past every question that is answered; all trees stay, in their order.

    Args:
        forest: the trees.
        told: what is known of each column, one byte each.
    """
    inner, known = forest.feature >= 0, np.frombuffer(told, np.uint8)
    answer = np.where(inner, known[forest.feature], OPEN)
    goes_left = np.where(answer == MISSING, forest.missing_left, answer == GOES_LEFT)
    here = np.arange(inner.size)
    way = np.where(answer == OPEN, here, np.where(goes_left, forest.left, forest.right))
    while ((further := way[way]) != way).any():
        way = further
    roots = way[forest.roots]
    left, right = (np.where(inner, way[side], -1) for side in (forest.left, forest.right))
    kept = _reachable(roots, left, right)
    moved = np.cumsum(kept) - 1

    def renumber(places: Ints) -> Ints:
        return np.where(places >= 0, moved[places], -1).astype(np.int32)

    return {
        "roots": renumber(roots),
        "left": renumber(left[kept]),
        "right": renumber(right[kept]),
        "feature": forest.feature[kept],
        "threshold": forest.threshold[kept],
        "missing_left": forest.missing_left[kept],
        "value": forest.value[kept],
    }


def _reachable(roots: Ints, left: Ints, right: Ints) -> Bools:
    seen, front = np.zeros(left.size, dtype=bool), roots
    while front.size:
        seen[front] = True
        front = front[left[front] >= 0]
        front = np.concatenate([left[front], right[front]])
    return seen
