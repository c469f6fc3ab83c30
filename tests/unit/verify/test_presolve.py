"""The small search against brute force, for every way in which leaves can pull scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.verify import (
    Budget,
    Counterexample,
    Domain,
    Outcome,
    Robust,
    Unknown,
    robustness,
    verify,
    verify_box,
)
from tacit.verify.box import Box, ball, box_intervals, place_witness
from tacit.verify.kernels.presolve.presolve import decide_box
from tacit.verify.kernels.presolve.workspace import make_workspace, pick_model
from tacit.verify.objectives import make_objectives

SEEDS = st.integers(0, 2**32 - 1)
DOMAIN = Domain(-3.0, 3.0)
RULES = {
    "one score": {"scores": 1},
    "one score, float32": {"scores": 1, "sum_type": "float32"},
    "two scores": {"scores": 2},
    "several scores": {"scores": 4},
    "boosted": {"scores": 4},
    "boosted, float32": {"scores": 4, "sum_type": "float32"},
    "boosted, near ties": {"scores": 3, "guard": 0.25},
    "regression": {"task": "regress"},
}


def draw(brute, seed, name, most):
    """Make a model, a box, and how far a regression may move."""
    rng = np.random.default_rng(seed)
    make = brute.random_boosted if name.startswith("boosted") else brute.random_ensemble
    model = make(rng, most=most, **RULES[name])
    box = ball(model, brute.random_input(rng, model.n_features), rng.uniform(0.1, 2.5), DOMAIN)
    return model, box, 1.0 if name == "regression" else None


def decide(model, box, rho, most):
    """Ask the small search alone; return what it says, and the intervals."""
    objectives = make_objectives(model, model.predict(box.center[None])[0], rho)
    low, high = box_intervals(model, box)
    workspace = make_workspace(model.index, objectives.plus.size)
    return decide_box(pick_model(model.index), workspace, objectives, low, high, most), low, high


@pytest.mark.parametrize("name", RULES)
@given(seed=SEEDS, most=st.sampled_from([1, 4, 32, 1000]))
@settings(max_examples=100, deadline=None)
def test_what_falls_replays_and_what_is_proved_is_robust(brute, name, seed, most):
    model, box, rho = draw(brute, seed, name, 20)
    before = box_intervals(model, box)
    outcome, low, high = decide(model, box, rho, most)
    if outcome == Outcome.COUNTEREXAMPLE:
        x = place_witness(model, box, low, high)
        assert ((box.low <= x) & (x <= box.high)).all()
        there, here = model.predict(np.stack([x, box.center]))
        assert there != here if rho is None else abs(there - here) > rho
        return
    assert (low == before[0]).all()
    assert (high == before[1]).all()
    assert outcome == Outcome.UNDECIDED or brute.is_robust(model, box, rho)


@pytest.mark.parametrize("name", RULES)
@given(seed=SEEDS)
@settings(max_examples=100, deadline=None)
def test_verdicts_are_those_of_brute_force(brute, name, seed):
    model, box, rho = draw(brute, seed, name, 12)
    rng = np.random.default_rng(seed + 1)
    eps = np.maximum(box.center - box.low, box.high - box.center)
    budget = Budget(nodes=int(rng.integers(1, 400)))
    told = verify(model, box.center, eps, rho=rho, domain=DOMAIN, budget=budget)
    if isinstance(told, Robust):
        assert brute.is_robust(model, told.box, rho)
    if isinstance(told, Counterexample):
        assert not brute.is_robust(model, told.box, rho)


@pytest.mark.parametrize("name", [name for name in RULES if name != "regression"])
@given(seed=SEEDS)
@settings(max_examples=60, deadline=None)
def test_a_box_beside_its_center_is_decided_like_brute_force_says(brute, name, seed):
    model, box, _ = draw(brute, seed, name, 12)
    rng = np.random.default_rng(seed + 1)
    ends = np.sort(rng.choice(brute.MENU, (2, model.n_features)) + rng.choice([0.0, 0.1]), axis=0)
    told = verify_box(model, Box(box.center, *ends))
    if not isinstance(told, Unknown):
        assert isinstance(told, Robust) == brute.is_robust(model, told.box)


@pytest.mark.parametrize("name", RULES)
def test_it_decides_most_small_questions_alone(brute, name):
    told = []
    for seed in range(100):
        model, box, rho = draw(brute, seed, name, 20)
        told.append(decide(model, box, rho, robustness.MOST_PARTS)[0])
    # Near ties within a wide guard are the deep search's to judge.
    assert np.mean(np.array(told) == Outcome.UNDECIDED) < (0.5 if "ties" in name else 0.2)
    assert {Outcome.ROBUST, Outcome.COUNTEREXAMPLE} <= set(told)


@pytest.mark.parametrize("name", ["boosted", "several scores"])
@given(seed=SEEDS)
@settings(max_examples=60, deadline=None)
def test_the_deep_search_alone_decides_like_brute_force(brute, name, seed):
    # In boosting it looks at the trees of two classes only.
    model, box, _ = draw(brute, seed, name, 20)
    objectives = make_objectives(model, model.predict(box.center[None])[0], None)
    low, high = box_intervals(model, box)
    outcome, _ = robustness.search_on(model, objectives, low, high, Budget())
    if outcome in (Outcome.ROBUST, Outcome.COUNTEREXAMPLE):
        assert (outcome == Outcome.ROBUST) == brute.is_robust(model, box)
