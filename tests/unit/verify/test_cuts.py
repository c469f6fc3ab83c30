"""Boxes that are cut in two: what is closed in this way must be robust."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="tacit-ml[verify] is not installed")

from tacit.verify.box import Domain, ball, box_cells
from tacit.verify.cuts import cut_box
from tacit.verify.glance import FAR, look, make_glance, sum_center, weigh
from tacit.verify.leaf import NOBODY, pair
from tacit.verify.pull import _bound, _bound_roughly
from tacit.verify.sides import make_sides

SEEDS = st.integers(0, 2**32 - 1)


def cut(brute, seed, scores, most):
    """Cut the box of the only side; return the model, the box, whether it is open and closed."""
    rng = np.random.default_rng(seed)
    model = brute.random_ensemble(rng, scores=scores, most=most)
    x = brute.random_input(rng, model.n_features)
    box = ball(model, x, rng.uniform(0.1, 2.5), Domain(-3.0, 3.0))
    sides = make_sides(model, model.predict(box.center[None])[0], None)
    low, high = box_cells(model, box)
    before = low.copy(), high.copy()
    index, g = model.index, make_glance(model.index, sides.plus.size)
    g.at[:] = low
    free = np.flatnonzero(low < high)
    g.free[: free.size], g.free[-1] = free, free.size
    look(index.paths, g, low, high)
    sum_center(index, g)
    _, _, column = pair(index.paths, sides, 0)
    head = _bound_roughly(index.paths, g, 0, column)
    head = _bound(index.paths, g, 0, column, low, high, head, FAR)
    base = weigh(index.base_units, sides.plus[0], sides.minus[0])
    gap = head + base - sides.barrier[0]
    if gap >= 0:
        return model, box, False, True
    is_closed = cut_box(index, g, 0, NOBODY, column, gap, low, high)
    assert (low == before[0]).all()
    assert (high == before[1]).all()
    return model, box, True, is_closed


@pytest.mark.parametrize("scores", [1, 2])
@given(seed=SEEDS)
@settings(max_examples=100, deadline=None)
def test_what_is_closed_is_robust(brute, scores, seed):
    model, box, _, is_closed = cut(brute, seed, scores, 20)
    if is_closed:
        assert brute.is_robust(model, box)


def test_cuts_close_boxes_that_the_plain_bound_leaves_open_and_only_robust_ones(brute):
    closed = 0
    for seed in range(3000):
        model, box, is_open, is_closed = cut(brute, seed, 1 + seed % 2, 20)
        if is_open and is_closed:
            closed += 1
            assert brute.is_robust(model, box)
    assert closed > 100
