"""What the oracle of explanations keeps of a question for the next one, against brute force."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.verify import Outcome, oracle
from tacit.verify.box import Box, Domain, ball, box_intervals
from tacit.verify.kernels.attack.neighbours import find_others, judge_point
from tacit.verify.objectives import make_objectives
from tacit.verify.oracle import IncrementalVerifier

SEEDS = st.integers(0, 2**32 - 1)
WIDE = Domain(-3.0, 3.0)


def some_boxes(rng, model, x, count, *, grow):
    """Draw boxes around x; each holds the one before it if they grow."""
    low, high = x.copy(), x.copy()
    for _ in range(count):
        reach = np.where(rng.random((2, x.size)) < 0.5, rng.uniform(0, 2, (2, x.size)), 0.0)
        if not grow:
            low, high = x.copy(), x.copy()
        low, high = np.maximum(low - reach[0], -3.0), np.minimum(high + reach[1], 3.0)
        yield Box(x, low.copy(), high.copy())


def check_boxes(brute, seed, **kind):
    rng = np.random.default_rng(seed)
    grow = bool(rng.integers(2))
    model = brute.random_ensemble(rng, **kind)
    x = ball(model, brute.random_input(rng, model.n_features), 0.0, WIDE).center
    objectives = make_objectives(model, model.predict(x[None])[0], None)
    home = box_intervals(model, Box(x, x, x))[0]
    held = IncrementalVerifier(model, objectives, home)
    for box in some_boxes(rng, model, x, 6, grow=grow):
        low, high = box_intervals(model, box)
        outcome, _, intervals = held.extend(low, high, None)
        assert outcome == (
            Outcome.ROBUST if brute.is_robust(model, box) else Outcome.COUNTEREXAMPLE
        )
        if outcome == Outcome.COUNTEREXAMPLE:
            assert ((low <= intervals) & (intervals <= high)).all()
            assert (
                judge_point(model.index.trees, model.index.rule, objectives, intervals)
                == Outcome.COUNTEREXAMPLE
            )


@given(seed=SEEDS)
@settings(max_examples=200, deadline=None)
def test_what_is_told_from_an_earlier_proof_is_what_brute_force_tells(brute, seed):
    check_boxes(brute, seed, most=40)


@given(seed=SEEDS)
@settings(max_examples=100, deadline=None)
def test_every_rival_class_is_ruled_out_from_its_own_cover(brute, seed):
    check_boxes(brute, seed, most=30, scores=3)


@given(seed=SEEDS)
@settings(max_examples=50, deadline=None)
def test_sums_that_are_not_exact_are_told_as_by_brute_force(brute, seed):
    check_boxes(brute, seed, most=20, values=brute.reals)


def hard_question(brute):
    """Find a box that one look does not decide."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        model = brute.random_ensemble(rng, most=60)
        x = brute.random_input(rng, model.n_features)
        box = ball(model, x, 1.5, WIDE)
        objectives = make_objectives(model, model.predict(x[None])[0], None)
        intervals = box_intervals(model, box)
        _, nodes, _ = IncrementalVerifier(
            model, objectives, box_intervals(model, Box(x, x, x))[0]
        ).extend(*intervals, None)
        if nodes > 2:
            return model, objectives, intervals, box_intervals(model, Box(x, x, x))[0]
    raise AssertionError("every question was easy")


def test_a_budget_that_ends_leaves_what_was_proved_as_it_was(brute):
    model, objectives, (low, high), home = hard_question(brute)
    held = IncrementalVerifier(model, objectives, home)
    assert held.extend(home.copy(), home.copy(), None)[0] == Outcome.ROBUST
    assert held.extend(low, high, 1)[0] == Outcome.UNDECIDED
    assert held.extend(home.copy(), home.copy(), 1)[0] == Outcome.ROBUST
    assert held.extend(low, high, None)[0] in (Outcome.ROBUST, Outcome.COUNTEREXAMPLE)


def test_a_cover_that_would_grow_too_large_is_given_up(brute, monkeypatch):
    model, objectives, (low, high), home = hard_question(brute)
    monkeypatch.setattr(oracle, "MOST_WORDS", 1)
    assert (
        IncrementalVerifier(model, objectives, home).extend(low, high, None)[0] == Outcome.UNDECIDED
    )


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
