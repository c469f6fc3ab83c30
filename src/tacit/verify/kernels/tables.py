"""What kernels are handed, and answer: arrays, outcomes, and the tables of a model.

`models.index` makes the tables. A feature's sorted thresholds c_0 < c_1 < … cut the line into
*threshold intervals*; interval i holds the keys in (c_{i-1}, c_i]. A node sends interval i left
exactly when i is at most the rank of the node's threshold. Leaf values are *fixed-point* numbers,
multiples of 2^-exponent as 64-bit integers, so that sums have no order and no drift.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.jit import bare

Reals = npt.NDArray[np.floating]
"""Of the library's own type, or the caller's."""
Outputs = npt.NDArray[np.floating | np.integer]
"""Class indices, or the outputs of a regression."""
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]
Places = npt.NDArray[np.uint64]


class Outcome(IntEnum):
    """Whether the prediction holds. Of several outcomes the largest stands, but a counterexample.

    ROBUST: no input that was asked about changes the prediction.
    COUNTEREXAMPLE: one does.
    NEAR_TIE: some come too close to a tie for the library's softmax to be predicted.
    UNDECIDED: not told yet; after the budget, not told at all.
    """

    ROBUST = 0
    COUNTEREXAMPLE = 1
    NEAR_TIE = 2
    UNDECIDED = 3


@bare
def worse(one: Outcome, other: Outcome) -> Outcome:
    """Return the larger of two outcomes."""
    # Numba knows no maximum of enums.
    return one if one > other else other


BINARY, ARGMAX, REGRESS = 0, 1, 2
"""How sums become a prediction: one score and a cutoff; the largest score; the score itself."""

END = (1 << 31) - 1
"""In place of a rank: the node is a leaf. In place of a parent: the node is a root."""


ONE, TWO, THREE = np.uint64(1), np.uint64(2), np.uint64(3)
"""Unsigned, as are places: an index that cannot be negative saves the question whether it is."""


class Trees(NamedTuple):
    """All trees as flat arrays."""

    roots: Ints
    feature: Ints
    threshold: Floats
    left: Ints
    right: Ints
    missing_left: Bools
    value: Floats
    fixed: Longs  # (nodes, scores): fixed-point leaf values
    packed: Ints  # (nodes, 4): feature, the threshold's rank among its feature's, left, right
    walk: Words  # the same as `Nodes` has it: a place is four times a node
    depth: int  # how many questions the longest path asks


class Nodes(NamedTuple):
    """The trees once more, for walks that are counted in nanoseconds.

    Nodes are places in flat unsigned arrays, four words each: an index that cannot be negative
    saves the question whether it is. Trees that add to the same score lie together, in the
    library's order.
    """

    order: Ints  # the tree at each position
    group_start: Longs  # positions of the groups: one per score in boosting with several classes
    entry: Words  # the place of each position's root
    walk: Words  # feature, rank or END, places of the left and the right child; of a leaf, its own
    rise: Words  # place of the parent or END, its feature, first and last interval it sends here
    ends: Longs
    """Two per node: the least contribution of a leaf below, and the least of its opposite.

    Empty where leaves contribute to several scores at once.
    """


class Rule(NamedTuple):
    """How sums become a decision, in the form the kernels take."""

    kind: int
    is_single: bool
    divisor: float
    cutoff: float
    guard: float
    base: Floats


class Index(NamedTuple):
    """Everything that is computed once per ensemble."""

    trees: Trees
    nodes: Nodes
    rule: Rule
    cuts: Floats
    cut_start: Ints
    base_fixed: Longs
    exponent: int
    askers: Ints  # the trees that ask for a feature, one list per feature
    asker_start: Ints
    asked: Ints  # the features that some tree asks for
    slack: int  # by how much the library's sum of one score may differ, in fixed point
    minimiser: Ints  # per objective, or pair of groups, and feature: the marginal minimiser


class Objectives(NamedTuple):
    """Everything that must be ruled out, and what the library would say to a point."""

    plus: Longs  # (objectives): score that counts positively, or -1
    minus: Longs  # (objectives): score that counts negatively, or -1
    threshold: Longs  # (objectives): fixed point
    label: int
    low: float
    high: float
