"""The trees once more, laid out for walks that are counted in nanoseconds.

Nodes are places in flat unsigned arrays, four words each: an index that cannot be negative saves
the question whether it is. Where each tree pulls one number only — a single score, the difference
of two, or in boosting the score of one class — every node also knows the least leaf below it.
"""

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

END = (1 << 31) - 1
"""In place of a rank: the node is a leaf. In place of a parent: the node is a root."""


class Nodes(Protocol):
    """What is read of the trees."""

    @property
    def roots(self) -> npt.NDArray[np.int32]: ...  # noqa: D102
    @property
    def value(self) -> npt.NDArray[np.float64]: ...  # noqa: D102
    @property
    def units(self) -> npt.NDArray[np.int64]: ...  # noqa: D102
    @property
    def packed(self) -> npt.NDArray[np.int32]: ...  # noqa: D102


class Paths(NamedTuple):
    """Ways down and up; trees that pull the same score lie together, in the library's order."""

    order: npt.NDArray[np.int32]
    """The tree at each position."""
    group_start: npt.NDArray[np.int64]
    """Positions of the groups: one per score in boosting with several classes, else one."""
    entry: npt.NDArray[np.uint32]
    """The place of each position's root."""
    walk: npt.NDArray[np.uint32]
    """Feature, rank or END, places of the left and the right child; of a leaf, its own."""
    rise: npt.NDArray[np.uint32]
    """Place of the parent or END, its feature, the first and last cell that it sends here."""
    ends: npt.NDArray[np.int64]
    """Two per node: the least pull of a leaf below, and the least of what is pulled the other way.

    Empty where leaves pull several scores at once.
    """
    pay: npt.NDArray[np.float64]
    """What a leaf adds to the score of its group."""


def lay_paths(nodes: Nodes, owner: npt.NDArray[np.int32]) -> Paths:
    """Lay the trees out.

    Args:
        nodes: the trees.
        owner: per tree, the only score that it adds to, or -1 if it adds to several.
    """
    scores = nodes.units.shape[1]
    is_grouped = scores > 2 and bool((owner >= 0).all())
    owner = owner if is_grouped else np.zeros_like(owner)
    order = np.argsort(owner, kind="stable").astype(np.int32)
    counts = np.bincount(owner, minlength=scores if is_grouped else 1)
    walk, rise = _lay_ways(nodes)
    pull, pay = _pulls(nodes, owner)
    return Paths(
        order,
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        4 * nodes.roots[order].astype(np.uint32),
        walk,
        rise,
        _least_below(nodes, pull) if is_grouped or scores <= 2 else np.zeros(0, np.int64),
        pay,
    )


def _lay_ways(nodes: Nodes) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    packed = nodes.packed.astype(np.int64)
    inner = np.flatnonzero(packed[:, 0] >= 0)
    walk = np.zeros_like(packed)
    walk[:, 1] = END
    # A leaf leads back to itself, so that several trees can be walked at a time.
    walk[:, 2] = walk[:, 3] = 4 * np.arange(len(packed))
    walk[inner] = packed[inner] * (1, 1, 4, 4)
    rise = np.full_like(packed, END)
    feature, rank = packed[inner, 0], packed[inner, 1]
    for child, first, last in ((2, np.zeros_like(rank), rank), (3, rank + 1, rank * 0 + END)):
        rise[packed[inner, child]] = np.stack([4 * inner, feature, first, last], axis=1)
    return walk.ravel().astype(np.uint32), rise.ravel().astype(np.uint32)


def _pulls(
    nodes: Nodes, owner: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Find the one number that each leaf pulls, in units, and what it adds to its group's score."""
    score = np.zeros(len(nodes.packed), dtype=np.int64)
    front, own = nodes.roots.astype(np.int64), owner
    while front.size:
        score[front] = own
        is_inner = nodes.packed[front, 0] >= 0
        front, own = front[is_inner], np.concatenate([own[is_inner], own[is_inner]])
        front = nodes.packed[front, 2:].T.ravel().astype(np.int64)
    row = np.arange(len(score))
    pull = nodes.units[row, score]
    if nodes.units.shape[1] == 2:
        pull = nodes.units[:, 0] - nodes.units[:, 1]
    return pull, np.ascontiguousarray(nodes.value[row, score])


def _least_below(nodes: Nodes, pull: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    ends = np.stack([pull, -pull], axis=1)
    levels, front = [], nodes.roots.astype(np.int64)
    while front.size:
        front = front[nodes.packed[front, 0] >= 0]
        levels.append(front)
        front = nodes.packed[front, 2:].ravel().astype(np.int64)
    for level in reversed(levels):
        children = nodes.packed[level, 2:]
        ends[level] = np.minimum(ends[children[:, 0]], ends[children[:, 1]])
    return np.ascontiguousarray(ends.ravel())
