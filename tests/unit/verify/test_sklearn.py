"""Imported scikit-learn models predict bit for bit what scikit-learn predicts."""

import numpy as np
import pytest
from sklearn import ensemble, tree
from sklearn.linear_model import LogisticRegression

from tacit.errors import DataError
from tacit.verify import from_sklearn, import_ensemble

CASES = [
    (tree.DecisionTreeClassifier, "several", {}),
    (tree.ExtraTreeRegressor, "real", {}),
    (ensemble.RandomForestClassifier, "binary", {"n_estimators": 30, "max_depth": 6}),
    (ensemble.RandomForestClassifier, "several", {"n_estimators": 30}),
    (ensemble.ExtraTreesClassifier, "several", {"n_estimators": 30}),
    (ensemble.RandomForestRegressor, "real", {"n_estimators": 30}),
    (ensemble.GradientBoostingClassifier, "binary", {"n_estimators": 30}),
    (ensemble.GradientBoostingClassifier, "several", {"n_estimators": 10, "init": "zero"}),
    (ensemble.GradientBoostingRegressor, "real", {"n_estimators": 30, "loss": "huber"}),
    (ensemble.HistGradientBoostingClassifier, "binary", {"max_iter": 30}),
    (ensemble.HistGradientBoostingClassifier, "several", {"max_iter": 10}),
    (ensemble.HistGradientBoostingRegressor, "real", {"max_iter": 30}),
]


@pytest.mark.parametrize(("kind", "target", "options"), CASES)
def test_scores_and_predictions_are_bit_equal(brute, kind, target, options):
    x, targets = brute.training_set()
    model = kind(random_state=0, **options).fit(x, targets[target])
    ours = from_sklearn(model)
    rows = brute.boundary_rows(np.random.default_rng(1), ours)
    if target == "real":
        theirs = model.predict(rows)
    elif hasattr(model, "decision_function"):
        theirs = model.decision_function(rows)
    else:
        theirs = model.predict_proba(rows)
    assert (ours.scores(rows) == theirs.reshape(len(rows), -1)).all()
    assert (ours.predict(rows) == model.predict(rows)).all()


def test_missing_values_go_where_the_library_sends_them(brute):
    x, targets = brute.training_set(missing=True)
    for kind in (ensemble.RandomForestClassifier, ensemble.HistGradientBoostingClassifier):
        model = kind(random_state=0).fit(x, targets["several"])
        ours = import_ensemble(model)
        rows = brute.boundary_rows(np.random.default_rng(2), ours, with_missing=True)
        assert (ours.predict(rows) == model.predict(rows)).all()


@pytest.mark.parametrize("target", ["binary", "several", "real"])
def test_categories_and_missing_values_are_bit_equal(brute, target):
    x, targets = brute.mixed_training_set()
    family = ensemble.HistGradientBoostingRegressor
    family = family if target == "real" else ensemble.HistGradientBoostingClassifier
    # Values, not codes, are what the model knows: 100 steps apart, they are codes of nothing.
    x[:, 4] = 100 * x[:, 4] - 150
    model = family(max_iter=20, categorical_features=brute.MIXED_KINDS, early_stopping=True)
    model.set_params(random_state=0).fit(x, targets[target])
    ours = from_sklearn(model)
    rows = brute.mixed_rows(np.random.default_rng(4), 1500)
    rows[:, 4] = 100 * rows[:, 4] - 150
    theirs = model.predict(rows) if target == "real" else model.decision_function(rows)
    assert (ours.is_category == brute.MIXED_KINDS).all()
    assert (ours.scores(rows) == theirs.reshape(len(rows), -1)).all()
    assert (ours.predict(rows) == model.predict(rows)).all()


def test_forests_take_missing_values_and_gradient_boosting_does_not(brute):
    x, targets = brute.training_set()
    rows = brute.mixed_rows(np.random.default_rng(3), 1000)[:, [0, 1, 2, 3, 4, 0]]
    for kind in (ensemble.RandomForestClassifier, ensemble.ExtraTreesClassifier):
        model = kind(20, random_state=0).fit(x, targets["several"])
        assert from_sklearn(model).takes_missing
        assert (from_sklearn(model).predict(rows) == model.predict(rows)).all()
    model = ensemble.GradientBoostingClassifier(n_estimators=2).fit(x, targets["binary"])
    assert not from_sklearn(model).takes_missing


def test_what_is_not_supported_is_refused(brute):
    x, targets = brute.training_set()
    with pytest.raises(DataError, match="LogisticRegression"):
        from_sklearn(LogisticRegression().fit(x, targets["binary"]))
    with pytest.raises(DataError, match="not fitted"):
        from_sklearn(ensemble.RandomForestClassifier())
    two = np.stack([targets["real"], targets["real"]], axis=1)
    with pytest.raises(DataError, match="one output"):
        from_sklearn(ensemble.RandomForestRegressor(2).fit(x, two))
    with pytest.raises(DataError, match="looks at the input"):
        from_sklearn(
            ensemble.GradientBoostingClassifier(
                n_estimators=2, init=tree.DecisionTreeClassifier(max_depth=1)
            ).fit(x, targets["binary"])
        )
    named = np.where(x[:, 5:] > 0, "yes", "no").astype(object)
    boosting = ensemble.HistGradientBoostingRegressor(max_iter=2, categorical_features=[1])
    with pytest.raises(DataError, match="OrdinalEncoder"):
        from_sklearn(boosting.fit(np.hstack([x[:, :1].astype(object), named]), targets["real"]))
    with pytest.raises(DataError, match="LogLink"):
        from_sklearn(
            ensemble.HistGradientBoostingRegressor(max_iter=2, loss="poisson").fit(
                x, np.abs(targets["real"])
            )
        )
