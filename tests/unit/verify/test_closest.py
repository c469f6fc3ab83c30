"""The least radius and the least lead, against every interval of the boxes they speak of."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import ConfigError
from tacit.verify import (
    Budget,
    Counterexample,
    Domain,
    Robust,
    closest,
    margin,
    verify,
    with_integers,
)
from tacit.verify.box import ball

SEEDS = st.integers(0, 2**32 - 1)
WIDE = Domain(-100.0, 100.0)


def draw(brute, seed):
    rng = np.random.default_rng(seed)
    kind = {"sum_type": str(rng.choice(["float32", "float64"])), "most": 12}
    rho = None
    if rng.random() < 0.3:
        model, rho = brute.random_ensemble(rng, task="regress", **kind), 1.0
    else:
        model = brute.random_ensemble(rng, scores=int(rng.integers(1, 4)), **kind)
    x = brute.random_input(rng, model.n_features)
    if rng.random() < 0.2:
        model, x[0] = with_integers(model, [0]), np.rint(x[0])
    return model, x, rho


@given(seed=SEEDS)
@settings(max_examples=400, deadline=None)
def test_the_prediction_falls_at_the_radius_and_not_before(brute, seed):
    model, x, rho = draw(brute, seed)
    found = closest(model, x, rho=rho, domain=WIDE)
    assert found.is_exact
    if np.isinf(found.eps):
        assert isinstance(verify(model, x, np.inf, rho=rho, domain=WIDE), Robust)
        assert found.counterexample is None
        return
    at = verify(model, x, found.eps, rho=rho, domain=WIDE)
    assert isinstance(at, Counterexample)
    assert not brute.is_robust(model, at.box, rho)
    before = verify(model, x, np.nextafter(found.eps, 0.0), rho=rho, domain=WIDE)
    assert isinstance(before, Robust)
    assert brute.is_robust(model, before.box, rho)


@given(seed=SEEDS)
@settings(max_examples=100, deadline=None)
def test_the_counterexample_lies_at_the_radius(brute, seed):
    model, x, rho = draw(brute, seed)
    found = closest(model, x, rho=rho, domain=WIDE)
    if found.counterexample is not None:
        moved = np.abs(found.counterexample.x - x).max()
        assert moved == pytest.approx(found.eps, rel=1e-12, abs=1e-300)


NARROW = Domain(-3.0, 3.0)


def least_lead(brute, model, x, eps):
    """Try every interval."""
    box = ball(model, x, eps, NARROW)
    label = int(model.predict(box.center[None])[0])
    scores = model.scores(brute.all_points(model, box)).astype(np.float64)
    if model.n_scores == 1:
        return ((scores[:, 0] - model.cutoff) * (1 if label else -1)).min()
    rivals = np.delete(scores, label, axis=1)
    return (scores[:, label] - rivals.max(axis=1)).min()


def draw_classes(brute, seed, **kind):
    rng = np.random.default_rng(seed)
    model = brute.random_ensemble(rng, scores=int(rng.integers(1, 4)), **kind)
    return model, brute.random_input(rng, model.n_features), float(rng.uniform(0, 2))


@given(seed=SEEDS)
@settings(max_examples=200, deadline=None)
def test_the_least_lead_is_that_of_brute_force(brute, seed):
    model, x, eps = draw_classes(brute, seed, most=30)
    found = margin(model, x, eps, domain=NARROW)
    assert found.is_exact
    assert found.high == least_lead(brute, model, x, eps)
    assert found.low <= found.high <= found.low + 1e-9
    assert ((found.box.low <= found.x) & (found.x <= found.box.high)).all()


@given(seed=SEEDS, nodes=st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_bounds_hold_whenever_the_budget_ends(brute, seed, nodes):
    model, x, eps = draw_classes(brute, seed, most=40, values=brute.reals)
    found = margin(model, x, eps, domain=NARROW, budget=Budget(nodes=nodes))
    assert found.low <= least_lead(brute, model, x, eps) <= found.high
    assert found.nodes <= nodes


@given(seed=SEEDS)
@settings(max_examples=100, deadline=None)
def test_a_lead_above_zero_says_what_a_certificate_says(brute, seed):
    model, x, eps = draw_classes(brute, seed, most=30, values=brute.reals)
    found = margin(model, x, eps, domain=NARROW)
    verdict = verify(model, x, eps, domain=NARROW)
    if found.low > 0:
        assert isinstance(verdict, Robust)
    if found.high < 0:
        assert not isinstance(verdict, Robust)


def test_the_margin_of_a_regression_is_refused(brute):
    model = brute.random_ensemble(np.random.default_rng(0), task="regress")
    with pytest.raises(ConfigError, match="regression"):
        margin(model, np.zeros(model.n_features), 0.1)
