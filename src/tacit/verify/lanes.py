"""The trees once more, laid out so that several are walked at a time, by their thresholds.

A walk that asks whether it has come to a leaf is often wrong about the answer. Here it is as long
as the deepest tree's: a leaf asks a question that leads back to itself. Two children lie side by
side, all nodes of a level together.
"""

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

WIDTH = 8
"""Trees that are walked at a time."""
FEATURE_BITS = 32
MANY_CUTS = 64
"""Cuts of a feature, from which on its cell is searched for instead of counted."""
FEW_FEATURES, LEAST_FEATURES = 64, 16
"""Features that count as few; and those below which all of their cells are searched for."""


class Nodes(Protocol):
    """What is read of the trees."""

    @property
    def roots(self) -> npt.NDArray[np.int32]: ...  # noqa: D102
    @property
    def feature(self) -> npt.NDArray[np.int32]: ...  # noqa: D102
    @property
    def threshold(self) -> npt.NDArray[np.float64]: ...  # noqa: D102
    @property
    def left(self) -> npt.NDArray[np.int32]: ...  # noqa: D102
    @property
    def right(self) -> npt.NDArray[np.int32]: ...  # noqa: D102


class Lanes(NamedTuple):
    """Two words per node, and where the walks begin."""

    limit: npt.NDArray[np.float64]
    """Words as floats: the first of a node is its threshold, infinite for a leaf."""
    turn: npt.NDArray[np.uint64]
    """The same words as integers: the second holds the left child's place, then the feature."""
    node: npt.NDArray[np.uint32]
    """The node at each place, by half the place."""
    tree: npt.NDArray[np.uint64]
    """The trees, by position; within a group those that ask few questions first."""
    entry: npt.NDArray[np.uint64]
    """The place of each one's root."""
    steps: npt.NDArray[np.int64]
    """How many questions each `WIDTH` of them ask at most; the rest one by one."""


class Planes(NamedTuple):
    """The cuts of all features that have few: the first of each, then the second of each.

    As float32, rounded down: inputs that are float32 themselves lie on the same side of them.
    """

    feature: npt.NDArray[np.int32]
    """The features that some tree asks for, those with most cuts first."""
    searched: int
    """How many of them are searched for."""
    cut: npt.NDArray[np.float32]
    size: npt.NDArray[np.int64]
    """How many features have a first cut, a second cut, …; filled up to a multiple of `WIDTH`."""


def lay_lanes(
    nodes: Nodes, order: npt.NDArray[np.int32], group_start: npt.NDArray[np.int64]
) -> Lanes:
    """Lay the trees out, level by level.

    Args:
        nodes: the trees.
        order: the tree at each position.
        group_start: the positions where groups begin.
    """
    n_places = nodes.feature.size
    words, node_at = np.zeros(2 * n_places, np.uint64), np.zeros(n_places, np.uint32)
    limit = words.view(np.float64)
    front, place = nodes.roots[order].astype(np.int64), np.arange(order.size)
    tree, depth = np.arange(order.size), np.zeros(order.size, np.int64)
    n_used, level = order.size, 0
    while front.size:
        is_inner = nodes.feature[front] >= 0
        node_at[place] = front
        limit[2 * place] = np.where(is_inner, nodes.threshold[front] + 0.0, np.inf)
        child = np.where(is_inner, n_used + 2 * (np.cumsum(is_inner) - 1), place)
        feature = np.where(is_inner, nodes.feature[front], 0)
        words[2 * place + 1] = ((2 * child) << FEATURE_BITS) | feature
        level += 1
        depth[tree[is_inner]] = level
        n_used += 2 * int(is_inner.sum())
        inner = front[is_inner]
        front = np.stack([nodes.left[inner], nodes.right[inner]], axis=1).ravel().astype(np.int64)
        place = np.stack([child[is_inner], child[is_inner] + 1], axis=1).ravel()
        tree = np.repeat(tree[is_inner], 2)
    group = np.searchsorted(group_start, np.arange(order.size), side="right")
    lane = np.lexsort((depth, group)).astype(np.uint64)
    return Lanes(limit, words, node_at, lane, 2 * lane, _blocks(depth[lane]))


def _blocks(depth: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    whole = depth.size // WIDTH * WIDTH
    return np.concatenate([depth[:whole].reshape(-1, WIDTH).max(axis=1), depth[whole:]])


def lay_planes(
    cuts: npt.NDArray[np.float64],
    cut_start: npt.NDArray[np.int32],
    asked: npt.NDArray[np.int32],
    *,
    is_single: bool,
) -> Planes:
    """Lay the cuts out, plane by plane; without planes if inputs are not float32."""
    counts = np.diff(cut_start)[asked]
    order = np.argsort(-counts, kind="stable")
    feature, counts = asked[order], counts[order]
    has_planes = is_single and asked.size >= LEAST_FEATURES
    searched = int((counts > MANY_CUTS).sum()) if has_planes else asked.size
    first, few = cut_start[feature[searched:]], counts[searched:]
    size = [int((few > rank).sum()) for rank in range(int(few.max(initial=0)))]
    planes = [
        np.append(cuts[first[:count] + rank], np.full(-count % WIDTH, np.inf))
        for rank, count in enumerate(size)
    ]
    cut = _round_down(np.concatenate([np.zeros(0), *planes]))
    filled = np.array([plane.size for plane in planes], dtype=np.int64)
    return Planes(feature.astype(np.int32), searched, cut, filled)


def _round_down(cuts: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore"):
        single = cuts.astype(np.float32)
    below = np.nextafter(single, np.float32(-np.inf))
    return np.where(single.astype(np.float64) > cuts, below, single)
