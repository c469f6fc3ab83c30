"""The search against brute force, and what it refuses."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import ConfigError, DataError
from tacit.verify import (
    Budget,
    Counterexample,
    Domain,
    Outcome,
    Robust,
    Unknown,
    robustness,
    verify,
    verify_many,
    with_integers,
)
from tacit.verify.box import ball, box_intervals
from tacit.verify.models.build import Tree, build
from tacit.verify.objectives import make_objectives

SEEDS = st.integers(0, 2**32 - 1)
WIDE = Domain(-100.0, 100.0)


def draw_model(brute, rng, kind, most=12):
    """Make an ensemble of a kind, in one of the two arithmetics, with votes or real leaves."""
    rule = {
        "values": brute.votes if rng.random() < 0.5 else brute.reals,
        "sum_type": str(rng.choice(["float32", "float64"])),
        "most": most,
    }
    if kind == "binary":
        return brute.random_ensemble(rng, cutoff=float(rng.choice([0.0, 0.5, 1e-8])), **rule)
    rule["divisor"] = float(rng.choice([1.0, 3.0, 7.0]))
    if kind == "regression":
        return brute.random_ensemble(rng, task="regress", **rule)
    guard = float(rng.choice([0.0, 1e-7]))
    return brute.random_ensemble(rng, scores=int(rng.integers(2, 5)), guard=guard, **rule)


def draw_question(brute, rng, kind, most=12):
    """Make a model, an input and radii, some of them zero or infinite."""
    model = draw_model(brute, rng, kind, most)
    x = brute.random_input(rng, model.n_features)
    if rng.random() < 0.2:
        model = with_integers(model, [0])
        x[0] = np.rint(x[0])
    eps = rng.choice([0.0, 0.1, 0.5, 1.0, 2.0, np.inf], size=model.n_features)
    if rng.random() < 0.5:
        eps = float(rng.choice([0.3, 0.5, 1.0, 2.5]))
    rho = float(rng.choice([0.0, 0.5, 1.0, 2.0])) if kind == "regression" else None
    return model, x, eps, rho


def check_against_brute_force(brute, seed, kind, most=12):
    rng = np.random.default_rng(seed)
    model, x, eps, rho = draw_question(brute, rng, kind, most)
    answer = verify(model, x, eps, rho=rho, domain=WIDE)
    if not isinstance(answer, Unknown):
        assert isinstance(answer, Robust) == brute.is_robust(model, answer.box, rho)
    else:
        assert model.guard > 0


@pytest.mark.parametrize("kind", ["binary", "several classes", "regression"])
@given(seed=SEEDS)
@settings(max_examples=500, deadline=None)
def test_the_answer_is_that_of_brute_force(brute, kind, seed):
    check_against_brute_force(brute, seed, kind)


@pytest.mark.parametrize("kind", ["binary", "several classes", "regression"])
@given(seed=SEEDS)
@settings(max_examples=150, deadline=None)
def test_many_trees_make_the_search_branch_and_change_nothing(brute, kind, seed):
    check_against_brute_force(brute, seed, kind, most=60)


@pytest.mark.parametrize("kind", ["binary", "several classes", "regression"])
@pytest.mark.parametrize("most", [12, 60])
@given(seed=SEEDS)
@settings(max_examples=200, deadline=None)
def test_the_deep_search_alone_agrees_with_brute_force(brute, kind, most, seed):
    model, box, rho, objectives, low, high = draw_cells(brute, seed, kind, most)
    outcome, _ = robustness.search_on(model, objectives, low, high, Budget())
    assert outcome == Outcome.NEAR_TIE or (outcome == Outcome.ROBUST) == brute.is_robust(
        model, box, rho
    )


def draw_cells(brute, seed, kind, most):
    """Make a question in the form that the searches take."""
    model, x, eps, rho = draw_question(brute, np.random.default_rng(seed), kind, most)
    box = ball(model, x, eps, WIDE)
    objectives = make_objectives(model, model.predict(box.center[None])[0], rho)
    return model, box, rho, objectives, *box_intervals(model, box)


@given(seed=SEEDS)
@settings(max_examples=150, deadline=None)
def test_a_search_that_is_paused_at_every_node_ends_the_same(brute, seed):
    rng = np.random.default_rng(seed)
    model, x, eps, rho = draw_question(brute, rng, "several classes", 40)
    whole = verify(model, x, eps, rho=rho, domain=WIDE)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MOST_PARTS", "FEW_NODES", "CHUNK_NODES"):
            patch.setattr(robustness, name, 1)
        parts = verify(model, x, eps, rho=rho, domain=WIDE)
    assert type(parts) is type(whole)


def test_a_budget_of_one_node_leaves_hard_questions_open(brute):
    kinds = set()
    # The small search decides most of them, with no node.
    for kind, seed in product(("binary", "several classes"), range(60)):
        rng = np.random.default_rng(seed)
        model, x, eps, _ = draw_question(brute, rng, kind, 60)
        answer = verify(model, x, eps, domain=WIDE, budget=Budget(nodes=1))
        if isinstance(answer, Unknown):
            assert answer.reason == "the budget ran out"
        elif verify(model, x, eps, domain=WIDE).nodes > 1:
            pytest.fail("a question that takes several nodes was answered with one")
        kinds.add(type(answer))
    assert kinds == {Robust, Counterexample, Unknown}


def stump(threshold=0.5, *, low=-1.0, high=1.0, kind="float64", **rule):
    """One question about one feature; feature 1 is never asked for."""
    tree = Tree(
        feature=np.array([0, 0, 0]),
        threshold=np.array([threshold, 0.0, 0.0]),
        left=np.array([1, -1, -1]),
        right=np.array([2, -1, -1]),
        missing_left=np.zeros(3, dtype=bool),
        value=np.array([[0.0], [low], [high]]),
    )
    return build(
        [tree],
        base=np.zeros(1),
        n_features=2,
        task="classify",
        input_type=kind,
        sum_type=kind,
        **rule,
    )


def test_an_end_that_touches_the_threshold_from_the_left_stays_left():
    assert isinstance(verify(stump(), [0.25, 0.0], 0.25), Robust)


def test_a_radius_that_ends_between_two_floats_reaches_neither():
    # The float64 after 0.5 is 0.5 + 2^-53; the box ends half-way to it.
    assert isinstance(verify(stump(), [0.25, 0.0], 0.25 + 2.0**-54), Robust)


def test_an_end_just_beyond_the_threshold_is_found_and_lies_in_the_box():
    answer = verify(stump(), [0.25, 0.0], 0.25 + 2.0**-53)
    assert isinstance(answer, Counterexample)
    assert 0.5 < answer.x[0] <= answer.box.high[0]
    assert answer.x[1] == 0.0


def test_a_float64_input_is_rounded_to_float32_before_it_is_compared():
    threshold = np.float64(np.float32(0.3))
    upper = np.float64(np.nextafter(np.float32(0.3), np.float32(1)))
    middle = (threshold + upper) / 2
    model = stump(threshold, kind="float32")
    # Above the threshold as a float64, but the library sees the threshold itself.
    assert isinstance(verify(model, [threshold, 0.0], (middle - threshold) / 2), Robust)
    assert isinstance(verify(model, [threshold, 0.0], upper - threshold), Counterexample)


def test_the_radius_is_not_rounded():
    # 0.1 + 0.2 > 0.3 in float64, but the reals 0.1 + 0.2 (as floats) end below the sum's rounding.
    model = stump(0.30000000000000004 - 2**-54)
    assert isinstance(verify(model, [0.1, 0.0], 0.2), Robust)


def test_radii_may_differ_below_and_above():
    model = stump()
    assert isinstance(verify(model, [0.25, 0.0], [[9.0, 9.0], [0.25, 9.0]]), Robust)
    assert isinstance(verify(model, [0.25, 0.0], [[0.0, 0.0], [0.3, 0.0]]), Counterexample)


def test_the_domain_limits_an_infinite_radius():
    model = stump()
    assert isinstance(verify(model, [0.25, 0.0], np.inf, domain=Domain(0.0, 0.5)), Robust)
    assert isinstance(verify(model, [0.25, 0.0], np.inf), Counterexample)


def test_whole_numbers_are_not_attacked_with_fractions():
    model = with_integers(stump(0.5), [0])
    assert isinstance(verify(model, [0.0, 0.0], 0.9, domain=Domain(-9, 9)), Robust)
    answer = verify(model, [0.0, 0.0], 1.0, domain=Domain(-9, 9))
    assert isinstance(answer, Counterexample)
    assert answer.x[0] == 1.0


def test_an_ensemble_of_single_leaves_never_changes():
    leaf = Tree(
        feature=np.array([0]),
        threshold=np.array([0.0]),
        left=np.array([-1]),
        right=np.array([-1]),
        missing_left=np.array([False]),
        value=np.array([[1.0, 1.0]]),
    )
    model = build([leaf, leaf], base=np.zeros(2), n_features=3, task="classify")
    answer = verify(model, np.zeros(3), np.inf)
    assert isinstance(answer, Robust)
    assert answer.prediction == 0.0


def test_infinite_thresholds_send_every_finite_input_one_way():
    assert isinstance(verify(stump(np.inf), [0.0, 0.0], np.inf), Robust)
    assert isinstance(verify(stump(-np.inf), [0.0, 0.0], np.inf), Robust)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_missing_or_infinite_input_is_refused(bad):
    with pytest.raises(DataError, match="feature 1"):
        verify(stump(), [0.0, bad], 0.1)


@pytest.mark.parametrize("eps", [-0.1, np.nan, [0.1, 0.1, 0.1]])
def test_a_senseless_radius_is_refused(eps):
    with pytest.raises(ConfigError, match="eps"):
        verify(stump(), [0.0, 0.0], eps)


def test_an_input_outside_the_domain_is_refused():
    with pytest.raises(DataError, match="outside its domain"):
        verify(stump(), [2.0, 0.0], 0.1, domain=Domain(0.0, 1.0))


def test_rho_belongs_to_a_regression():
    with pytest.raises(ConfigError, match="rho"):
        verify(stump(), [0.0, 0.0], 0.1, rho=1.0)


def test_a_row_of_the_wrong_length_is_refused():
    with pytest.raises(DataError, match="2 features"):
        verify(stump(), [0.0, 0.0, 0.0], 0.1)


def test_two_threads_answer_like_one(brute):
    rng = np.random.default_rng(3)
    model = draw_model(brute, rng, "several classes", 60)
    rows = np.array([brute.random_input(rng, model.n_features) for _ in range(40)])
    one = verify_many(model, rows, 0.5)
    two = verify_many(model, rows, 0.5, workers=2)
    assert [type(a) for a in one] == [type(a) for a in two]
    assert {type(a) for a in one} == {Robust, Counterexample}
