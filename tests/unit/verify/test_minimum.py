import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="tacit-ml[verify] is not installed")

from tacit.errors import ConfigError
from tacit.verify import Domain, robust_features, smallest_features
from tacit.verify.box import Box, ball

WIDE = Domain(-3.0, 3.0)


def holds(brute, model, x, eps, kept):
    near, far = ball(model, x, eps, WIDE), ball(model, x, np.inf, WIDE)
    is_kept = np.isin(np.arange(model.n_features), list(kept))
    low, high = np.where(is_kept, near.low, far.low), np.where(is_kept, near.high, far.high)
    return brute.is_robust(model, Box(near.center, low, high))


@given(seed=st.integers(0, 2**32 - 1))
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
