"""Proofs and attacks by halving alone, against brute force."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="tacit-ml[verify] is not installed")

from tacit.verify.box import Box, box_cells
from tacit.verify.build import Tree, build
from tacit.verify.glance import FELL, HELD, OPEN, look, make_glance, sum_center
from tacit.verify.halves import MOST_FREE, MOST_PARTS, halve_side
from tacit.verify.sides import make_sides
from tacit.verify.slate import MOST_LEAVES, MOST_ROWS

SEEDS = st.integers(0, 2**32 - 1)
RULE = {"task": "classify", "input_type": "float64", "sum_type": "float64"}


def grow(brute, rng, *, width, count, menu, size=1000.0):
    """Grow trees with whole leaves, so that sums have no rounding."""
    trees = []
    for _ in range(count):
        tree = brute.random_tree(rng, n_features=width, depth=4, scores=1, values=brute.reals)
        threshold = rng.choice(menu, tree.threshold.size)
        trees.append(replace(tree, threshold=threshold, value=np.rint(size * tree.value)))
    return trees


def all_corners(model, box):
    """List one input per cell of the box: the upper end of each cell."""
    axes = []
    for f in range(model.n_features):
        cuts = np.unique(model.threshold[(model.feature == f) & (model.left >= 0)])
        inside = cuts[(cuts >= box.low[f]) & (cuts < box.high[f])]
        axes.append(np.append(inside, box.high[f]))
    return np.array(list(product(*axes)))


def set_base(trees, width, box, above):
    """Set the base so that the least score in the box is as far above the cutoff as told."""
    alone = build(trees, **RULE, base=np.zeros(1), n_features=width)
    least = alone.scores(all_corners(alone, box)).min()
    return build(trees, **RULE, base=np.array([above - least]), n_features=width)


def is_closed(model, box, most=MOST_PARTS):
    """Say whether the only side is proved, as if the box were that of a row with class 1."""
    return halve(model, box, most)[0] == HELD


def halve(model, box, most=MOST_PARTS):
    """Halve the only side; return what became of it, and the cells."""
    sides = make_sides(model, 1, None)
    low, high = box_cells(model, box)
    g = make_glance(model.index, sides.plus.size)
    g.at[:] = box_cells(model, Box(box.center, box.center, box.center))[0]
    free = np.flatnonzero(low < high)
    g.free[: free.size], g.free[-1] = free, free.size
    look(model.index.paths, g, low, high)
    sum_center(model.index, g)
    return halve_side(model.index, sides, 0, g, low, high, most), low, high


def top_of(model, box, cell):
    """Return the upper end of a cell of every feature."""
    ends = []
    for f in range(model.n_features):
        cuts = np.unique(model.threshold[(model.feature == f) & (model.left >= 0)])
        ends.append(min(np.append(cuts, np.inf)[cell[f]], box.high[f]))
    return np.array(ends)


def draw(brute, seed, *, size=1000.0):
    """Make trees over few features with many cuts, or over more features with few."""
    rng = np.random.default_rng(seed)
    width, cuts = [(2, 40), (3, 14), (4, 6), (5, 4)][rng.integers(4)]
    trees = grow(brute, rng, width=width, count=12, menu=rng.normal(size=width * cuts), size=size)
    box = Box(np.zeros(width), -rng.uniform(0.1, 2.0, width), rng.uniform(0.1, 2.0, width))
    return trees, width, box


@given(seed=SEEDS)
@settings(max_examples=150, deadline=None)
def test_what_falls_by_one_unit_is_not_closed(brute, seed):
    trees, width, box = draw(brute, seed)
    assert not is_closed(set_base(trees, width, box, -1.0), box)


@given(seed=SEEDS)
@settings(max_examples=60, deadline=None)
def test_what_falls_is_not_closed_where_excesses_are_rounded(brute, seed):
    trees, width, box = draw(brute, seed, size=1e9)
    assert not is_closed(set_base(trees, width, box, -1.0), box)


def test_what_falls_is_found_and_falls_in_the_cells_that_are_left(brute):
    found = []
    for seed in range(80):
        trees, width, box = draw(brute, seed)
        model = set_base(trees, width, box, -float(10 ** (seed % 4)))
        outcome, low, high = halve(model, box)
        found.append(outcome == FELL)
        if outcome == FELL:
            assert (low == high).all()
            assert model.scores(top_of(model, box, low)[None])[0, 0] < 0.0
    assert np.mean(found) > 0.8


def test_a_point_that_is_found_is_told_by_the_library_and_not_by_its_units(brute):
    # What is missing is less than rounding may be: where it falls, the library says so.
    told = []
    for seed in range(40):
        trees, width, box = draw(brute, seed, size=1e9)
        trees = [replace(tree, value=tree.value / 3.0) for tree in trees]
        for above in (-1e-7, 0.0, 1e-7):
            model = set_base(trees, width, box, above)
            assert model.index.slack > 0
            outcome, low, _ = halve(model, box)
            told.append(outcome)
            if outcome == FELL:
                assert model.scores(top_of(model, box, low)[None])[0, 0] < 0.0
            assert outcome != HELD or above >= 0.0
    assert FELL in told
    assert OPEN in told


def comb(n_leaves):
    """Make a tree that cuts off one cell of one feature after another."""
    inner = n_leaves - 1
    at = np.arange(inner)
    return Tree(
        feature=np.zeros(2 * inner + 1, dtype=np.int64),
        threshold=np.append(at / inner, np.zeros(n_leaves)),
        left=np.append(inner + at, np.full(n_leaves, -1)),
        right=np.append(np.append(at[1:], 2 * inner), np.full(n_leaves, -1)),
        missing_left=np.zeros(2 * inner + 1, dtype=bool),
        value=np.append(np.zeros(inner), np.arange(n_leaves) - 5.0)[:, None],
    )


@pytest.mark.parametrize(
    ("count", "size", "wanted"),
    [
        (1, MOST_ROWS, FELL),
        (1, MOST_ROWS + 1, OPEN),
        (MOST_LEAVES // 4, 4, FELL),
        (MOST_LEAVES // 4 + 1, 4, OPEN),
        (MOST_LEAVES + 1, 2, OPEN),
    ],
)
def test_what_has_too_many_leaves_is_left_alone(count, size, wanted):
    box = Box(np.full(2, 0.5), np.full(2, -9.0), np.full(2, 9.0))
    model = build([comb(size)] * count, **RULE, base=np.array([0.5]), n_features=2)
    assert halve(model, box)[0] == wanted


def test_what_stands_by_one_unit_is_closed_where_no_feature_is_left_out(brute):
    closed, at_once = [], []
    for seed in range(60):
        trees, width, box = draw(brute, seed)
        if width > 4:
            continue
        model = set_base(trees, width, box, 1.0)
        closed.append(is_closed(model, box))
        at_once.append(is_closed(model, box, most=1))
    # Rounding may hide one unit; parts may run out.
    assert np.mean(closed) > 0.8
    assert np.mean(at_once) < 0.5


def test_what_is_closed_stands_where_features_are_left_out(brute):
    closed = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        trees = grow(brute, rng, width=7, count=12, menu=[-0.5, 0.5])
        box = Box(np.zeros(7), np.full(7, -1.0), np.full(7, 1.0))
        above = rng.uniform(-2000.0, 6000.0)
        model = set_base(trees, 7, box, above)
        if is_closed(model, box):
            assert above >= 0.0
            closed += 1
    assert closed > 5


def test_nothing_is_tried_in_no_parts(brute):
    trees, width, box = draw(brute, 1)
    model = set_base(trees, width, box, 500.0)
    assert is_closed(model, box)
    assert not is_closed(model, box, most=0)


@pytest.mark.parametrize("width", [MOST_FREE, MOST_FREE + 1])
def test_nothing_is_tried_where_many_features_are_free(brute, width):
    rng = np.random.default_rng(0)
    asked = [grow(brute, rng, width=1, count=1, menu=[0.0])[0] for _ in range(4 * width)]
    asked = [
        replace(tree, feature=np.where(tree.left < 0, 0, f % width)) for f, tree in enumerate(asked)
    ]
    model = build(asked, **RULE, base=np.array([1e9]), n_features=width)
    box = Box(np.zeros(width), np.full(width, -1.0), np.full(width, 1.0))
    low, high = box_cells(model, box)
    assert (low < high).all()
    assert is_closed(model, box) == (width == MOST_FREE)
