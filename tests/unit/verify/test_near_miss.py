import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.verify import Outcome
from tacit.verify.box import Domain, ball, box_intervals
from tacit.verify.incremental import IncrementalVerifier
from tacit.verify.kernels.attack.neighbours import find_others, judge_point
from tacit.verify.objectives import make_objectives

SEEDS = st.integers(0, 2**32 - 1)
WIDE = Domain(-3.0, 3.0)


def some_question(brute, seed):
    """Draw a model, an input, a small box and a larger one."""
    rng = np.random.default_rng(seed)
    model = brute.random_ensemble(rng, most=30, scores=int(rng.integers(1, 4)))
    x = ball(model, brute.random_input(rng, model.n_features), 0.0, WIDE).center
    objectives = make_objectives(model, model.predict(x[None])[0], None)
    boxes = (box_intervals(model, ball(model, x, size, WIDE)) for size in (0.0, 0.3, 2.0))
    return model, objectives, *boxes


@given(seed=SEEDS)
@settings(max_examples=150, deadline=None)
def test_after_a_counterexample_a_point_of_the_smaller_box_is_kept(brute, seed):
    model, objectives, home, inside, (low, high) = some_question(brute, seed)
    held = IncrementalVerifier(model, objectives, home[0])
    for _ in range(3):
        outcome, _, intervals = held.extend(low, high, None, inside=inside)
        if outcome != Outcome.COUNTEREXAMPLE:
            return
        assert (
            judge_point(model.index.trees, model.index.rule, objectives, intervals)
            == Outcome.COUNTEREXAMPLE
        )
        assert ((low <= intervals) & (intervals <= high)).all()
        assert ((inside[0] <= held.near_miss) & (held.near_miss <= inside[1])).all()


@given(seed=SEEDS)
@settings(max_examples=150, deadline=None)
def test_others_are_exactly_the_features_that_cross_the_nearest_barrier_alone(brute, seed):
    model, objectives, home, _, (low, high) = some_question(brute, seed)
    intervals, features = home[0].copy(), np.arange(model.n_features)
    found = find_others(model.index, objectives, intervals, low, high, features)
    assert (intervals == home[0]).all()
    for f in features:
        verdicts = []
        for interval in range(low[f], high[f] + 1):
            other = intervals.copy()
            other[f] = interval
            verdicts.append(judge_point(model.index.trees, model.index.rule, objectives, other))
        if found[f]:
            assert Outcome.COUNTEREXAMPLE in verdicts
        elif objectives.plus.size == 1:
            assert Outcome.COUNTEREXAMPLE not in verdicts
