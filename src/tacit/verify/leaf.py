"""Compiled: the least leaf of a tree that a box can reach, where leaves pull one number."""

from typing import Any

import numpy as np

from tacit.verify.glance import ONE, THREE, TWO
from tacit.verify.jit import inlined
from tacit.verify.paths import END

NOBODY = -1
"""In place of a second group of trees: a side asks about one only."""


@inlined
def end_of(ends: Any, place: Any, column: Any) -> Any:
    """Read the least pull below a place."""
    return ends[(np.uint64(place) >> ONE) + column]


@inlined
def descend(
    paths: Any, stack: Any, top: int, least: int, leaf: Any, to: Any, low: Any, high: Any
) -> Any:
    """Find the least leaf below the places of a stack that a box can reach, if it beats `least`.

    Questions are compared with the box one by one. That is exact: ranges of which any two meet
    have a point in common. Only a leaf that no input at all can reach may be found as well.
    """
    walk, ends = paths.walk, paths.ends
    while top > 0:
        top -= 1
        node = np.uint64(stack[top])
        while end_of(ends, node, to) < least:
            f, rank = np.uint64(walk[node]), walk[node + ONE]
            if rank == END:
                least, leaf = end_of(ends, node, to), node
            elif high[f] <= rank:
                node = np.uint64(walk[node + TWO])
            elif low[f] > rank:
                node = np.uint64(walk[node + THREE])
            else:
                one, other = np.uint64(walk[node + TWO]), np.uint64(walk[node + THREE])
                is_left = end_of(ends, one, to) <= end_of(ends, other, to)
                # The one that promises less waits.
                stack[top] = other if is_left else one
                top += 1
                node = one if is_left else other
    return least, leaf


@inlined
def descend_by_keys(index: Any, g: Any, top: int, least: int, leaf: Any, to: Any) -> Any:
    """Find the least leaf as `descend` does, comparing thresholds with the floats of the box."""
    walk, ends, threshold = index.paths.walk, index.paths.ends, index.trees.threshold
    stack = g.stack
    while top > 0:
        top -= 1
        node = np.uint64(stack[top])
        while end_of(ends, node, to) < least:
            f, limit = np.uint64(walk[node]), threshold[node >> TWO]
            if walk[node + ONE] == END:
                least, leaf = end_of(ends, node, to), node
            elif g.key_high[f] <= limit:
                node = np.uint64(walk[node + TWO])
            elif g.key_low[f] > limit:
                node = np.uint64(walk[node + THREE])
            else:
                one, other = np.uint64(walk[node + TWO]), np.uint64(walk[node + THREE])
                is_left = end_of(ends, one, to) <= end_of(ends, other, to)
                stack[top] = other if is_left else one
                top += 1
                node = one if is_left else other
    return least, leaf


@inlined
def pair(paths: Any, sides: Any, side: int) -> Any:
    """Name the groups that a side asks about, and which end of the first counts."""
    if paths.group_start.size == 2:
        return 0, NOBODY, np.int64(sides.plus[side] != 0)
    return sides.plus[side], sides.minus[side], np.int64(0)
