"""Marginal minimisers: per feature, the interval at which its trees contribute least on average.

The corner of a box that they choose is very often a counterexample where there is one, and one walk
through the trees tells. It depends on nothing but the ensemble, so it is made once.
"""

import numpy as np

from tacit.verify.kernels.arrays import Floats, Ints, Longs
from tacit.verify.kernels.layout.tables import Nodes

MOST_INTERVALS = 1 << 24
"""Intervals that are compared, over all pairs of classes, beyond which there are none."""


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
