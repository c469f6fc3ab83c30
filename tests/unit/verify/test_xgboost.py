"""Imported XGBoost models predict bit for bit what XGBoost predicts."""

import json

import numpy as np
import pytest

from tacit.errors import DataError
from tacit.verify import from_xgboost, load_ensemble
from tacit.verify.models.xgboost import parse_xgboost

xgb = pytest.importorskip("xgboost", reason="XGBoost is not installed")


def fit(brute, target, *, rounds=60, missing=False, **options):
    x, targets = brute.training_set(missing=missing)
    kind = xgb.XGBRegressor if target == "real" else xgb.XGBClassifier
    return kind(n_estimators=rounds, max_depth=4, n_jobs=1, **options).fit(x, targets[target])


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("target", ["binary", "several", "real"])
def test_margins_and_predictions_are_bit_equal(brute, target, missing):
    model = fit(brute, target, missing=missing)
    ours = from_xgboost(model)
    rows = brute.boundary_rows(np.random.default_rng(1), ours, with_missing=True)
    margins = model.get_booster().predict(xgb.DMatrix(rows), output_margin=True)
    assert (ours.scores(rows) == margins.reshape(len(rows), -1)).all()
    assert (ours.predict(rows) == model.predict(rows)).all()


def test_a_random_forest_of_xgboost_is_bit_equal(brute):
    x, targets = brute.training_set()
    model = xgb.XGBRFClassifier(n_estimators=40, max_depth=5, n_jobs=1).fit(x, targets["several"])
    ours = from_xgboost(model)
    rows = brute.boundary_rows(np.random.default_rng(2), ours)
    assert (ours.predict(rows) == model.predict(rows)).all()


@pytest.mark.parametrize("form", ["json", "ubj"])
def test_saved_models_load_alike(brute, form, tmp_path):
    model = fit(brute, "several", rounds=10)
    model.save_model(tmp_path / f"model.{form}")
    rows = brute.boundary_rows(np.random.default_rng(3), from_xgboost(model))
    loaded = load_ensemble(tmp_path / f"model.{form}")
    assert (loaded.scores(rows) == from_xgboost(model).scores(rows)).all()


def test_an_estimator_that_stopped_early_predicts_with_its_best_round(brute):
    x, targets = brute.training_set()
    model = xgb.XGBClassifier(n_estimators=200, early_stopping_rounds=2, learning_rate=1.0)
    model.fit(x[:200], targets["several"][:200], eval_set=[(x[200:], targets["several"][200:])])
    ours = from_xgboost(model)
    assert ours.n_trees < len(model.get_booster().get_dump())
    rows = brute.boundary_rows(np.random.default_rng(4), ours)
    assert (ours.predict(rows) == model.predict(rows)).all()
    assert from_xgboost(model.get_booster()).n_trees == len(model.get_booster().get_dump())


def test_the_cutoff_is_where_the_library_rounds_a_half_up(brute):
    model = fit(brute, "binary", rounds=1)
    ours = from_xgboost(model)
    margins = np.linspace(-4e-7, 4e-7, 8001).astype(np.float32)
    # A learning rate of zero leaves the margin that is handed in.
    flat = fit(brute, "binary", rounds=1, learning_rate=0.0)
    rows = xgb.DMatrix(np.zeros((margins.size, 6)), base_margin=margins)
    chances = flat.get_booster().predict(rows)
    assert ((margins.astype(np.float64) >= ours.cutoff) == (chances > 0.5)).all()


def saved(brute):
    return json.loads(bytes(fit(brute, "binary", rounds=3).get_booster().save_raw("json")))


def refuse(model, match):
    with pytest.raises(DataError, match=match):
        parse_xgboost(json.dumps(model).encode())


@pytest.mark.parametrize("onehot", [1, 100])
@pytest.mark.parametrize("target", ["binary", "several", "real"])
def test_categories_and_missing_values_are_bit_equal(brute, target, onehot):
    x, targets = brute.mixed_training_set()
    types = ["c" if is_category else "q" for is_category in brute.MIXED_KINDS]
    kind = xgb.XGBRegressor if target == "real" else xgb.XGBClassifier
    options = {"n_estimators": 20, "max_depth": 4, "n_jobs": 1, "enable_categorical": True}
    model = kind(**options, feature_types=types, max_cat_to_onehot=onehot).fit(x, targets[target])
    rows = brute.mixed_rows(np.random.default_rng(4), 1500)
    matrix = xgb.DMatrix(rows, feature_types=types, enable_categorical=True)
    theirs = model.get_booster().predict(matrix, output_margin=True).reshape(len(rows), -1)
    for form in ("json", "ubj"):
        ours = parse_xgboost(bytes(model.get_booster().save_raw(form)))
        assert (ours.is_category == brute.MIXED_KINDS).all()
        assert (ours.scores(rows) == theirs).all()
    assert (ours.predict(rows) == model.predict(rows)).all()


def test_a_number_that_stands_for_missing_is_refused(brute):
    with pytest.raises(DataError, match="missing=nan"):
        from_xgboost(fit(brute, "binary", rounds=2).set_params(missing=-999.0))


def test_what_is_not_supported_is_refused(brute):
    model = saved(brute)
    model["learner"]["objective"]["name"] = "count:poisson"
    refuse(model, "count:poisson")
    model = saved(brute)
    model["learner"]["gradient_booster"]["name"] = "dart"
    refuse(model, "dart")
    model = saved(brute)
    model["learner"]["gradient_booster"]["model"]["trees"][0]["split_type"][0] = 1
    refuse(model, "categorical")
    model = saved(brute)
    model["learner"]["learner_model_param"]["num_target"] = "2"
    refuse(model, "one target")


def test_a_broken_model_is_refused(brute):
    model = saved(brute)
    tree = model["learner"]["gradient_booster"]["model"]["trees"][0]
    tree["left_children"][0] = 0
    refuse(model, "circle")
    tree["left_children"][0] = 999
    refuse(model, "beyond")
    tree["categories_nodes"] = [0]
    refuse(model, "lists no categories")
    del model["learner"]["objective"]
    refuse(model, "objective")
    refuse([{"nodeid": 0}], "dump")
