"""Imported LightGBM models predict bit for bit what LightGBM predicts."""

import numpy as np
import pytest

from tacit.errors import DataError
from tacit.verify import from_lightgbm, load_ensemble
from tacit.verify.models.lightgbm import parse_lightgbm

lgb = pytest.importorskip("lightgbm", reason="LightGBM is not installed")


def fit(brute, target, *, missing=False, **options):
    x, targets = brute.training_set(missing=missing)
    kind = lgb.LGBMRegressor if target == "real" else lgb.LGBMClassifier
    model = kind(**{"n_estimators": 60, "max_depth": 4, "n_jobs": 1, "verbose": -1, **options})
    return model.fit(x, targets[target])


def raw(model, rows):
    return model.booster_.predict(rows, raw_score=True).reshape(len(rows), -1)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("target", ["binary", "several", "real"])
def test_scores_and_predictions_are_bit_equal(brute, target, missing):
    model = fit(brute, target, missing=missing)
    ours = from_lightgbm(model)
    rows = brute.boundary_rows(np.random.default_rng(1), ours, with_missing=True)
    assert (ours.scores(rows) == raw(model, rows)).all()
    chances = model.booster_.predict(rows)
    if target == "real":
        assert (ours.predict(rows) == chances).all()
    elif target == "binary":
        assert (ours.predict(rows) == (chances > 1 - chances)).all()
    else:
        assert (ours.predict(rows) == chances.argmax(axis=1)).all()


@pytest.mark.parametrize("target", ["binary", "real"])
def test_a_random_forest_of_lightgbm_is_bit_equal(brute, target):
    model = fit(brute, target, boosting_type="rf", subsample=0.7, subsample_freq=1)
    ours = from_lightgbm(model)
    rows = brute.boundary_rows(np.random.default_rng(2), ours)
    theirs = model.booster_.predict(rows)
    assert (ours.predict(rows) == (theirs if target == "real" else theirs > 1 - theirs)).all()


def test_tiny_inputs_count_as_zero(brute):
    ours = from_lightgbm(fit(brute, "real"))
    zero = np.zeros((1, 6))
    for tiny in (1e-36, -1e-36, 1e-35, -1e-35):
        assert (ours.scores(zero + tiny) == ours.scores(zero)).all()


def test_a_saved_model_loads(brute, tmp_path):
    model = fit(brute, "several")
    model.booster_.save_model(tmp_path / "model.txt")
    rows = brute.boundary_rows(np.random.default_rng(3), from_lightgbm(model))
    assert (load_ensemble(tmp_path / "model.txt").scores(rows) == raw(model, rows)).all()


@pytest.mark.parametrize(
    ("target", "options", "match"),
    [
        ("real", {"objective": "poisson"}, "poisson"),
        ("several", {"objective": "multiclassova"}, "multiclassova"),
        ("real", {"linear_tree": True}, "linear"),
    ],
)
def test_what_is_not_supported_is_refused(brute, target, options, match):
    x, targets = brute.training_set()
    y = np.abs(targets[target])
    params = {"objective": "regression", "verbose": -1, "num_class": 4, **options}
    if target == "real":
        del params["num_class"]
    data = lgb.Dataset(x, y, params={"verbose": -1, **options})
    model = lgb.train(params, data, num_boost_round=3)
    with pytest.raises(DataError, match=match):
        from_lightgbm(model)


@pytest.mark.parametrize("zero_as_missing", [False, True])
@pytest.mark.parametrize("target", ["binary", "several", "real"])
def test_categories_and_missing_values_are_bit_equal(brute, target, zero_as_missing):
    x, targets = brute.mixed_training_set()
    kind = lgb.LGBMRegressor if target == "real" else lgb.LGBMClassifier
    options = {"n_jobs": 1, "verbose": -1, "min_data_per_group": 5, "cat_smooth": 1}
    model = kind(n_estimators=30, zero_as_missing=zero_as_missing, **options)
    model.fit(x, targets[target], categorical_feature=np.flatnonzero(brute.MIXED_KINDS).tolist())
    ours = from_lightgbm(model)
    rows = brute.mixed_rows(np.random.default_rng(4), 2000)
    assert (ours.is_category == brute.MIXED_KINDS).all()
    assert (ours.scores(rows) == raw(model, rows)).all()


def test_a_zero_as_missing_that_grows_beyond_bounds_is_refused(brute, monkeypatch):
    monkeypatch.setattr("tacit.verify.models.lightgbm.MOST_NODES", 20)
    with pytest.raises(DataError, match="zero_as_missing=false"):
        from_lightgbm(fit(brute, "real", missing=True, zero_as_missing=True))


def test_a_broken_text_is_refused():
    with pytest.raises(DataError, match="not a valid LightGBM model"):
        parse_lightgbm("tree\nversion=v4\n")
