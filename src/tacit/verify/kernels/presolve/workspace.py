"""What the small search reads, what it works in, what it is asked and what it answers.

Its kernels take these short records and are compiled one by one: forced into one another, with all
arrays of a model handed on, such kernels took minutes to compile.
"""

from typing import NamedTuple

import numpy as np

from tacit.verify.kernels.tables import Bools, Floats, Index, Ints, Longs, Places, Words

LEVELS = 24
"""Boxes that may wait at a time."""

UNTOLD = -1
"""The class at a center that is not known yet, or that only the library's own sums can tell."""


class Model(NamedTuple):
    """What is read of an index."""

    entry: Words  # (trees): places of the roots
    walk: Words
    rise: Words
    fixed: Longs
    base: Longs
    cuts: Floats
    cut_start: Ints
    asked: Ints
    slack: int
    ends: Longs  # per node the least leaf below, and the least of its opposite; may be empty
    group: Longs  # (trees): the score that a tree adds to, where each adds to one of several
    n_groups: int
    minimiser: Ints  # (pairs of groups, features): the marginal minimiser


class Workspace(NamedTuple):
    """Room to work in, made once for many rows."""

    at: Ints  # (features): the interval of the center
    free: Longs  # (features + 1): those of which the box holds several; how many they are
    low: Ints  # (levels, features): the box, and the parts that wait
    high: Ints
    near_low: Ints  # (features): the ranges that the greedy attack has left
    near_high: Ints
    point: Ints  # (features): where it stands
    undecided: Longs  # (trees + 1): the trees with several reachable leaves; how many they are
    fork: Places  # (trees): the place at which the box goes two ways
    center_leaf: Places  # (trees)
    least: Longs  # (trees): the least leaf in the part
    leaf: Places  # (trees): its place
    loss: Longs  # (trees): what it is beyond the center's
    sums: Longs  # (scores): at the center
    bound: Longs  # (objectives): by how much the least leaves exceed the threshold
    mins: Longs  # (objectives): of one tree
    stack: Places  # places still to be seen


class Cases(NamedTuple):
    """What must be ruled out: one row per class, or one per box of a regression."""

    plus: Longs  # (cases, objectives)
    minus: Longs
    threshold: Longs
    label: Longs  # (cases)
    low: Floats
    high: Floats


class Boxes(NamedTuple):
    """The inputs that are asked about."""

    center: Floats  # (boxes, features)
    low: Floats
    high: Floats
    case: Longs  # (boxes): which case, or UNTOLD to find it from the class at the center
    is_whole: Bools  # (features)
    is_single: bool


class Answers(NamedTuple):
    """What was found out, box by box."""

    outcome: Longs
    nodes: Longs
    case: Longs
    seconds: Floats  # processor time
    x: Floats  # (boxes, features): the counterexample, where there is one


def pick_model(index: Index) -> Model:
    """Pick what the small search reads."""
    nodes, trees = index.nodes, index.trees
    n_groups = nodes.group_start.size - 1
    group = np.repeat(np.arange(n_groups), np.diff(nodes.group_start))[np.argsort(nodes.order)]
    return Model(
        entry=4 * trees.roots.astype(np.uint32),
        walk=nodes.walk,
        rise=nodes.rise,
        fixed=trees.fixed,
        base=index.base_fixed,
        cuts=index.cuts,
        cut_start=index.cut_start,
        asked=index.asked,
        slack=index.slack,
        ends=nodes.ends,
        group=group,
        n_groups=n_groups,
        minimiser=index.minimiser,
    )


def make_workspace(index: Index, n_objectives: int) -> Workspace:
    """Allocate a workspace for a model."""
    n, trees, scores = index.cut_start.size - 1, index.trees.roots.size, index.base_fixed.size
    return Workspace(
        at=np.zeros(n, np.int32),
        free=np.zeros(n + 1, np.int64),
        low=np.zeros((LEVELS, n), np.int32),
        high=np.zeros((LEVELS, n), np.int32),
        near_low=np.zeros(n, np.int32),
        near_high=np.zeros(n, np.int32),
        point=np.zeros(n, np.int32),
        undecided=np.zeros(trees + 1, np.int64),
        fork=np.zeros(trees, np.uint64),
        center_leaf=np.zeros(trees, np.uint64),
        least=np.zeros(trees, np.int64),
        leaf=np.zeros(trees, np.uint64),
        loss=np.zeros(trees, np.int64),
        sums=np.zeros(scores, np.int64),
        bound=np.zeros(n_objectives, np.int64),
        mins=np.zeros(n_objectives, np.int64),
        stack=np.zeros(index.trees.depth + 2, np.uint64),
    )


def make_answers(count: int, n_features: int) -> Answers:
    """Allocate room for answers."""
    return Answers(
        outcome=np.empty(count, np.int64),
        nodes=np.zeros(count, np.int64),
        case=np.empty(count, np.int64),
        seconds=np.empty(count, np.float64),
        x=np.empty((count, n_features), np.float64),
    )
