import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.verify.box import Domain, ball, box_cells
from tacit.verify.incremental import Hold
from tacit.verify.kernels.attack.neighbours import find_others, look
from tacit.verify.kernels.presolve.scores import CHANGED, FOUND
from tacit.verify.objectives import make_sides

SEEDS = st.integers(0, 2**32 - 1)
WIDE = Domain(-3.0, 3.0)


def some_question(brute, seed):
    """Draw a model, an input, a small box and a larger one."""
    rng = np.random.default_rng(seed)
    model = brute.random_ensemble(rng, most=30, scores=int(rng.integers(1, 4)))
    x = ball(model, brute.random_input(rng, model.n_features), 0.0, WIDE).center
    sides = make_sides(model, model.predict(x[None])[0], None)
    boxes = (box_cells(model, ball(model, x, size, WIDE)) for size in (0.0, 0.3, 2.0))
    return model, sides, *boxes


@given(seed=SEEDS)
@settings(max_examples=150, deadline=None)
def test_after_a_counterexample_a_point_of_the_smaller_box_is_kept(brute, seed):
    model, sides, home, inside, (low, high) = some_question(brute, seed)
    held = Hold(model, sides, home[0])
    for _ in range(3):  # the second time from the point that was kept
        outcome, _, cells = held.widen(low, high, None, inside=inside)
        if outcome != FOUND:
            return
        assert look(model.index.trees, model.index.rule, sides, cells) == CHANGED
        assert ((low <= cells) & (cells <= high)).all()
        assert ((inside[0] <= held.near_miss) & (held.near_miss <= inside[1])).all()


@given(seed=SEEDS)
@settings(max_examples=150, deadline=None)
def test_others_are_exactly_the_features_that_cross_the_nearest_barrier_alone(brute, seed):
    model, sides, home, _, (low, high) = some_question(brute, seed)
    cells, features = home[0].copy(), np.arange(model.n_features)
    found = find_others(model.index, sides, cells, low, high, features)
    assert (cells == home[0]).all()
    for f in features:
        verdicts = []
        for cell in range(low[f], high[f] + 1):
            other = cells.copy()
            other[f] = cell
            verdicts.append(look(model.index.trees, model.index.rule, sides, other))
        if found[f]:
            assert CHANGED in verdicts
        elif sides.plus.size == 1:
            assert CHANGED not in verdicts
