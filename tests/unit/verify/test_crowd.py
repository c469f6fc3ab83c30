"""Bounds and attacks on forests of several classes, against the leaves that a box reaches."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="tacit-ml[verify] is not installed")

from tacit.verify.box import Domain, ball, box_cells
from tacit.verify.crowd import bound_sides, rush_crowd
from tacit.verify.glance import look, make_glance, sum_center
from tacit.verify.hop import hop
from tacit.verify.jit import compiled
from tacit.verify.reach import reach
from tacit.verify.sides import make_sides
from tacit.verify.solve import make_load, quick_bound
from tacit.verify.witness import place_witness

SEEDS = st.integers(0, 2**32 - 1)
DOMAIN = Domain(-3.0, 3.0)


# Compiled here, and kept on disk, as what is part of other kernels is not by itself.
@compiled
def bound(index, sides, g, low, high):
    count = look(index.paths, g, low, high)
    sum_center(index, g)
    return count, bound_sides(index, sides, g, count, low, high)


@compiled
def hop_once(index, sides, g, count, low, high):
    return count > 0 and hop(index, sides, g, count, low, high)


def draw(brute, seed):
    """Make a model, a box, its cells, and what could change the class at its center."""
    rng = np.random.default_rng(seed)
    model = brute.random_ensemble(rng, scores=3, most=30, values=brute.reals)
    box = ball(model, brute.random_input(rng, model.n_features), rng.uniform(0.1, 2.5), DOMAIN)
    sides = make_sides(model, model.predict(box.center[None])[0], None)
    return model, box, sides, *box_cells(model, box)


def glance_at(model, sides, low, high):
    index = model.index
    # Room for weights, which ensembles of stumps and single leaves may not need.
    crowded = index._replace(paths=index.paths._replace(ends=np.zeros(0, np.int64)))
    g = make_glance(crowded, sides.plus.size)
    g.at[:], g.free[-1] = low, low.size
    g.free[:-1] = np.arange(low.size)
    return g, *bound(index, sides, g, low, high)


@given(seed=SEEDS)
@settings(max_examples=100, deadline=None)
def test_the_bound_is_that_of_the_leaves_in_reach(brute, seed):
    model, _, sides, low, high = draw(brute, seed)
    g, _, n_open = glance_at(model, sides, low, high)
    r = reach(model.index.trees, low, high)
    load = make_load(model.index.trees, model.index.base_units, r)
    has_dead_leaves = asks_twice(model)
    for side in range(sides.plus.size):
        exact = quick_bound(r, load, sides.plus[side], sides.minus[side])
        assert g.bound[side] <= exact
        assert has_dead_leaves or g.bound[side] == exact
    gaps = g.bound - sides.barrier
    assert sorted(gaps[gaps < 0]) == list(gaps[g.order[:n_open]])


def asks_twice(model):
    """Say whether some path asks for a feature twice, so that a leaf may be out of all reach."""
    todo = [(int(root), ()) for root in model.roots]
    while todo:
        node, asked = todo.pop()
        if model.feature[node] < 0:
            continue
        if model.feature[node] in asked:
            return True
        path = (*asked, model.feature[node])
        todo += [(int(model.left[node]), path), (int(model.right[node]), path)]
    return False


@given(seed=SEEDS)
@settings(max_examples=150, deadline=None)
def test_an_attack_that_succeeds_replays_and_one_that_fails_changes_nothing(brute, seed):
    model, box, sides, low, high = draw(brute, seed)
    g, count, _ = glance_at(model, sides, low, high)
    for side in range(sides.plus.size):
        before = low.copy(), high.copy()
        if rush_crowd(model.index, sides, side, g, count, low, high):
            x = place_witness(model, box, low, high)
            assert ((box.low <= x) & (x <= box.high)).all()
            assert model.predict(x[None])[0] != sides.label
            return
        assert (low == before[0]).all()
        assert (high == before[1]).all()


@given(seed=SEEDS)
@settings(max_examples=150, deadline=None)
def test_a_hop_that_succeeds_replays_and_one_that_fails_changes_nothing(brute, seed):
    model, box, sides, low, high = draw(brute, seed)
    g, count, _ = glance_at(model, sides, low, high)
    before = low.copy(), high.copy()
    found = hop_once(model.index, sides, g, count, low, high)
    assert (g.vote == 0).all()
    if found:
        x = place_witness(model, box, low, high)
        assert ((box.low <= x) & (x <= box.high)).all()
        assert model.predict(x[None])[0] != sides.label
    else:
        assert (low == before[0]).all()
        assert (high == before[1]).all()


def test_most_boxes_that_can_be_attacked_fall_to_a_hop(brute):
    hops, fallen = 0, 0
    for seed in range(200):
        model, _, sides, low, high = draw(brute, seed)
        g, count, n_open = glance_at(model, sides, low, high)
        cells = low.copy(), high.copy()
        if hop_once(model.index, sides, g, count, *cells):
            hops, fallen = hops + 1, fallen + 1
            continue
        sides_open = g.order[:n_open].copy()
        fallen += any(
            rush_crowd(model.index, sides, side, g, count, low, high) for side in sides_open
        )
    assert fallen > 50
    assert hops > fallen / 2
