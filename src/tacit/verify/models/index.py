"""The tables the search works on: intervals instead of thresholds, fixed point instead of floats.

Two roundings stand between a fixed-point sum and the library's: a leaf value that is no multiple of
the unit, and the library's own additions. `slack` bounds both; it is 0 when there is neither.
"""

import math
from fractions import Fraction
from typing import Protocol

import numpy as np

from tacit.errors import DataError
from tacit.verify.kernels.arrays import Bools, Floats, Ints, Longs
from tacit.verify.kernels.layout.tables import ARGMAX, BINARY, REGRESS, Index, Rule, Trees
from tacit.verify.models.nodes import lay_minimisers, lay_nodes

DIGITS = {"float32": 24, "float64": 53}
FIXED_BITS = 46
"""Fixed-point sums stay below 2^46, so that thousands of such sums can be added in 64 bits."""
MOST_TREES = 1 << 14


class Forest(Protocol):
    """What the index reads of an ensemble."""

    @property
    def roots(self) -> Ints: ...  # noqa: D102
    @property
    def feature(self) -> Ints: ...  # noqa: D102
    @property
    def threshold(self) -> Floats: ...  # noqa: D102
    @property
    def left(self) -> Ints: ...  # noqa: D102
    @property
    def right(self) -> Ints: ...  # noqa: D102
    @property
    def missing_left(self) -> Bools: ...  # noqa: D102
    @property
    def value(self) -> Floats: ...  # noqa: D102
    @property
    def base(self) -> Floats: ...  # noqa: D102
    @property
    def width(self) -> int: ...  # noqa: D102
    @property
    def task(self) -> str: ...  # noqa: D102
    @property
    def sum_type(self) -> str: ...  # noqa: D102
    @property
    def divisor(self) -> float: ...  # noqa: D102
    @property
    def cutoff(self) -> float: ...  # noqa: D102
    @property
    def guard(self) -> float: ...  # noqa: D102


def make_index(forest: Forest) -> Index:
    """Sort the thresholds, round leaf values to fixed point and bound the rounding."""
    if forest.roots.size > MOST_TREES:
        raise DataError(f"at most {MOST_TREES} trees are supported, got {forest.roots.size}")
    cuts, cut_start, rank = _rank_thresholds(forest)
    exponent, is_exact = _choose_scale(forest)
    scale = 2.0**exponent
    leaves = (forest.feature < 0)[:, None]
    fixed = np.where(leaves, np.rint(forest.value * scale), 0.0).astype(np.int64)
    packed = np.stack([forest.feature, rank, forest.left, forest.right], axis=1).astype(np.int32)
    nodes = lay_nodes(forest.roots, packed, fixed, _find_owners(forest, fixed))
    trees = Trees(
        roots=np.ascontiguousarray(forest.roots),
        feature=np.ascontiguousarray(forest.feature),
        threshold=np.ascontiguousarray(forest.threshold),
        left=np.ascontiguousarray(forest.left),
        right=np.ascontiguousarray(forest.right),
        missing_left=np.ascontiguousarray(forest.missing_left),
        value=np.ascontiguousarray(np.where(leaves, forest.value, 0.0)),
        fixed=np.ascontiguousarray(fixed),
        packed=packed,
        walk=nodes.walk,
        depth=_longest_path(forest),
    )
    askers, asker_start = _list_askers(forest)
    return Index(
        trees=trees,
        nodes=nodes,
        rule=make_rule(forest),
        cuts=cuts,
        cut_start=cut_start,
        base_fixed=np.rint(forest.base * scale).astype(np.int64),
        exponent=exponent,
        askers=askers,
        asker_start=asker_start,
        asked=np.flatnonzero(np.diff(cut_start)).astype(np.int32),
        slack=0 if is_exact else _bound_rounding(forest, exponent),
        minimiser=lay_minimisers(packed, nodes, cut_start),
    )


def make_rule(forest: Forest) -> Rule:
    """Translate the decision rule for the kernels."""
    kind = REGRESS if forest.task == "regress" else (ARGMAX, BINARY)[forest.value.shape[1] == 1]
    is_single = forest.sum_type == "float32"
    base = np.ascontiguousarray(forest.base, dtype=np.float64)
    return Rule(
        kind=kind,
        is_single=is_single,
        divisor=forest.divisor,
        cutoff=forest.cutoff,
        guard=forest.guard,
        base=base,
    )


def to_fixed(value: float | Fraction, exponent: int, *, up: bool) -> int:
    """Write a number in fixed point, rounded up or down."""
    exact = Fraction(value) * Fraction(2) ** exponent
    return math.ceil(exact) if up else math.floor(exact)


def _rank_thresholds(
    forest: Forest,
) -> tuple[Floats, Ints, Ints]:
    inner = np.flatnonzero(forest.feature >= 0)
    feature, threshold = forest.feature[inner], forest.threshold[inner] + 0.0  # -0.0 is 0.0
    order = np.lexsort((threshold, feature))
    feature, threshold = feature[order], threshold[order]
    is_new = np.ones(order.size, dtype=bool)
    is_new[1:] = (feature[1:] != feature[:-1]) | (threshold[1:] != threshold[:-1])
    counts = np.bincount(feature[is_new], minlength=forest.width)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    rank = np.zeros(forest.feature.shape[0], dtype=np.int32)
    rank[inner[order]] = np.cumsum(is_new) - 1 - start[feature]
    return np.ascontiguousarray(threshold[is_new]), start, rank


def _list_askers(forest: Forest) -> tuple[Ints, Ints]:
    inner = forest.feature >= 0
    pairs = np.stack([forest.feature[inner], _tree_of_node(forest)[inner]], axis=1)
    pairs = np.unique(pairs, axis=0)
    counts = np.bincount(pairs[:, 0], minlength=forest.width)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return np.ascontiguousarray(pairs[:, 1], dtype=np.int32), start


def _find_owners(forest: Forest, fixed: Longs) -> Ints:
    is_used = np.zeros((forest.roots.size, fixed.shape[1]), dtype=bool)
    leaves = (forest.feature < 0)[:, None]
    # A value may be less than a unit: only what the library adds can be left out.
    pays = (fixed != 0) | (leaves & (forest.value != 0.0))
    np.logical_or.at(is_used, _tree_of_node(forest), pays)
    owner = np.where(is_used.sum(axis=1) <= 1, is_used.argmax(axis=1), -1)
    return np.ascontiguousarray(owner, dtype=np.int32)


def _longest_path(forest: Forest) -> int:
    front, depth = forest.roots, -1
    while front.size:
        front = front[forest.feature[front] >= 0]
        front = np.concatenate([forest.left[front], forest.right[front]])
        depth += 1
    return depth


def _largest_sum(forest: Forest) -> float:
    # Root by root would be a loop over trees; a running maximum over tree ids is the same.
    tree_of = _tree_of_node(forest)
    largest = np.zeros((forest.roots.size, forest.value.shape[1]))
    leaves = forest.feature < 0
    np.maximum.at(largest, tree_of[leaves], np.abs(forest.value[leaves]))
    return float((largest.sum(axis=0) + np.abs(forest.base)).max())


def _tree_of_node(forest: Forest) -> Longs:
    tree_of = np.zeros(forest.feature.shape[0], dtype=np.int64)
    front, owner = forest.roots, np.arange(forest.roots.size)
    while front.size:
        tree_of[front] = owner
        inner = forest.feature[front] >= 0
        front, owner = front[inner], owner[inner]
        front = np.concatenate([forest.left[front], forest.right[front]])
        owner = np.concatenate([owner, owner])
    return tree_of


def _choose_scale(forest: Forest) -> tuple[int, bool]:
    """Find the unit, and whether all sums are exact in fixed point and in the library's type."""
    largest = _largest_sum(forest) or 1.0
    exponent = FIXED_BITS - math.frexp(largest)[1]
    if not -900 < exponent < 900:
        raise DataError(f"leaf values of size {largest:g} are out of the range of the search")
    # Three bits to spare: quotients of different sums by the divisor then stay different.
    exact = min(FIXED_BITS, DIGITS[forest.sum_type] - 3) - math.frexp(largest)[1]
    values = np.concatenate([forest.value[forest.feature < 0].ravel(), forest.base])
    scaled = values * 2.0**exact
    keeps_order = forest.divisor == 1.0 or make_rule(forest).kind == ARGMAX
    if bool((scaled == np.rint(scaled)).all()) and keeps_order and forest.guard == 0.0:
        return exact, True
    return exponent, False


def _bound_rounding(forest: Forest, exponent: int) -> int:
    trees = forest.roots.size
    # n additions of relative error u each, then one division (Higham 2002, section 4.2).
    steps = (trees + 3) * Fraction(1, 2 ** DIGITS[forest.sum_type])
    drift = steps / (1 - steps) * Fraction(_largest_sum(forest)) * Fraction(1 + 2**-40)
    return to_fixed(drift, exponent, up=True) + trees + 1
