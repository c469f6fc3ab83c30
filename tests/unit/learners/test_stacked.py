"""Rows and columns both divided: the same models as of the same rows divided by rows alone."""

import numpy as np
import pytest

from contract.test_learners import LEARNERS, rows, traffic
from tacit import learners
from tacit.errors import DataError
from tacit.learners import Classifier, Local, Regressor, cross_validate, to_xgboost

FAST = ("GaussianNB", "GradientBoostingClassifier")
OTHERS = [name for name in LEARNERS if name not in (*FAST, "ExtremeLearning")]


def tables(parties, x, y, *, is_classification=True):
    """The bank has a column of everyone; two shops have the other one of their customers."""
    options = {"is_classification": is_classification, "classes": None}
    return [
        parties.columns({"bank": x[:14, :1], "shop": (x[:14, 1:], y[:14])}, **options),
        parties.columns({"bank": x[14:, :1], "mall": (x[14:, 1:], y[14:])}, **options),
    ]


def check(name):
    x, y = rows(name)
    model = getattr(learners, name)(**LEARNERS[name])
    is_classes = not isinstance(model, Regressor)
    with Local("bank", "shop", "mall") as parties:
        data = parties.stack(tables(parties, x, y, is_classification=is_classes))
        assert data.shape == x.shape
        planned = traffic(model.forecast(data, parties).cost)
        before = traffic(parties.cost())
        model.fit(data, parties)
        spent = {key: size - before.get(key, 0) for key, size in traffic(parties.cost()).items()}
        assert {key: size for key, size in spent.items() if size} == planned
        assert {one.kind for one in parties.ledger()} == {"size"}
        if isinstance(model, Classifier | Regressor):
            assert model.score(data) > 0.9
            answers = model.predict(data)
            assert len(answers) == len(x)
            assert (np.abs(answers - y) < 0.6).mean() > 0.9
        else:
            opened = model.reveal()
            assert all(np.isfinite(getattr(opened, f"{one}_")).all() for one in opened.results)
            if name == "StandardScaler":
                assert np.abs(opened.mean_.reshape(-1) - x.mean(0)).max() < 1e-3


@pytest.mark.parametrize("name", FAST)
def test_a_learner_takes_rows_and_columns_that_are_both_divided(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_all_learners_take_rows_and_columns_that_are_both_divided(name):
    check(name)


def test_a_forest_of_both_answers_for_tables_of_columns_and_can_be_handed_over():
    x, y = rows("GradientBoostingClassifier")
    with Local("bank", "shop", "mall") as parties:
        first, second = tables(parties, x, y)
        data = parties.stack([first, second])
        model = learners.GradientBoostingClassifier(2, max_depth=1, max_bins=4).fit(data, parties)
        assert (model.predict(first) == y[:14]).mean() > 0.9
        assert '"learner"' in to_xgboost(model)


def test_tables_that_do_not_fit_below_each_other_are_refused():
    x, y = rows("Ridge")
    classes = (x[:, 0] > 0).astype(float)
    with Local("bank", "shop", "mall") as parties:
        first, second = tables(parties, x, y, is_classification=False)
        narrow = parties.columns({"bank": x[:, :1]})
        named, _ = tables(parties, x, classes)
        rowwise = parties.rows({"bank": (x[:9], y[:9]), "shop": (x[9:], y[9:])})
        for wrong, words in (
            ([first], "two tables"),
            ([first, rowwise], "two tables"),
            ([first, narrow], "same columns"),
            ([named, second], "classes and some numbers"),
        ):
            with pytest.raises(DataError, match=words):
                parties.stack(wrong)
        data = parties.stack([first, second])
        with pytest.raises(DataError, match="before they are put"):
            cross_validate(learners.Ridge(), data, parties, folds=2)
        with pytest.raises(DataError, match="rows"):
            learners.ExtremeLearning(n_features=4).fit(data, parties)
