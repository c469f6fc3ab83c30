"""The tables the search works on: intervals instead of thresholds, fixed point instead of floats.

Two roundings stand between a fixed-point sum and the library's: a leaf value that is no multiple of
the unit, and the library's own additions. `slack` bounds both; it is 0 when there is neither.

The trees are laid out once more, for walks that are counted in nanoseconds. Where each tree
contributes to one number only — a single score, the difference of two, or in boosting the score of
one class — every node also knows the least leaf below it.
"""

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from tacit.errors import DataError
from tacit.verify.kernels.tables import (
    ARGMAX,
    BINARY,
    END,
    REGRESS,
    Floats,
    Index,
    Ints,
    Longs,
    Nodes,
    Rule,
    Trees,
    Words,
)

if TYPE_CHECKING:
    from tacit.verify.models.ensemble import Ensemble

DIGITS = {"float32": 24, "float64": 53}
FIXED_BITS = 46
"""Fixed-point sums stay below 2^46, so that thousands of such sums can be added in 64 bits."""
MOST_TREES = 1 << 14
MOST_INTERVALS = 1 << 24
"""Intervals that are compared, over all pairs of classes, beyond which there are none."""


def make_index(ensemble: "Ensemble") -> Index:
    """Sort the thresholds, round leaf values to fixed point and bound the rounding."""
    if ensemble.roots.size > MOST_TREES:
        raise DataError(f"at most {MOST_TREES} trees are supported, got {ensemble.roots.size}")
    cuts, cut_start, rank = _rank_thresholds(ensemble)
    exponent, is_exact = _choose_scale(ensemble)
    scale = 2.0**exponent
    leaves = (ensemble.feature < 0)[:, None]
    fixed = np.where(leaves, np.rint(ensemble.value * scale), 0.0).astype(np.int64)
    packed = np.stack([ensemble.feature, rank, ensemble.left, ensemble.right], axis=1).astype(
        np.int32
    )
    nodes = lay_nodes(ensemble.roots, packed, fixed, _find_owners(ensemble, fixed))
    trees = Trees(
        roots=np.ascontiguousarray(ensemble.roots),
        feature=np.ascontiguousarray(ensemble.feature),
        threshold=np.ascontiguousarray(ensemble.threshold),
        left=np.ascontiguousarray(ensemble.left),
        right=np.ascontiguousarray(ensemble.right),
        missing_left=np.ascontiguousarray(ensemble.missing_left),
        value=np.ascontiguousarray(np.where(leaves, ensemble.value, 0.0)),
        fixed=np.ascontiguousarray(fixed),
        packed=packed,
        walk=nodes.walk,
        depth=_longest_path(ensemble),
    )
    askers, asker_start = _list_askers(ensemble)
    return Index(
        trees=trees,
        nodes=nodes,
        rule=make_rule(ensemble),
        cuts=cuts,
        cut_start=cut_start,
        base_fixed=np.rint(ensemble.base * scale).astype(np.int64),
        exponent=exponent,
        askers=askers,
        asker_start=asker_start,
        asked=np.flatnonzero(np.diff(cut_start)).astype(np.int32),
        slack=0 if is_exact else _bound_rounding(ensemble, exponent),
        minimiser=lay_minimisers(packed, nodes, cut_start),
    )


def make_rule(ensemble: "Ensemble") -> Rule:
    """Translate the decision rule for the kernels."""
    kind = REGRESS if ensemble.task == "regress" else (ARGMAX, BINARY)[ensemble.value.shape[1] == 1]
    is_single = ensemble.sum_type == "float32"
    base = np.ascontiguousarray(ensemble.base, dtype=np.float64)
    return Rule(
        kind=kind,
        is_single=is_single,
        divisor=ensemble.divisor,
        cutoff=ensemble.cutoff,
        guard=ensemble.guard,
        base=base,
    )


def to_fixed(value: float | Fraction, exponent: int, *, up: bool) -> int:
    """Write a number in fixed point, rounded up or down."""
    exact = Fraction(value) * Fraction(2) ** exponent
    return math.ceil(exact) if up else math.floor(exact)


def _rank_thresholds(
    ensemble: "Ensemble",
) -> tuple[Floats, Ints, Ints]:
    inner = np.flatnonzero(ensemble.feature >= 0)
    feature, threshold = ensemble.feature[inner], ensemble.threshold[inner] + 0.0  # -0.0 is 0.0
    order = np.lexsort((threshold, feature))
    feature, threshold = feature[order], threshold[order]
    is_new = np.ones(order.size, dtype=bool)
    is_new[1:] = (feature[1:] != feature[:-1]) | (threshold[1:] != threshold[:-1])
    counts = np.bincount(feature[is_new], minlength=ensemble.width)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    rank = np.zeros(ensemble.feature.shape[0], dtype=np.int32)
    rank[inner[order]] = np.cumsum(is_new) - 1 - start[feature]
    return np.ascontiguousarray(threshold[is_new]), start, rank


def _list_askers(ensemble: "Ensemble") -> tuple[Ints, Ints]:
    inner = ensemble.feature >= 0
    pairs = np.stack([ensemble.feature[inner], _tree_of_node(ensemble)[inner]], axis=1)
    pairs = np.unique(pairs, axis=0)
    counts = np.bincount(pairs[:, 0], minlength=ensemble.width)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return np.ascontiguousarray(pairs[:, 1], dtype=np.int32), start


def _find_owners(ensemble: "Ensemble", fixed: Longs) -> Ints:
    is_used = np.zeros((ensemble.roots.size, fixed.shape[1]), dtype=bool)
    leaves = (ensemble.feature < 0)[:, None]
    # A value may be less than a unit: only what the library adds can be left out.
    pays = (fixed != 0) | (leaves & (ensemble.value != 0.0))
    np.logical_or.at(is_used, _tree_of_node(ensemble), pays)
    owner = np.where(is_used.sum(axis=1) <= 1, is_used.argmax(axis=1), -1)
    return np.ascontiguousarray(owner, dtype=np.int32)


def _longest_path(ensemble: "Ensemble") -> int:
    front, depth = ensemble.roots, -1
    while front.size:
        front = front[ensemble.feature[front] >= 0]
        front = np.concatenate([ensemble.left[front], ensemble.right[front]])
        depth += 1
    return depth


def _largest_sum(ensemble: "Ensemble") -> float:
    # Root by root would be a loop over trees; a running maximum over tree ids is the same.
    tree_of = _tree_of_node(ensemble)
    largest = np.zeros((ensemble.roots.size, ensemble.value.shape[1]))
    leaves = ensemble.feature < 0
    np.maximum.at(largest, tree_of[leaves], np.abs(ensemble.value[leaves]))
    return float((largest.sum(axis=0) + np.abs(ensemble.base)).max())


def _tree_of_node(ensemble: "Ensemble") -> Longs:
    tree_of = np.zeros(ensemble.feature.shape[0], dtype=np.int64)
    front, owner = ensemble.roots, np.arange(ensemble.roots.size)
    while front.size:
        tree_of[front] = owner
        inner = ensemble.feature[front] >= 0
        front, owner = front[inner], owner[inner]
        front = np.concatenate([ensemble.left[front], ensemble.right[front]])
        owner = np.concatenate([owner, owner])
    return tree_of


def _choose_scale(ensemble: "Ensemble") -> tuple[int, bool]:
    """Find the unit, and whether all sums are exact in fixed point and in the library's type."""
    largest = _largest_sum(ensemble) or 1.0
    exponent = FIXED_BITS - math.frexp(largest)[1]
    if not -900 < exponent < 900:
        raise DataError(f"leaf values of size {largest:g} are out of the range of the search")
    # Three bits to spare: quotients of different sums by the divisor then stay different.
    exact = min(FIXED_BITS, DIGITS[ensemble.sum_type] - 3) - math.frexp(largest)[1]
    values = np.concatenate([ensemble.value[ensemble.feature < 0].ravel(), ensemble.base])
    scaled = values * 2.0**exact
    keeps_order = ensemble.divisor == 1.0 or make_rule(ensemble).kind == ARGMAX
    if bool((scaled == np.rint(scaled)).all()) and keeps_order and ensemble.guard == 0.0:
        return exact, True
    return exponent, False


def _bound_rounding(ensemble: "Ensemble", exponent: int) -> int:
    trees = ensemble.roots.size
    # n additions of relative error u each, then one division (Higham 2002, section 4.2).
    steps = (trees + 3) * Fraction(1, 2 ** DIGITS[ensemble.sum_type])
    drift = steps / (1 - steps) * Fraction(_largest_sum(ensemble)) * Fraction(1 + 2**-40)
    return to_fixed(drift, exponent, up=True) + trees + 1


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
