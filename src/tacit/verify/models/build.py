"""Putting trees, one by one, into the flat arrays of an ensemble."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Unpack

import numpy as np
import numpy.typing as npt

from tacit.errors import DataError
from tacit.verify.kernels.tables import Bools, Floats, Longs
from tacit.verify.models.categories import CategorySet, join_sets
from tacit.verify.models.ensemble import LARGEST_CLASS_COUNT, Ensemble, Facts


@dataclass(frozen=True, kw_only=True)
class Tree:
    """One tree as its library lists it: node 0 is the root, `left` is negative at a leaf."""

    feature: Longs
    threshold: Floats
    left: Longs
    right: Longs
    missing_left: Bools
    value: Floats  # (nodes, scores)
    sets: Mapping[int, CategorySet] = field(default_factory=dict)
    """Of the nodes that ask for a category instead of a number."""


def build(trees: list[Tree], **rule: Unpack[Facts]) -> Ensemble:
    """Join trees into an ensemble; nodes that no root leads to are left out.

    Args:
        trees: in the order in which the library sums them.
        rule: the remaining fields of `Ensemble`.
    """
    origin = rule.get("origin", "the model")
    if not trees:
        raise DataError(f"{origin} has no trees")
    compact = [_compact(tree, origin) for tree in trees]
    sizes = np.array([tree.feature.size for tree in compact], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    shift = np.repeat(starts[:-1], sizes)

    left = np.concatenate([tree.left for tree in compact])
    right = np.concatenate([tree.right for tree in compact])
    feature = np.concatenate([tree.feature for tree in compact]).astype(np.int64)
    missing_left = np.concatenate([tree.missing_left for tree in compact]).astype(np.bool_)
    value = np.concatenate([tree.value for tree in compact]).astype(np.float64)
    threshold = np.concatenate([tree.threshold for tree in compact]).astype(np.float64)
    is_leaf = left < 0
    if rule.get("input_type") == "float32":
        threshold = _down_to_single(threshold)
    sets = {
        start + at: one
        for start, tree in zip(starts[:-1].tolist(), compact, strict=True)
        for at, one in tree.sets.items()
    }
    if sets:
        asking = list(sets)
        rule["categories"] = join_sets(
            list(sets.values()), feature[asking].tolist(), missing_left[asking].tolist()
        )
        # Each question has a column of its own, which holds the answer.
        feature[asking] = rule["n_features"] + np.arange(len(asking))
        threshold[asking], missing_left[asking] = 0.5, False
    return Ensemble(
        roots=starts[:-1].astype(np.int32),
        feature=np.where(is_leaf, -1, feature).astype(np.int32),
        threshold=np.where(is_leaf, 0.0, threshold),
        left=np.where(is_leaf, -1, left + shift).astype(np.int32),
        right=np.where(is_leaf, -1, right + shift).astype(np.int32),
        missing_left=missing_left & ~is_leaf,
        value=np.where(is_leaf[:, None], value, 0.0),
        **rule,
    )


def check_outputs(groups: int) -> int:
    """Bound how many scores a file announces, before arrays of that width are made."""
    if not 0 < groups <= LARGEST_CLASS_COUNT:
        raise DataError(f"wanted 1 to {LARGEST_CLASS_COUNT} scores, the model has {groups}")
    return groups


def before(threshold: npt.NDArray[np.float32]) -> Floats:
    """Turn the thresholds of ``x < t`` into those of ``x <= t``, in float32."""
    return np.nextafter(threshold, np.float32(-np.inf)).astype(np.float64)


def _down_to_single(threshold: Floats) -> Floats:
    # No float32 lies between this and the threshold: every cell then holds a possible input.
    single = threshold.astype(np.float32)
    lower = np.nextafter(single, np.float32(-np.inf))
    return np.where(single.astype(np.float64) > threshold, lower, single).astype(np.float64)


def binary_cutoff(sum_type: str, slope: float = 1.0) -> float:
    """Find the least score whose sigmoid, rounded as the library rounds it, exceeds one half.

    A score just above zero has a sigmoid of exactly 0.5 after rounding, and 0.5 is class 0.
    """
    kind = np.float32 if sum_type == "float32" else np.float64
    step = kind(0.0)
    for bit in range(12, -160 if kind is np.float32 else -1080, -1):
        longer = step + kind(2.0**bit)
        if longer > step and not _exceeds_half(kind(longer), slope):
            step = longer
    return float(np.nextafter(step, kind(np.inf)))


def _exceeds_half(score: np.floating, slope: float) -> bool:
    kind = type(score)
    raised = kind(np.exp(-slope * np.float64(score)))
    chance = kind(1.0) / (kind(1.0) + raised)
    return bool(chance > kind(0.5) and chance > kind(1.0) - chance)


def _compact(tree: Tree, origin: str) -> Tree:
    nodes = tree.feature.size
    if nodes == 0:
        raise DataError(f"{origin} has a tree without nodes")
    if max(int(tree.left.max()), int(tree.right.max())) >= nodes:
        raise DataError(f"{origin} has a tree that points beyond its {nodes} nodes")
    order, front = [], [0]
    while front:
        node = front.pop()
        order.append(node)
        if len(order) > nodes:
            raise DataError(f"{origin} has a tree that runs in a circle")
        if tree.left[node] >= 0:
            front += [int(tree.right[node]), int(tree.left[node])]
    if any(node < 0 for node in order):
        raise DataError(f"{origin} has a node with one child")
    kept = np.array(order)
    moved = np.full(nodes, -1)
    moved[kept] = np.arange(kept.size)
    return Tree(
        feature=tree.feature[kept],
        threshold=tree.threshold[kept],
        left=np.where(tree.left[kept] >= 0, moved[tree.left[kept]], -1),
        right=np.where(tree.left[kept] >= 0, moved[tree.right[kept]], -1),
        missing_left=tree.missing_left[kept],
        value=tree.value[kept],
        sets={int(moved[at]): one for at, one in tree.sets.items() if moved[at] >= 0},
    )
