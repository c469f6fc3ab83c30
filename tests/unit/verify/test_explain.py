"""Robust feature sets, minimal and smallest, against every interval of the boxes they speak of."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import ConfigError
from tacit.verify import (
    Budget,
    Domain,
    Outcome,
    attack,
    importance,
    oracle,
    robust_features,
    smallest_features,
)
from tacit.verify.box import Box, ball

SEEDS = st.integers(0, 2**32 - 1)


def holds(brute, model, x, eps, kept):
    """Try every interval with the kept features near x and the others anywhere."""
    near, far = ball(model, x, eps, WIDE), ball(model, x, np.inf, WIDE)
    is_kept = np.isin(np.arange(model.n_features), list(kept))
    low, high = np.where(is_kept, near.low, far.low), np.where(is_kept, near.high, far.high)
    return brute.is_robust(model, Box(near.center, low, high))


@given(seed=SEEDS)
@settings(max_examples=200, deadline=None)
def test_a_robust_set_holds_the_prediction_and_none_of_it_can_be_freed(brute, seed):
    check_set(brute, seed, most=12)


def check_set(brute, seed, most, eps=0.3, **kind):
    rng = np.random.default_rng(seed)
    model = brute.random_ensemble(rng, scores=int(rng.integers(1, 4)), most=most, **kind)
    x = brute.random_input(rng, model.n_features)
    found = robust_features(model, x, eps, domain=WIDE)
    if found is None:
        assert not holds(brute, model, x, eps, range(model.n_features))
        return
    assert found.is_minimal
    assert holds(brute, model, x, eps, found.features)
    for feature in found.features:
        assert not holds(brute, model, x, eps, set(found.features) - {feature})


@given(seed=SEEDS, eps=st.sampled_from([0.0, 0.5, 1.0, 6.0, 100.0]))
@settings(max_examples=150, deadline=None)
def test_sets_are_minimal_whether_nothing_or_everything_lies_within_eps(brute, seed, eps):
    check_set(brute, seed, most=25, eps=eps)


@given(seed=SEEDS)
@settings(max_examples=100, deadline=None)
def test_sets_are_minimal_where_no_sum_is_exact(brute, seed):
    check_set(brute, seed, most=25, values=brute.reals)


def test_with_nothing_within_eps_a_set_always_exists(brute):
    rng = np.random.default_rng(3)
    for _ in range(50):
        model = brute.random_ensemble(rng, most=12)
        x = brute.random_input(rng, model.n_features)
        assert robust_features(model, x, 0.0, domain=WIDE) is not None


def test_where_eps_is_as_wide_as_the_domain_the_set_is_empty_or_there_is_none(brute):
    rng = np.random.default_rng(5)
    empty = 0
    for _ in range(50):
        model = brute.random_ensemble(rng, most=4)
        x = brute.random_input(rng, model.n_features)
        found = robust_features(model, x, 6.0, domain=WIDE)
        assert found is None or found.features == ()
        empty += found is not None
    assert 0 < empty < 50


@pytest.mark.slow
@given(seed=SEEDS)
@settings(max_examples=150, deadline=None)
def test_sets_stay_minimal_when_every_question_is_answered_from_what_is_proved(brute, seed):
    many, few = oracle.MANY_NODES, oracle.FEW_NODES
    try:
        oracle.MANY_NODES = oracle.FEW_NODES = 1
        check_set(brute, seed, most=60)
    finally:
        oracle.MANY_NODES, oracle.FEW_NODES = many, few


@given(seed=SEEDS)
@settings(max_examples=100, deadline=None)
def test_a_way_changes_the_prediction_with_no_other_feature_free(brute, seed):
    rng = np.random.default_rng(seed)
    model = brute.random_ensemble(rng, scores=int(rng.integers(1, 4)), most=30)
    x = brute.random_input(rng, model.n_features)
    near, far = ball(model, x, 0.3, WIDE), ball(model, x, np.inf, WIDE)
    asked = oracle.ExplanationOracle(model, near, far, None)
    everything = np.ones(model.n_features, dtype=bool)
    outcome, way = asked.ask(everything, np.arange(model.n_features), Budget(seconds=10.0))
    kept = np.flatnonzero(~way)
    if outcome == Outcome.COUNTEREXAMPLE:
        assert not holds(brute, model, x, 0.3, kept)
    else:
        assert holds(brute, model, x, 0.3, ())


def draw_rows(brute):
    rng = np.random.default_rng(11)
    model = brute.random_ensemble(rng, scores=3, most=12)
    return model, np.array([brute.random_input(rng, model.n_features) for _ in range(30)])


def test_importance_is_the_share_of_robust_samples_whose_set_has_the_feature(brute):
    model, rows = draw_rows(brute)
    found = importance(model, rows, 0.2, domain=WIDE)
    labels = model.predict(rows)
    for label in range(3):
        sets = [robust_features(model, row, 0.2, domain=WIDE) for row in rows[labels == label]]
        robust = [s.features for s in sets if s is not None]
        assert found.samples[label] == len(sets)
        assert found.robust[label] == len(robust)
        for feature in range(model.n_features):
            share = np.mean([feature in s for s in robust]) if robust else np.nan
            assert found.share[label, feature] == pytest.approx(share, nan_ok=True)


def test_importance_of_a_regression_is_refused(brute):
    model = brute.random_ensemble(np.random.default_rng(0), task="regress")
    with pytest.raises(ConfigError, match="per class"):
        importance(model, np.zeros((1, model.n_features)), 0.1)


@given(seed=SEEDS)
@settings(max_examples=100, deadline=None)
def test_an_attack_changes_only_the_features_it_may(brute, seed):
    rng = np.random.default_rng(seed)
    model = brute.random_ensemble(rng, most=12)
    x = brute.random_input(rng, model.n_features)
    found = attack(model, x, 2.0, features=[0], domain=WIDE)
    if found is not None:
        assert (found.x[1:] == x[1:]).all()
        assert model.predict(found.x) != model.predict(x)


WIDE = Domain(-3.0, 3.0)


@given(seed=SEEDS)
@settings(max_examples=200, deadline=None)
def test_no_smaller_set_of_features_holds_the_prediction(brute, seed):
    rng = np.random.default_rng(seed)
    model = brute.random_ensemble(rng, scores=int(rng.integers(1, 4)), most=12)
    x = brute.random_input(rng, model.n_features)
    found = smallest_features(model, x, 0.3, domain=WIDE)
    if found is None:
        assert robust_features(model, x, 0.3, domain=WIDE) is None
        return
    assert found.is_smallest
    assert holds(brute, model, x, 0.3, found.features)
    smaller = itertools.combinations(range(model.n_features), max(0, len(found.features) - 1))
    if found.features:
        assert not any(holds(brute, model, x, 0.3, kept) for kept in smaller)


def test_giving_up_early_still_gives_a_set_that_holds_and_a_bound(brute):
    rng = np.random.default_rng(1)
    for _ in range(50):
        model = brute.random_ensemble(rng, most=12)
        x = brute.random_input(rng, model.n_features)
        found = smallest_features(model, x, 0.3, domain=WIDE, most_questions=1)
        if found is not None:
            assert holds(brute, model, x, 0.3, found.features)
            assert found.at_least <= len(found.features)


def test_no_questions_at_all_are_refused(brute):
    model = brute.random_ensemble(np.random.default_rng(0))
    with pytest.raises(ConfigError, match="most_questions"):
        smallest_features(model, np.zeros(model.n_features), 0.1, most_questions=0)
