"""Learners that are pickled, as joblib does it: what was opened is in the file, and no row."""

import pickle
import re

import numpy as np
import pytest

from tacit.errors import InputError
from tacit.learners import (
    PCA,
    DecisionTreeClassifier,
    GaussianNB,
    KMeans,
    KNeighbors,
    Lasso,
    LinearSVC,
    Local,
    LogisticRegression,
    Ridge,
)
from tacit.learners.exported import to_sklearn

COINS = np.random.default_rng(0)
X = COINS.normal(size=(40, 3))
Y = (X[:, 0] > 0) + 0
Z = X @ [1.0, 2.0, 0.5]


@pytest.mark.parametrize(
    "learner",
    [
        GaussianNB(),
        KMeans(2, random_state=0),
        LogisticRegression(max_iter=3),
        LinearSVC(max_iter=3),
        Ridge(),
        Lasso(max_iter=4),
        PCA(1),
    ],
)
def test_a_learner_that_was_opened_is_saved_and_answers_as_scikit_learn_s(learner):
    labels = Z if isinstance(learner, Ridge) else Y
    with Local("bank", "shop") as parties:
        part = (X, labels) if not isinstance(learner, KMeans | PCA) else X
        data = parties.rows({"bank": part})
        learner.fit(data, parties)
        with pytest.raises(InputError, match=r"is a share here; call reveal"):
            pickle.dumps(learner)
        learner.reveal()
        saved = pickle.dumps(learner)
        asked = "transform" if isinstance(learner, PCA) else "predict"
        wanted = getattr(to_sklearn(learner), asked)(X)
    assert X[0].tobytes() not in saved
    assert not re.search(rb"SimpleQueue|Thread", saved)
    loaded = pickle.loads(saved)  # noqa: S301 - made here
    assert np.array_equal(getattr(to_sklearn(loaded), asked)(X), wanted)
    assert "none, it was saved" in repr(loaded)
    with pytest.raises(InputError, match="saved without its parties; to_sklearn"):
        loaded.predict(data)


@pytest.mark.parametrize("learner", [DecisionTreeClassifier(max_depth=1), KNeighbors(1)])
def test_what_stays_shares_is_not_saved(learner):
    assert pickle.loads(pickle.dumps(learner)).get_params() == learner.get_params()  # noqa: S301
    with Local("bank", "shop") as parties:
        learner.fit(parties.rows({"bank": (X, Y)}), parties)
        with pytest.raises(InputError, match="stays shares"):
            pickle.dumps(learner)


def test_arrays_in_place_of_a_table_are_refused_with_what_to_do():
    with Local("bank", "shop") as parties:
        with pytest.raises(InputError, match=r"wanted a table, got a ndarray: make one with par"):
            Ridge().fit(X, Z)
        model = Ridge().fit(parties.rows({"bank": (X, Z)}), parties)
        for ask in (model.predict, model.score):
            with pytest.raises(InputError, match="wanted a table, got a list"):
                ask(X.tolist())
        assert model.predict(parties.rows({"bank": X})).shape == (40,)
