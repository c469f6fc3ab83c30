"""The trees laid out for walks that are counted in nanoseconds.

Where each tree contributes to one number only — a single score, the difference of two, or in
boosting the score of one class — every node also knows the least leaf below it.
"""

import numpy as np

from tacit.verify.kernels.arrays import Floats, Ints, Longs, Words
from tacit.verify.kernels.layout.tables import END, Nodes

MOST_INTERVALS = 1 << 24
"""Intervals that are compared, over all pairs of classes, beyond which there are none."""


def lay_nodes(roots: Ints, packed: Ints, fixed: Longs, owner: Ints) -> Nodes:
    """Lay the trees out.

    Args:
        roots: the root of every tree.
        packed: the nodes, as in `Trees`.
        fixed: their leaf values in fixed point.
        owner: per tree, the only score that it adds to, or -1 if it adds to several.
    """
    scores = fixed.shape[1]
    is_grouped = scores > 2 and bool((owner >= 0).all())
    owner = owner if is_grouped else np.zeros_like(owner)
    order = np.argsort(owner, kind="stable").astype(np.int32)
    counts = np.bincount(owner, minlength=scores if is_grouped else 1)
    walk, rise = _lay_ways(packed.astype(np.int64))
    ends = np.zeros(0, np.int64)
    if is_grouped or scores <= 2:
        ends = _least_below(roots, packed, _contributions(roots, packed, fixed, owner))
    return Nodes(
        order=order,
        group_start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        entry=4 * roots[order].astype(np.uint32),
        walk=walk,
        rise=rise,
        ends=ends,
    )


def _lay_ways(packed: Longs) -> tuple[Words, Words]:
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


def _contributions(roots: Ints, packed: Ints, fixed: Longs, owner: Ints) -> Longs:
    """Find the one number that each leaf contributes to, and what it adds."""
    if fixed.shape[1] == 2:
        return np.asarray(fixed[:, 0] - fixed[:, 1])
    score = np.zeros(len(packed), dtype=np.int64)
    front, own = roots.astype(np.int64), owner
    while front.size:
        score[front] = own
        is_inner = packed[front, 0] >= 0
        front, own = front[is_inner], np.concatenate([own[is_inner], own[is_inner]])
        front = packed[front, 2:].T.ravel().astype(np.int64)
    return np.asarray(fixed[np.arange(len(score)), score])


def _least_below(roots: Ints, packed: Ints, contribution: Longs) -> Longs:
    ends = np.stack([contribution, -contribution], axis=1)
    levels, front = [], roots.astype(np.int64)
    while front.size:
        front = front[packed[front, 0] >= 0]
        levels.append(front)
        front = packed[front, 2:].ravel().astype(np.int64)
    for level in reversed(levels):
        children = packed[level, 2:]
        ends[level] = np.minimum(ends[children[:, 0]], ends[children[:, 1]])
    return np.ascontiguousarray(ends.ravel())


def lay_minimisers(packed: Ints, nodes: Nodes, cut_start: Ints) -> Ints:
    """Find the interval of each feature that lowers most what an objective asks about.

    Args:
        packed: the nodes, as in `Trees`.
        nodes: the same, laid out for walks.
        cut_start: where the cuts of each feature begin.

    Returns:
        (rows, features): with one group a row for what leaves add and one for its opposite, with
        more a row for every pair of a first and a second group. No row where leaves add to several
        scores, or where pairs are too many.
    """
    n_features, n_groups = cut_start.size - 1, nodes.group_start.size - 1
    start = cut_start.astype(np.int64) + np.arange(n_features + 1)
    if nodes.ends.size == 0 or n_groups * n_groups * int(start[-1]) > MOST_INTERVALS:
        return np.zeros((0, n_features), np.int32)
    height = _marginals(packed, nodes, start)
    if n_groups == 1:
        return np.stack([_lowest(height[0], start), _lowest(-height[0], start)])
    pairs = [_lowest(first - second, start) for first in height for second in height]
    return np.stack(pairs)


def _marginals(packed: Ints, nodes: Nodes, start: Longs) -> Floats:
    """Draw, per group, what an average leaf adds over the intervals of each feature.

    Every question counts by the leaves below it: the difference that its two ways make.
    """
    mean, leaves = nodes.ends[::2].astype(np.float64), np.ones(len(packed))
    rise = np.zeros((nodes.group_start.size - 1, int(start[-1])))
    levels, front = [], (nodes.entry >> 2).astype(np.int64)
    own = np.repeat(np.arange(len(rise)), np.diff(nodes.group_start))
    while front.size:
        is_inner = packed[front, 0] >= 0
        front, own = front[is_inner], own[is_inner]
        levels.append((front, own))
        front, own = packed[front, 2:].T.ravel().astype(np.int64), np.concatenate([own, own])
    for level, own in reversed(levels):
        left, right = packed[level, 2], packed[level, 3]
        leaves[level] = leaves[left] + leaves[right]
        mean[level] = (mean[left] * leaves[left] + mean[right] * leaves[right]) / leaves[level]
        interval = start[packed[level, 0]] + packed[level, 1] + 1
        np.add.at(rise, (own, interval), (mean[right] - mean[left]) * leaves[level])
    return np.cumsum(rise, axis=1)


def _lowest(height: Floats, start: Longs) -> Ints:
    """Find the first lowest interval of each feature."""
    if start.size == 1:
        return np.zeros(0, np.int32)
    feature = np.repeat(np.arange(start.size - 1), np.diff(start))
    at = np.flatnonzero(height == np.minimum.reduceat(height, start[:-1])[feature])
    first = np.searchsorted(feature[at], np.arange(start.size - 1))
    return (at[first] - start[:-1]).astype(np.int32)
