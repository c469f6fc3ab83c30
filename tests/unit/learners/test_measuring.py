"""Measures on shares, public folds, and learners handed over to scikit-learn when opened."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn import decomposition, linear_model, metrics, naive_bayes
from sklearn.datasets import load_breast_cancer

from tacit.data import Holding
from tacit.errors import ConfigError, DataError, InputError
from tacit.learners import (
    PCA,
    DecisionTreeClassifier,
    GaussianNB,
    KMeans,
    LinearSVC,
    Local,
    LogisticRegression,
    Ridge,
    cross_validate,
    divide,
    to_sklearn,
)
from tacit.learners.parties import Planned


@pytest.fixture(scope="module")
def cancer():
    x, y = load_breast_cancer(return_X_y=True)
    x, y = x[:150, :6], y[:150]
    return (x - x.mean(0)) / x.std(0), y


@pytest.fixture
def parties():
    with Local("bank", "shop") as found:
        yield found


def by_columns(parties, x, y):
    return parties.columns({"bank": x[:, :3], "shop": (x[:, 3:], y)})


def test_measures_on_shares_are_those_in_the_clear(cancer, parties):
    x, y = cancer
    data = by_columns(parties, x, y)
    model = GaussianNB().fit(data, parties)
    plain = naive_bayes.GaussianNB().fit(x, y)
    chances = plain.predict_proba(x)[:, 1]
    assert model.auc(data) == pytest.approx(metrics.roc_auc_score(y, chances), abs=2e-3)
    confusion = metrics.confusion_matrix(y, plain.predict(x))
    assert np.abs(model.confusion(data) - confusion).sum() <= 2
    steps = np.minimum((chances * 4).astype(int), 3)
    counts, means, shares = model.calibration(data, bins=4).T
    for at in range(4):
        mine = steps == at
        assert counts[at] == pytest.approx(mine.sum(), abs=1)
        assert means[at] == pytest.approx(chances[mine].mean(), abs=0.05)
        assert shares[at] == pytest.approx(y[mine].mean(), abs=0.15)


def distance(y, scores):
    below, above, _ = metrics.roc_curve(y, scores, drop_intermediate=False)
    return np.abs(above - below).max()


@pytest.mark.parametrize("lean", [0.0, -4.5, -7.0])
def test_auc_and_ks_are_those_of_scikit_learn_within_what_they_say(parties, lean):
    """Half of the rows are of class 1, one in fifty, and one in four hundred."""
    coins = np.random.default_rng(1)
    x = coins.normal(size=(1500, 4))
    y = (coins.logistic(size=1500) + x @ [0.8, -0.5, 0.3, 0.2] + lean > 0).astype(int)
    data = parties.columns({"bank": x[:, :2], "shop": (x[:, 2:], y)})
    model = LogisticRegression(max_iter=8).fit(data, parties)
    weights = model.coef_.reveal()[:-1, 0]
    true = {"auc": metrics.roc_auc_score(y, x @ weights), "ks": distance(y, x @ weights)}
    for what, wanted in true.items():
        found, error = model.ranked(data, what)
        # Beyond the bins there is the last digit of shares.
        assert abs(found - wanted) <= error + 1e-4
        assert error < {"auc": 0.015, "ks": 0.08}[what]


def test_ranking_costs_rows_and_not_their_pairs_and_ks_after_auc_next_to_nothing():
    def sent(rows, *measures):
        planned = Planned(("bank", "shop"), dealer="dealer")
        held = [Holding(one, rows, (3,), "classes", classes=2) for one in ("bank", "shop")]
        held[0] = replace(held[0], labels="none", classes=0)
        data = planned.planned_table("columns", held)
        model = LogisticRegression(max_iter=1).fit(data, planned)
        for measure in measures:
            getattr(model, measure)(data)
        return sum(one.payload_bytes for one in planned.walker.forecast().cost.traffic)

    few, many = (sent(rows, "auc") - sent(rows) for rows in (600, 4800))
    assert many < 8.5 * few
    assert many / 4800 < 7000  # bytes of a row, at both parties and the dealer
    assert sent(4800, "auc", "ks") - sent(4800, "auc") < many / 10


def of_column(ops, values):
    first = ops.take(ops.normalise_scale(values["x"]), (0,), dim=1)
    return {"scores": ops.concatenate([ops.scale(first, 0.0), first], dim=1)}


def test_a_score_beyond_all_edges_is_in_the_last_bin(parties):
    x = np.array([[-50.0, 0.0], [-40.0, 0.0], [40.0, 0.0], [50.0, 0.0]])
    y = np.array([0, 1, 0, 1])
    data = parties.columns({"bank": x[:, :1], "shop": (x[:, 1:], y)})

    class Own(LogisticRegression):
        def _scores(self, walker, data, name):
            walker.run(of_column, uses={"x": data.load(walker)}, gives=f"{name}/")

    model = Own(max_iter=1).fit(data, parties)
    assert metrics.roc_auc_score(y, x[:, 0]) == 0.75
    assert model.ranked(data, "auc") == pytest.approx((0.5, 0.25), abs=1e-4)
    assert distance(y, x[:, 0]) == 0.5
    assert model.ranked(data, "ks") == pytest.approx((0.0, 0.5), abs=1e-4)


def test_equal_scores_count_one_half_of_a_pair(parties):
    x = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    y = np.array([0, 1, 1, 1, 0, 0])
    data = parties.columns({"bank": x[:, :1], "shop": (x[:, 1:], y)})
    model = DecisionTreeClassifier(1, max_bins=2).fit(data, parties)
    assert model.auc(data) == pytest.approx(metrics.roc_auc_score(y, x[:, 0]), abs=2e-3)


def test_rows_of_one_class_have_no_area(cancer, parties):
    x, y = cancer
    data = by_columns(parties, x, y)
    model = GaussianNB().fit(data, parties)
    alike = parties.columns({"bank": x[:9, :3], "shop": (x[:9, 3:], np.ones(9))}, classes=(0, 1))
    assert np.isnan(model.auc(alike))
    other = np.r_[0, np.ones(8)]
    both = parties.columns({"bank": x[:9, :3], "shop": (x[:9, 3:], other)}, classes=(0, 1))
    assert 0 <= model.auc(both) <= 1.002


def test_a_measure_opens_itself_and_nothing_beside_it(cancer, parties):
    data = by_columns(parties, *cancer)
    model = GaussianNB().fit(data, parties)
    assert model.auc(data, to=("shop",)) is not None
    shown = [one for one in parties.ledger() if one.kind != "size"]
    assert [(one.to, one.elements) for one in shown] == [("shop", 2)]
    assert model.ks(data, to=("shop",)) is not None
    shown = [one for one in parties.ledger() if one.kind != "size"]
    assert [(one.to, one.elements) for one in shown] == [("shop", 2), ("shop", 2)]


def test_measures_that_make_no_sense_are_refused(cancer, parties):
    x, y = cancer
    data = by_columns(parties, x, y)
    machine = LinearSVC(max_iter=2).fit(data, parties)
    with pytest.raises(InputError, match="no chances"):
        machine.calibration(data)
    three = by_columns(parties, x, np.arange(len(x)) % 3)
    with pytest.raises(InputError, match="two classes"):
        GaussianNB().fit(three, parties).auc(three)
    for folds in (1, 1000):
        with pytest.raises(ConfigError, match="folds must be"):
            cross_validate(GaussianNB(), data, parties, folds=folds)
    tiny = parties.rows({"bank": (x[:1], y[:1]), "shop": (x[1:], y[1:])})
    with pytest.raises(DataError, match="too few rows"):
        divide(tiny, parties, test_share=0.5)


def test_every_row_is_measured_on_in_one_fold(cancer, parties):
    x, y = cancer
    data = parties.rows({"bank": (x[:60], y[:60]), "shop": (x[60:], y[60:])})
    scores = cross_validate(GaussianNB(), data, parties, folds=3)
    whole = naive_bayes.GaussianNB().fit(x, y).score(x, y)
    assert scores.shape == (3,)
    assert scores.mean() == pytest.approx(whole, abs=0.08)
    learned, kept = divide(data, parties, test_share=0.25)
    assert (learned.shape[0], kept.shape[0]) == (113, 37)
    both = np.concatenate([np.concatenate(list(one.values.values())) for one in (learned, kept)])
    assert np.array_equal(np.sort(both, axis=0), np.sort(x, axis=0))


def test_folds_of_columns_take_the_same_rows_of_everyone(cancer, parties):
    x, y = cancer
    learned, _ = divide(by_columns(parties, x, y), parties, test_share=0.3)
    joined = np.concatenate([learned.values["bank"], learned.values["shop"]], axis=1)
    places = [np.flatnonzero((x == row).all(axis=1))[0] for row in joined]
    assert np.array_equal(y[places], learned.labels["shop"])


@pytest.mark.parametrize(
    "model",
    [KMeans(3, max_iter=3), GaussianNB(), LogisticRegression(max_iter=6), LinearSVC(max_iter=6)],
)
def test_an_opened_learner_answers_alike_in_scikit_learn(cancer, parties, model):
    x, y = cancer
    data = by_columns(parties, x, y)
    answers = model.fit(data, parties).predict(data)
    with pytest.raises(InputError, match="reveal"):
        to_sklearn(model)
    assert (to_sklearn(model.reveal()).predict(x) == answers).mean() >= 0.99


def test_numbers_and_coordinates_are_alike_in_scikit_learn(cancer, parties):
    x, y = cancer
    data = parties.columns({"bank": x[:, :3], "shop": (x[:, 3:], y)}, is_classification=False)
    for model, plain in ((Ridge(), linear_model.Ridge()), (PCA(2), decomposition.PCA(2))):
        answers = model.fit(data, parties).predict(data)
        made = to_sklearn(model.reveal())
        assert type(made) is type(plain)
        found = made.predict(x) if hasattr(made, "predict") else made.transform(x)
        assert np.abs(found - answers).max() < 2e-3
    with pytest.raises(InputError, match="not exported"):
        to_sklearn(DecisionTreeClassifier())
