"""Bounds and attacks where a leaf pulls one number, against brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="tacit-ml[verify] is not installed")

from tacit.verify import Budget, Certificate, Counterexample, Domain, Unknown, verify, verify_box
from tacit.verify.box import Box, ball, box_cells
from tacit.verify.glance import FAR, SOME_FELL, look, make_glance, mark_groups, sum_center
from tacit.verify.leaf import pair
from tacit.verify.pull import _bound, _bound_roughly, hold_finely, hold_roughly, pull_sides
from tacit.verify.rows import Boxes
from tacit.verify.sides import make_sides
from tacit.verify.stride import hold_keys, stride
from tacit.verify.witness import place_witness

SEEDS = st.integers(0, 2**32 - 1)
DOMAIN = Domain(-3.0, 3.0)
RULES = {
    "one score": {"scores": 1},
    "one score, float32": {"scores": 1, "sum_type": "float32"},
    "two scores": {"scores": 2},
    "boosted": {"scores": 4},
    "boosted, float32": {"scores": 4, "sum_type": "float32"},
    "boosted, near ties": {"scores": 3, "guard": 0.25},
}


def draw(brute, seed, name, most):
    """Make a model and a box; rules of several classes are boosted."""
    rng = np.random.default_rng(seed)
    make = brute.random_boosted if name.startswith("boosted") else brute.random_ensemble
    model = make(rng, most=most, **RULES[name])
    box = ball(model, brute.random_input(rng, model.n_features), rng.uniform(0.1, 2.5), DOMAIN)
    return model, box


@pytest.mark.parametrize("name", RULES)
@given(seed=SEEDS)
@settings(max_examples=100, deadline=None)
def test_a_side_that_falls_replays_and_what_is_closed_is_robust(brute, name, seed):
    model, box = draw(brute, seed, name, 20)
    sides = make_sides(model, model.predict(box.center[None])[0], None)
    low, high = box_cells(model, box)
    before = low.copy(), high.copy()
    g = make_glance(model.index, sides.plus.size)
    g.at[:] = box_cells(model, Box(box.center, box.center, box.center))[0]
    free = np.flatnonzero(low < high)
    g.free[: free.size], g.free[-1] = free, free.size
    look(model.index.paths, g, low, high)
    sum_center(model.index, g)
    left = pull_sides(model.index, sides, g, low, high)
    if left == SOME_FELL:
        x = place_witness(model, box, low, high)
        assert ((box.low <= x) & (x <= box.high)).all()
        assert model.predict(x[None])[0] != sides.label
        return
    assert (low == before[0]).all()
    assert (high == before[1]).all()
    if left == 0:
        assert brute.is_robust(model, box)
    assert len(set(g.order[:left].tolist())) == left


@pytest.mark.parametrize("name", RULES)
@given(seed=SEEDS)
@settings(max_examples=100, deadline=None)
def test_verdicts_are_those_of_brute_force(brute, name, seed):
    model, box = draw(brute, seed, name, 12)
    rng = np.random.default_rng(seed + 1)
    eps = np.maximum(box.center - box.low, box.high - box.center)
    told = verify(
        model, box.center, eps, domain=DOMAIN, budget=Budget(nodes=int(rng.integers(1, 400)))
    )
    if isinstance(told, Certificate):
        assert brute.is_robust(model, told.box)
    if isinstance(told, Counterexample):
        assert not brute.is_robust(model, told.box)


def test_attacks_alone_find_most_counterexamples_of_small_models(brute):
    found = []
    for seed in range(150):
        model, box = draw(brute, seed, "boosted", 20)
        if brute.is_robust(model, box):
            continue
        sides = make_sides(model, model.predict(box.center[None])[0], None)
        low, high = box_cells(model, box)
        g = make_glance(model.index, sides.plus.size)
        g.at[:] = low
        free = np.flatnonzero(low < high)
        g.free[: free.size], g.free[-1] = free, free.size
        look(model.index.paths, g, low, high)
        sum_center(model.index, g)
        found.append(pull_sides(model.index, sides, g, low, high) == SOME_FELL)
    assert np.mean(found) > 0.8


@pytest.mark.parametrize("name", RULES)
@given(seed=SEEDS)
@settings(max_examples=60, deadline=None)
def test_a_box_beside_its_center_is_decided_like_brute_force_says(brute, name, seed):
    model, box = draw(brute, seed, name, 12)
    rng = np.random.default_rng(seed + 1)
    ends = np.sort(rng.choice(brute.MENU, (2, model.n_features)) + rng.choice([0.0, 0.1]), axis=0)
    told = verify_box(model, Box(box.center, *ends))
    if not isinstance(told, Unknown):
        assert isinstance(told, Certificate) == brute.is_robust(model, told.box)


@pytest.mark.parametrize("name", ["one score", "one score, float32", "two scores"])
@given(seed=SEEDS)
@settings(max_examples=100, deadline=None)
def test_least_leaves_found_by_thresholds_are_those_found_by_cells(brute, name, seed):
    model, box = draw(brute, seed, name, 20)
    # Ends that lie on thresholds.
    box = ball(model, box.center, np.random.default_rng(seed).choice([0.5, 1.0, 1.5]), DOMAIN)
    index, sides = model.index, make_sides(model, model.predict(box.center[None])[0], None)
    g, slow = make_glance(index, 1), make_glance(index, 1)
    rows = (end[None] for end in (box.center, box.low, box.high))
    whole, is_single = np.zeros(model.n_features, dtype=bool), model.input_type == "float32"
    hold_keys(index, Boxes(*rows, np.zeros(1, np.int64), whole, is_single), 0, g)
    mark_groups(index.paths, g, stride(index, g))
    sum_center(index, g)
    if hold_roughly(index, sides, g) or hold_finely(index, sides, g):
        assert brute.is_robust(model, box)
        return
    low, high = box_cells(model, box)
    slow.at[:] = box_cells(model, Box(box.center, box.center, box.center))[0]
    count = look(index.paths, slow, low, high)
    sum_center(index, slow)
    _, _, column = pair(index.paths, sides, 0)
    rough = _bound_roughly(index.paths, slow, 0, column)
    bound = _bound(index.paths, slow, 0, column, low, high, rough, FAR)
    if g.is_fine[0]:
        some = slow.undecided[:count]
        assert (g.least[some] == slow.least[some]).all()
        assert g.bound[0] - bound == _offset(index, sides)


def _offset(index, sides):
    """Return what stands between a bound and the gap: the barrier, less what is constant."""
    plus, minus = sides.plus[0], sides.minus[0]
    base = sum(sign * index.base_units[at] for at, sign in ((plus, 1), (minus, -1)) if at >= 0)
    return base - sides.barrier[0]
