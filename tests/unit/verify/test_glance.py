"""What one walk through the trees says, against the leaves that a box reaches."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="tacit-ml[verify] is not installed")

from tacit.verify.box import Domain, ball, box_cells
from tacit.verify.glance import look, make_glance, tally
from tacit.verify.kernel import add_leaves
from tacit.verify.reach import reach, reach_open

SEEDS = st.integers(0, 2**32 - 1)
DOMAIN = Domain(-3.0, 3.0)
KINDS = ["one", "two", "several", "boosted", "boosted float32"]


def draw(brute, seed, kind):
    """Make a model and look at a box: the model, its cells and what was seen."""
    rng = np.random.default_rng(seed)
    if kind.startswith("boosted"):
        sum_type = "float32" if kind.endswith("32") else "float64"
        model = brute.random_boosted(rng, scores=3, most=30, sum_type=sum_type)
    else:
        scores = 1 + ["one", "two", "several"].index(kind)
        model = brute.random_ensemble(rng, scores=scores, most=30, values=brute.reals)
    box = ball(model, brute.random_input(rng, model.n_features), rng.uniform(0.1, 2.5), DOMAIN)
    low, high = box_cells(model, box)
    g = make_glance(model.index, 2)
    g.at[:] = low
    return model, low, high, g, look(model.index.paths, g, low, high)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=SEEDS)
@settings(max_examples=60, deadline=None)
def test_trees_that_are_decided_reach_one_leaf_and_the_others_are_listed(brute, kind, seed):
    model, low, high, g, count = draw(brute, seed, kind)
    trees, order = model.index.trees, model.index.paths.order
    r = reach(trees, low, high)
    undecided = set(order[g.undecided[:count]].tolist())
    for at, tree in enumerate(order):
        if tree not in undecided:
            assert r.fixed_leaf[tree] == g.reached[at]
    assert set(r.tree_id.tolist()) <= undecided
    known = np.full(order.size, -1, np.int32)
    known[order] = g.reached
    known[list(undecided)] = -1
    for one, other in zip(r, reach_open(trees, known, low, high), strict=True):
        assert (one == other).all()


@pytest.mark.parametrize("kind", KINDS)
@given(seed=SEEDS)
@settings(max_examples=60, deadline=None)
def test_scores_are_the_sums_of_the_library(brute, kind, seed):
    model, _, _, g, _ = draw(brute, seed, kind)
    index = model.index
    tally(index, g, g.reached)
    leaves, want = np.empty_like(g.reached), np.empty(model.n_scores)
    leaves[index.paths.order] = g.reached
    add_leaves(index.trees, index.rule, leaves, want)
    assert (g.scores == want).all()
