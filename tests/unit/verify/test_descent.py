"""Coordinate descent on the trees: what it finds must be true."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="tacit-ml[verify] is not installed")

from tacit.verify.box import Domain, ball, box_cells
from tacit.verify.descent import slide
from tacit.verify.glance import look, make_glance
from tacit.verify.sides import make_sides
from tacit.verify.witness import place_witness

SEEDS = st.integers(0, 2**32 - 1)


def attack(brute, seed, scores):
    """Descend on every side from the center; return the model, box, point and whether it fell."""
    rng = np.random.default_rng(seed)
    model = brute.random_ensemble(rng, scores=scores, most=30)
    x = brute.random_input(rng, model.n_features)
    box = ball(model, x, rng.uniform(0.1, 2.5), Domain(-3.0, 3.0))
    sides = make_sides(model, model.predict(box.center[None])[0], None)
    low, high = box_cells(model, box)
    g = make_glance(model.index, sides.plus.size)
    free = np.flatnonzero(low < high)
    g.free[: free.size], g.free[-1] = free, free.size
    look(model.index.paths, g, low, high)
    for side in range(sides.plus.size):
        g.at[:], g.low[:], g.high[:] = low, low, high
        before = low.copy(), high.copy()
        if slide(model.index, sides, side, g, -(1 << 50), low, high):
            return model, box, place_witness(model, box, low, high)
        assert (low == before[0]).all()
        assert (high == before[1]).all()
    return model, box, None


@pytest.mark.parametrize("scores", [1, 3])
@given(seed=SEEDS)
@settings(max_examples=150, deadline=None)
def test_a_side_that_falls_replays(brute, scores, seed):
    model, box, x = attack(brute, seed, scores)
    if x is not None:
        assert ((box.low <= x) & (x <= box.high)).all()
        assert model.predict(x[None])[0] != model.predict(box.center[None])[0]


def test_most_counterexamples_of_small_models_are_found(brute):
    told = [attack(brute, seed, 1) for seed in range(200)]
    fragile = [x is not None for model, box, x in told if not brute.is_robust(model, box)]
    assert np.mean(fragile) > 0.8
