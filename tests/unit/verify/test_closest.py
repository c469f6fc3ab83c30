import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.verify import Counterexample, Domain, Robust, closest, verify, with_integers

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
