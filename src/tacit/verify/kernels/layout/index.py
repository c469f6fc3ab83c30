"""The tables the search works on: cells instead of thresholds, whole units instead of floats.

A feature's sorted thresholds c_0 < c_1 < … cut the line into cells; cell r holds the keys in
(c_{r-1}, c_r]. A node sends cell r left exactly when r is at most the node's rank.

Leaf values are counted in units of 2^-exponent, as 64-bit integers, so that sums have no order and
no drift. Two roundings stand between units and the library's sum: a value that is no whole number
of units, and the library's own additions. `slack` bounds both; it is 0 when there is neither.
"""

import math
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tacit.errors import DataError
from tacit.verify.kernels.layout.marginals import lay_lures
from tacit.verify.kernels.layout.nodes import Paths, lay_paths

BINARY, ARGMAX, REGRESS = 0, 1, 2
DIGITS = {"float32": 24, "float64": 53}
UNIT_BITS = 46
"""Sums of units stay below 2^46, so that thousands of such sums can be added in 64 bits."""
MOST_TREES = 1 << 14


class Forest(Protocol):
    """What the index reads of an ensemble."""

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
    @property
    def missing_left(self) -> npt.NDArray[np.bool_]: ...  # noqa: D102
    @property
    def value(self) -> npt.NDArray[np.float64]: ...  # noqa: D102
    @property
    def base(self) -> npt.NDArray[np.float64]: ...  # noqa: D102
    @property
    def n_features(self) -> int: ...  # noqa: D102
    @property
    def task(self) -> str: ...  # noqa: D102
    @property
    def input_type(self) -> str: ...  # noqa: D102
    @property
    def sum_type(self) -> str: ...  # noqa: D102
    @property
    def divisor(self) -> float: ...  # noqa: D102
    @property
    def cutoff(self) -> float: ...  # noqa: D102
    @property
    def guard(self) -> float: ...  # noqa: D102


class Trees(NamedTuple):
    """All trees as flat arrays."""

    roots: npt.NDArray[np.int32]
    feature: npt.NDArray[np.int32]
    threshold: npt.NDArray[np.float64]
    left: npt.NDArray[np.int32]
    right: npt.NDArray[np.int32]
    missing_left: npt.NDArray[np.bool_]
    value: npt.NDArray[np.float64]
    units: npt.NDArray[np.int64]
    packed: npt.NDArray[np.int32]
    """(nodes, 4): feature, the threshold's rank among its feature's cuts, left, right."""
    walk: npt.NDArray[np.uint32]
    """The same as `Paths` lays it out: a place is four times a node."""
    depth: int
    """How many questions the longest path asks."""


class Rule(NamedTuple):
    """How sums become a decision, in the form the kernels take."""

    kind: int
    is_single: bool
    divisor: float
    cutoff: float
    guard: float
    base: npt.NDArray[np.float64]


class Index(NamedTuple):
    """Everything that is computed once per ensemble."""

    trees: Trees
    paths: Paths
    rule: Rule
    cuts: npt.NDArray[np.float64]
    cut_start: npt.NDArray[np.int32]
    base_units: npt.NDArray[np.int64]
    exponent: int
    askers: npt.NDArray[np.int32]
    """The trees that ask for a feature, one list per feature."""
    asker_start: npt.NDArray[np.int32]
    asked: npt.NDArray[np.int32]
    """The features that some tree asks for."""
    slack: int
    """By how many units the library's sum of one score may differ from the sum of units."""
    lure: npt.NDArray[np.int32]
    """Per side, or pair of groups, and feature: the cell to which an attack is drawn first."""


def make_index(forest: Forest) -> Index:
    """Sort the thresholds, count leaf values in units and bound the rounding."""
    if forest.roots.size > MOST_TREES:
        raise DataError(f"at most {MOST_TREES} trees are supported, got {forest.roots.size}")
    cuts, cut_start, rank = _rank_thresholds(forest)
    exponent, is_exact = _choose_unit(forest)
    scale = 2.0**exponent
    leaves = (forest.feature < 0)[:, None]
    units = np.where(leaves, np.rint(forest.value * scale), 0.0).astype(np.int64)
    trees = Trees(
        np.ascontiguousarray(forest.roots),
        np.ascontiguousarray(forest.feature),
        np.ascontiguousarray(forest.threshold),
        np.ascontiguousarray(forest.left),
        np.ascontiguousarray(forest.right),
        np.ascontiguousarray(forest.missing_left),
        np.ascontiguousarray(np.where(leaves, forest.value, 0.0)),
        np.ascontiguousarray(units),
        np.stack([forest.feature, rank, forest.left, forest.right], axis=1).astype(np.int32),
        np.zeros(0, np.uint32),
        _longest_path(forest),
    )
    paths = lay_paths(trees, _find_owners(forest, units))
    base_units = np.rint(forest.base * scale).astype(np.int64)
    slack = 0 if is_exact else _bound_rounding(forest, exponent)
    askers, asker_start = _list_askers(forest)
    asked = np.flatnonzero(np.diff(cut_start)).astype(np.int32)
    return Index(
        trees._replace(walk=paths.walk),
        paths,
        make_rule(forest),
        cuts,
        cut_start,
        base_units,
        exponent,
        askers,
        asker_start,
        asked,
        slack,
        lay_lures(trees.packed, paths, cut_start),
    )


def make_rule(forest: Forest) -> Rule:
    """Translate the decision rule for the kernels."""
    kind = REGRESS if forest.task == "regress" else (ARGMAX, BINARY)[forest.value.shape[1] == 1]
    is_single = forest.sum_type == "float32"
    base = np.ascontiguousarray(forest.base, dtype=np.float64)
    return Rule(kind, is_single, forest.divisor, forest.cutoff, forest.guard, base)


def to_units(value: float | Fraction, exponent: int, *, up: bool) -> int:
    """Count a number in units, rounded up or down to a whole unit."""
    exact = Fraction(value) * Fraction(2) ** exponent
    return math.ceil(exact) if up else math.floor(exact)


def _rank_thresholds(
    forest: Forest,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    inner = np.flatnonzero(forest.feature >= 0)
    feature, threshold = forest.feature[inner], forest.threshold[inner] + 0.0  # -0.0 is 0.0
    order = np.lexsort((threshold, feature))
    feature, threshold = feature[order], threshold[order]
    is_new = np.ones(order.size, dtype=bool)
    is_new[1:] = (feature[1:] != feature[:-1]) | (threshold[1:] != threshold[:-1])
    counts = np.bincount(feature[is_new], minlength=forest.n_features)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    rank = np.zeros(forest.feature.shape[0], dtype=np.int32)
    rank[inner[order]] = np.cumsum(is_new) - 1 - start[feature]
    return np.ascontiguousarray(threshold[is_new]), start, rank


def _list_askers(forest: Forest) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    inner = forest.feature >= 0
    pairs = np.stack([forest.feature[inner], _tree_of_node(forest)[inner]], axis=1)
    pairs = np.unique(pairs, axis=0)
    counts = np.bincount(pairs[:, 0], minlength=forest.n_features)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return np.ascontiguousarray(pairs[:, 1], dtype=np.int32), start


def _find_owners(forest: Forest, units: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    is_used = np.zeros((forest.roots.size, units.shape[1]), dtype=bool)
    leaves = (forest.feature < 0)[:, None]
    # A value may be less than a unit: only what the library adds can be left out.
    pays = (units != 0) | (leaves & (forest.value != 0.0))
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


def _tree_of_node(forest: Forest) -> npt.NDArray[Any]:
    tree_of = np.zeros(forest.feature.shape[0], dtype=np.int64)
    front, owner = forest.roots, np.arange(forest.roots.size)
    while front.size:
        tree_of[front] = owner
        inner = forest.feature[front] >= 0
        front, owner = front[inner], owner[inner]
        front = np.concatenate([forest.left[front], forest.right[front]])
        owner = np.concatenate([owner, owner])
    return tree_of


def _choose_unit(forest: Forest) -> tuple[int, bool]:
    """Find the unit, and whether all sums are exact both in units and in the library's type."""
    largest = _largest_sum(forest) or 1.0
    exponent = UNIT_BITS - math.frexp(largest)[1]
    if not -900 < exponent < 900:
        raise DataError(f"leaf values of size {largest:g} are out of the range of the search")
    # Three bits to spare: quotients of different sums by the divisor then stay different.
    exact = min(UNIT_BITS, DIGITS[forest.sum_type] - 3) - math.frexp(largest)[1]
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
    return to_units(drift, exponent, up=True) + trees + 1
