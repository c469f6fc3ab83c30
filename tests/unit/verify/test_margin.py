import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import ConfigError
from tacit.verify import Budget, Domain, Robust, margin, verify
from tacit.verify.box import ball

SEEDS = st.integers(0, 2**32 - 1)
WIDE = Domain(-3.0, 3.0)


def least_lead(brute, model, x, eps):
    """Try every interval."""
    box = ball(model, x, eps, WIDE)
    label = int(model.predict(box.center[None])[0])
    scores = model.scores(brute.all_points(model, box)).astype(np.float64)
    if model.n_scores == 1:
        return ((scores[:, 0] - model.cutoff) * (1 if label else -1)).min()
    rivals = np.delete(scores, label, axis=1)
    return (scores[:, label] - rivals.max(axis=1)).min()


def draw(brute, seed, **kind):
    rng = np.random.default_rng(seed)
    model = brute.random_ensemble(rng, scores=int(rng.integers(1, 4)), **kind)
    return model, brute.random_input(rng, model.n_features), float(rng.uniform(0, 2))


@given(seed=SEEDS)
@settings(max_examples=200, deadline=None)
def test_the_least_lead_is_that_of_brute_force(brute, seed):
    model, x, eps = draw(brute, seed, most=30)
    found = margin(model, x, eps, domain=WIDE)
    assert found.is_exact
    assert found.high == least_lead(brute, model, x, eps)
    assert found.low <= found.high <= found.low + 1e-9
    assert ((found.box.low <= found.x) & (found.x <= found.box.high)).all()


@given(seed=SEEDS, nodes=st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_bounds_hold_whenever_the_budget_ends(brute, seed, nodes):
    model, x, eps = draw(brute, seed, most=40, values=brute.reals)
    found = margin(model, x, eps, domain=WIDE, budget=Budget(nodes=nodes))
    assert found.low <= least_lead(brute, model, x, eps) <= found.high
    assert found.nodes <= nodes


@given(seed=SEEDS)
@settings(max_examples=100, deadline=None)
def test_a_lead_above_zero_says_what_a_certificate_says(brute, seed):
    model, x, eps = draw(brute, seed, most=30, values=brute.reals)
    found = margin(model, x, eps, domain=WIDE)
    verdict = verify(model, x, eps, domain=WIDE)
    if found.low > 0:
        assert isinstance(verdict, Robust)
    if found.high < 0:
        assert not isinstance(verdict, Robust)


def test_the_margin_of_a_regression_is_refused(brute):
    model = brute.random_ensemble(np.random.default_rng(0), task="regress")
    with pytest.raises(ConfigError, match="regression"):
        margin(model, np.zeros(model.n_features), 0.1)
