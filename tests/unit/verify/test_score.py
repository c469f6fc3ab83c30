import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.model_selection import GridSearchCV

from tacit.errors import ConfigError, DataError
from tacit.verify import (
    Robust,
    RobustScorer,
    from_sklearn,
    verified_accuracy,
    verify,
)


@pytest.fixture(scope="module")
def labelled():
    rng = np.random.default_rng(0)
    x = rng.random((200, 4))
    return x, np.where(x[:, 0] + 0.5 * x[:, 1] > 0.7, "yes", "no")


def test_the_score_counts_rows_that_are_right_and_proved(labelled):
    x, y = labelled
    forest = RandomForestClassifier(8, max_depth=4, random_state=0).fit(x[:100], y[:100])
    model = from_sklearn(forest)
    right = forest.predict(x[100:]) == y[100:]
    robust = [isinstance(verify(model, row, 0.02), Robust) for row in x[100:]]
    wanted = (right & np.array(robust)).mean()
    assert 0 < wanted < right.mean()
    assert RobustScorer(0.02)(forest, x[100:], y[100:]) == wanted


def test_without_any_perturbation_it_is_accuracy(labelled):
    x, y = labelled
    forest = RandomForestClassifier(8, max_depth=4, random_state=0).fit(x[:100], y[:100])
    assert RobustScorer(0.0)(forest, x[100:], y[100:]) == forest.score(x[100:], y[100:])


def test_a_grid_search_takes_the_scorer(labelled):
    x, y = labelled
    search = GridSearchCV(
        RandomForestClassifier(random_state=0),
        {"n_estimators": [1, 6], "max_depth": [1, 4]},
        scoring=RobustScorer(0.05),
        cv=2,
        error_score="raise",
    )
    search.fit(x, y)
    assert 0 < search.best_score_ <= 1
    # A class the estimator never saw counts as wrong, not as an error.
    assert RobustScorer(0.0)(search.best_estimator_, x[:2], np.array(["no", "other"])) <= 0.5


def test_what_makes_no_sense_is_refused(labelled):
    x, _ = labelled
    regression = from_sklearn(RandomForestRegressor(2, max_depth=2).fit(x, x[:, 0]))
    with pytest.raises(ConfigError, match="regression"):
        verified_accuracy(regression, x, np.zeros(200), 0.1)
    forest = from_sklearn(RandomForestClassifier(2, max_depth=2).fit(x, x[:, 0] > 0.5))
    with pytest.raises(DataError, match="one class per row"):
        verified_accuracy(forest, x, np.zeros(3), 0.1)
