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
    with pytest.raises(DataError, match="categorical"):
        from_sklearn(
            ensemble.HistGradientBoostingRegressor(max_iter=2, categorical_features=[5]).fit(
                np.abs(x), targets["real"]
            )
        )
    with pytest.raises(DataError, match="LogLink"):
        from_sklearn(
            ensemble.HistGradientBoostingRegressor(max_iter=2, loss="poisson").fit(
                x, np.abs(targets["real"])
            )
        )
