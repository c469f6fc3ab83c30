"""Rows with missing values and categories: every verdict against brute force and the libraries."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tacit.errors import DataError
from tacit.verify import (
    Box,
    Budget,
    Counterexample,
    Limits,
    Robust,
    check_proof,
    closest,
    dump_proof,
    from_lightgbm,
    from_sklearn,
    from_xgboost,
    load_proof,
    margin,
    prove,
    robust_features,
    smallest_features,
    verify,
    verify_box,
    verify_many,
    verify_smt,
    verify_within,
)
from tacit.verify.models.build import build
from tacit.verify.models.categories import CategorySet

CATEGORY = 0
"""The feature that holds a category, of those that the random trees ask for."""
N_FEATURES = 4
RULES = [
    {"task": "classify", "scores": 1},
    {"task": "classify", "scores": 3},
    {"task": "regress", "scores": 1},
]


def make_trees(brute, rng, scores):
    """Grow trees with random directions for missing values; feature 0 is asked as a category."""
    for _ in range(int(rng.integers(2, 6))):
        tree = brute.random_tree(
            rng, n_features=N_FEATURES, depth=3, scores=scores, values=brute.votes
        )
        asking = np.flatnonzero((tree.left >= 0) & (tree.feature == CATEGORY))
        sets = {}
        for node in asking.tolist():
            listed = np.flatnonzero(rng.random(5) < 0.5).astype(float)
            sets[node] = CategorySet(low=listed, high=listed, listed_left=bool(rng.random() < 0.5))
        yield replace(tree, missing_left=rng.random(tree.left.size) < 0.5, sets=sets)


def make_model(brute, rng, rule):
    trees = list(make_trees(brute, rng, rule["scores"]))
    base = np.zeros(rule["scores"])
    model = build(trees, base=base, n_features=N_FEATURES, task=rule["task"], takes_missing=True)
    return trees, model


def make_row(brute, rng):
    row = brute.random_input(rng, N_FEATURES)
    row[CATEGORY] = rng.integers(0, 7)  # 5 and 6 are listed nowhere
    row[rng.random(N_FEATURES) < 0.3] = np.nan
    return row


def walk(trees, x):
    """Sum the leaves of an input as the trees say, with nothing of the code under test."""
    total = 0.0
    for tree in trees:
        node = 0
        while tree.left[node] >= 0:
            value = x[tree.feature[node]]
            if np.isnan(value):
                goes_left = tree.missing_left[node]
            elif node in tree.sets:
                one = tree.sets[node]
                goes_left = (value in one.low.tolist()) == one.listed_left
            else:
                goes_left = value <= tree.threshold[node]
            node = tree.left[node] if goes_left else tree.right[node]
        total = total + tree.value[node]
    return total


def predict(trees, x, task):
    scores = walk(trees, x)
    if task == "regress":
        return scores[0]
    return int(scores[0] >= 0) if scores.size == 1 else int(scores.argmax())


def is_near(t, value, eps):
    return abs(Fraction(t) - Fraction(value)) <= Fraction(eps)


def list_inputs(brute, x, eps, held=(CATEGORY,)):
    """List an input for every way in which numbers of `x` can move past the thresholds."""
    axes = []
    for f, value in enumerate(x):
        moves = f not in held and not np.isnan(value)
        tries = [value, *brute.MENU, *np.nextafter(brute.MENU, np.inf).tolist()]
        axes.append([t for t in tries if is_near(t, value, eps)] if moves else [value])
    return itertools.product(*axes)


@pytest.mark.parametrize("rule", RULES)
def test_verdicts_and_proofs_agree_with_brute_force(brute, rule):
    rng, kinds, rho = np.random.default_rng(5), set(), 1.0 if rule["task"] == "regress" else None
    for _ in range(60):
        trees, model = make_model(brute, rng, rule)
        x, eps = make_row(brute, rng), float(rng.choice([0.25, 1.0, 3.0]))
        before = predict(trees, x, rule["task"])
        assert model.predict(x[None])[0] == before
        after = {predict(trees, one, rule["task"]) for one in list_inputs(brute, x, eps)}
        is_robust = max(abs(one - before) for one in after) <= (rho or 0.0)
        verdict = verify(model, x, eps, rho=rho)
        assert isinstance(verdict, Robust if is_robust else Counterexample)
        kinds.add((type(verdict), bool(np.isnan(x).any())))
        if is_robust:
            proof = load_proof(dump_proof(prove(model, verdict)))
            assert check_proof(model, proof) is None
        else:
            stays = np.isnan(x) | (np.arange(N_FEATURES) == CATEGORY)
            assert np.array_equal(verdict.x[stays], x[stays], equal_nan=True)
            assert (np.abs(verdict.x - x)[~stays] <= eps).all()
            assert abs(predict(trees, verdict.x, rule["task"]) - before) > (rho or 0.0)
    assert len(kinds) == 4


def test_every_other_question_holds_them_as_well(brute):
    rng, found = np.random.default_rng(6), 0
    for _ in range(25):
        _, model = make_model(brute, rng, RULES[1])
        x = make_row(brute, rng)
        least = closest(model, x)
        if least.counterexample is None:
            assert isinstance(verify(model, x, np.inf), Robust)
            continue
        found += 1
        assert isinstance(verify(model, x, least.eps), Counterexample)
        assert isinstance(verify(model, x, np.nextafter(least.eps, 0)), Robust)
        assert isinstance(verify_smt(model, x, least.eps), Counterexample)
        few = Limits(l0=N_FEATURES)
        assert isinstance(verify_within(model, x, least.eps, few), Counterexample)
        assert margin(model, x, least.eps).high <= 0
        free = robust_features(model, x, 0.0)
        fixed = {CATEGORY, *np.flatnonzero(np.isnan(x)).tolist()}
        assert not fixed & set(free.features)
        assert len(smallest_features(model, x, 0.0).features) <= len(free.features)
    assert found > 5


def test_many_rows_are_answered_in_order_whatever_they_miss(brute):
    rng = np.random.default_rng(7)
    _, model = make_model(brute, rng, RULES[1])
    rows = np.array([make_row(brute, rng) for _ in range(60)])
    one_by_one = [type(verify(model, row, 1.0)) for row in rows]
    for workers in (1, 2):
        verdicts = verify_many(model, rows, 1.0, workers=workers)
        assert [type(one) for one in verdicts] == one_by_one
        centers = np.array([one.box.center for one in verdicts])
        assert np.array_equal(centers, rows, equal_nan=True)


def test_a_row_without_any_value_is_robust_at_any_distance(brute):
    _, model = make_model(brute, np.random.default_rng(8), RULES[1])
    verdict = verify(model, np.full(N_FEATURES, np.nan), np.inf, budget=Budget(nodes=1))
    assert isinstance(verdict, Robust)
    assert check_proof(model, prove(model, verdict)) is None
    assert "±0" in repr(verdict)


def test_a_missing_value_or_category_that_moves_is_refused(brute):
    _, model = make_model(brute, np.random.default_rng(9), RULES[1])
    center = np.array([1.0, np.nan, 0.0, 0.0])
    for feature, low in ((CATEGORY, 0.0), (1, -1.0)):
        ends = center.copy()
        ends[feature] = low
        with pytest.raises(DataError, match=f"feature {feature} .* must not move"):
            verify_box(model, Box(center, ends, center))
    with pytest.raises(DataError, match=r"limits relate the features \[1\]"):
        verify_within(model, center, 0.1, Limits(order=((1, 2),)))
    with pytest.raises(DataError, match="takes no missing values"):
        verify(replace(model, takes_missing=False), center, 0.1)


def put(box, feature, low, center, high):
    """Change one feature of a box."""
    here = np.arange(N_FEATURES) == feature
    ends = ((box.center, center), (box.low, low), (box.high, high))
    return Box(*(np.where(here, to, end) for end, to in ends))


def test_a_proof_of_another_row_or_a_wider_box_is_refused(brute):
    """Proofs are moved to boxes in which such a feature moves, and to rows that have another value.

    In a row the proof may hold as well: then brute force must agree.
    """
    rng, wider, other = np.random.default_rng(10), 0, 0
    for _ in range(80):
        trees, model = make_model(brute, rng, RULES[0])
        x, value = make_row(brute, rng), float(rng.integers(0, 5))
        verdict = verify(model, x, 0.25)
        if not isinstance(verdict, Robust):
            continue
        proof = prove(model, verdict)
        for feature in {CATEGORY, *np.flatnonzero(np.isnan(x)).tolist()}:
            if model.is_category[feature] or np.isnan(x[feature]):
                box = put(proof.box, feature, value - 9, x[feature], value + 9)
                assert "moves" in check_proof(model, replace(proof, box=box))
                wider += 1
            box = put(proof.box, feature, value, value, value)
            if check_proof(model, replace(proof, box=box)) is not None:
                other += 1
                continue
            inputs = list_inputs(brute, box.center, 0.25, held=(CATEGORY, feature))
            assert {predict(trees, one, "classify") for one in inputs} == {proof.prediction}
    assert wider > 20
    assert other > 5


def fit_xgboost(x, y, kinds):
    xgb = pytest.importorskip("xgboost", reason="xgboost is not installed")
    options = {"n_estimators": 4, "max_depth": 3, "n_jobs": 1, "enable_categorical": True}
    types = ["c" if one else "q" for one in kinds]
    model = xgb.XGBClassifier(**options, feature_types=types, learning_rate=1.0).fit(x, y)
    return from_xgboost(model), model


def fit_lightgbm(x, y, kinds, **options):
    lgb = pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    options = {"n_estimators": 4, "max_depth": 3, "n_jobs": 1, "verbose": -1, **options}
    model = lgb.LGBMClassifier(**options, min_data_per_group=5, cat_smooth=1, learning_rate=0.5)
    model.fit(x, y, categorical_feature=np.flatnonzero(kinds).tolist())
    return from_lightgbm(model), model


def fit_zeros(x, y, kinds):
    return fit_lightgbm(x, y, kinds, zero_as_missing=True)


def fit_histogram(x, y, kinds):
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(
        max_iter=6, max_depth=3, categorical_features=kinds, learning_rate=1.0
    )
    return from_sklearn(model.fit(x, y)), model


def list_library_inputs(model, box):
    """List an input for every combination of intervals in a box, and zero where it is inside."""
    axes = []
    for f, (low, value, high) in enumerate(zip(box.low, box.center, box.high, strict=True)):
        cuts = np.unique(model.threshold[model.feature == f])
        above = np.nextafter(cuts.astype(model.input_type), np.inf).astype(np.float64)
        tries = np.array([value, low, high, 0.0, *cuts, *above])
        tries = tries[(low <= tries) & (tries <= high)]
        keys = tries.astype(model.input_type).astype(np.float64)
        _, first = np.unique(np.searchsorted(cuts, keys) + 0.5 * (keys == 0), return_index=True)
        axes.append(tries[first] if tries.size else [value])
    return np.array(list(itertools.product(*axes)))


@pytest.mark.parametrize("target", ["binary", "several"])
@pytest.mark.parametrize("fit", [fit_xgboost, fit_lightgbm, fit_zeros, fit_histogram])
def test_verdicts_are_what_the_library_predicts_everywhere(brute, fit, target):
    """Every interval of the box is tried with the library's own prediction."""
    x, targets = brute.mixed_training_set()
    model, theirs = fit(x, targets[target], brute.MIXED_KINDS)
    kinds = set()
    for row in brute.mixed_rows(np.random.default_rng(11), 40):
        verdict = verify(model, row, 0.4)
        assert theirs.predict(row[None])[0] == verdict.prediction
        after = theirs.predict(list_library_inputs(model, verdict.box))
        assert (after == verdict.prediction).all() == isinstance(verdict, Robust)
        kinds.add(type(verdict))
        if isinstance(verdict, Robust):
            assert check_proof(model, prove(model, verdict)) is None
        else:
            assert theirs.predict(verdict.x[None])[0] == verdict.changed != verdict.prediction
    assert kinds == {Robust, Counterexample}
