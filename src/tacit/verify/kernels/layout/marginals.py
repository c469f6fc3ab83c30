"""Where an ensemble leads on average: for each feature, the cell at which its trees pull least.

A corner of a box that is chosen by it alone is very often a counterexample where there is one, and
one walk through the trees tells. It depends on nothing but the ensemble, so it is made once.
"""

import numpy as np
import numpy.typing as npt

from tacit.verify.kernels.layout.nodes import Paths

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

MOST_CELLS = 1 << 24
"""Cells that are compared, over all pairs of classes, beyond which there are no lures."""


def lay_lures(packed: Ints, paths: Paths, cut_start: Ints) -> Ints:
    """Find the cell of each feature that lowers most what a side asks about.

    Args:
        packed: the nodes, as in `Trees`.
        paths: the ways through them.
        cut_start: where the cuts of each feature begin.

    Returns:
        (rows, features): with one group a row for what is pulled and one for the other way, with
        more a row for every pair of a first and a second group. No row where leaves pull several
        scores, or where pairs are too many.
    """
    n_features, n_groups = cut_start.size - 1, paths.group_start.size - 1
    start = cut_start.astype(np.int64) + np.arange(n_features + 1)
    if paths.ends.size == 0 or n_groups * n_groups * int(start[-1]) > MOST_CELLS:
        return np.zeros((0, n_features), np.int32)
    height = _average(packed, paths, start)
    if n_groups == 1:
        return np.stack([_lowest(height[0], start), _lowest(-height[0], start)])
    pairs = [_lowest(first - second, start) for first in height for second in height]
    return np.stack(pairs)


def _average(packed: Ints, paths: Paths, start: npt.NDArray[np.int64]) -> Floats:
    """Draw, per group, what an average leaf pulls over the cells of each feature, but for height.

    Every question counts by the leaves below it: the difference that its two ways make.
    """
    mean, leaves = paths.ends[::2].astype(np.float64), np.ones(len(packed))
    rise = np.zeros((paths.group_start.size - 1, int(start[-1])))
    levels, front = [], (paths.entry >> 2).astype(np.int64)
    own = np.repeat(np.arange(len(rise)), np.diff(paths.group_start))
    while front.size:
        is_inner = packed[front, 0] >= 0
        front, own = front[is_inner], own[is_inner]
        levels.append((front, own))
        front, own = packed[front, 2:].T.ravel().astype(np.int64), np.concatenate([own, own])
    for level, own in reversed(levels):
        left, right = packed[level, 2], packed[level, 3]
        leaves[level] = leaves[left] + leaves[right]
        mean[level] = (mean[left] * leaves[left] + mean[right] * leaves[right]) / leaves[level]
        cell = start[packed[level, 0]] + packed[level, 1] + 1
        np.add.at(rise, (own, cell), (mean[right] - mean[left]) * leaves[level])
    return np.cumsum(rise, axis=1)


def _lowest(height: Floats, start: npt.NDArray[np.int64]) -> Ints:
    """Find the first lowest cell of each feature."""
    if start.size == 1:
        return np.zeros(0, np.int32)
    feature = np.repeat(np.arange(start.size - 1), np.diff(start))
    at = np.flatnonzero(height == np.minimum.reduceat(height, start[:-1])[feature])
    first = np.searchsorted(feature[at], np.arange(start.size - 1))
    return (at[first] - start[:-1]).astype(np.int32)
