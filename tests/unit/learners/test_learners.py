"""Learners on shares against scikit-learn and XGBoost on the same rows, and what parties see."""

import numpy as np
import pytest
from sklearn import cluster, decomposition, linear_model, naive_bayes, neighbors, svm, tree
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris, make_blobs, make_classification

from tacit.errors import ConfigError, DataError, InputError, TacitError
from tacit.learners import (
    PCA,
    CategoricalNB,
    Connected,
    DecisionTreeClassifier,
    ExtremeLearning,
    GaussianNB,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    KMeans,
    KNeighbors,
    Lasso,
    LinearRegression,
    LinearSVC,
    Local,
    LogisticRegression,
    RandomForestClassifier,
    Ridge,
    StandardScaler,
)
from tacit.learners.bins import cut
from tacit.mpc import PROTOCOLS
from tacit.party import Meeting, run_threads

PROTOCOL = ["sealed", "permuted3"]


def scaled(x):
    return (x - x.mean(0)) / (x.std(0) + 1e-3)


@pytest.fixture(scope="module")
def iris():
    x, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    return scaled(x)[order], y[order]


@pytest.fixture(scope="module")
def diabetes():
    x, y = load_diabetes(return_X_y=True)
    return scaled(x), (y - y.mean()) / y.std()


def by_rows(parties, x, y=None, **options):
    cut_at = len(x) // 3
    parts = [x[:cut_at], x[cut_at:]]
    if y is not None:
        parts = list(zip(parts, [y[:cut_at], y[cut_at:]], strict=True))
    return parties.rows(dict(zip(parties.owners, parts, strict=False)), **options)


def by_columns(parties, x, y, **options):
    parts = {"bank": x[:, :2], "shop": (x[:, 2:], y)}
    return parties.columns(parts, **options)


def meter_of(cost):
    """Return bytes by phase and link; the setup is no part of a plan."""
    found = {}
    for one in cost.traffic:
        if one.phase != "setup":
            key = one.sender, one.receiver, one.phase
            found[key] = max(found.get(key, 0), one.payload_bytes)
    return found


@pytest.mark.parametrize("protocol", PROTOCOL)
def test_k_means_finds_the_clusters_that_scikit_learn_finds(protocol):
    x = scaled(make_blobs(300, 6, centers=4, random_state=1)[0])
    with Local("bank", "shop", protocol=protocol) as parties:
        data = by_rows(parties, x)
        model = KMeans(4, n_init=2, max_iter=6).fit(data, parties)
        groups = model.predict(data)
        model.reveal()
    other = cluster.KMeans(4, n_init=5, random_state=0).fit(x)
    assert float(model.inertia_[0]) <= 1.005 * other.inertia_
    pairs = set(zip(groups.tolist(), other.labels_.tolist(), strict=True))
    assert len(pairs) == 4


def test_an_empty_cluster_stays_where_it_is():
    x = np.repeat([[0.0, 0.0], [4.0, 4.0]], 5, axis=0)
    with Local("bank", "shop") as parties:
        model = KMeans(3, init="random", max_iter=3).fit(by_rows(parties, x), parties).reveal()
    assert abs(float(model.inertia_[0])) < 1e-3
    assert np.isfinite(model.cluster_centers_).all()


@pytest.mark.parametrize("protocol", PROTOCOL)
def test_gaussian_bayes_answers_as_scikit_learn_does(iris, protocol):
    x, y = iris
    with Local("bank", "shop", protocol=protocol) as parties:
        data = by_columns(parties, x, y)
        model = GaussianNB().fit(data, parties)
        answers, score = model.predict(data), model.score(data)
    other = naive_bayes.GaussianNB().fit(x, y)
    assert (answers == other.predict(x)).mean() >= 0.99
    assert score == pytest.approx(other.score(x, y), abs=0.01)


def test_categorical_bayes_answers_as_scikit_learn_does():
    coins = np.random.default_rng(0)
    y = coins.integers(0, 3, 300)
    x = np.stack([(y + coins.integers(0, 3, 300)) % 5 for _ in range(4)], 1)
    with Local("bank", "shop") as parties:
        data = by_rows(parties, x, y)
        model = CategoricalNB(5).fit(data, parties)
        answers = model.predict(data)
        model.reveal()
    other = naive_bayes.CategoricalNB(min_categories=5).fit(x, y)
    assert (answers == other.predict(x)).mean() >= 0.99
    wanted = np.stack(other.feature_log_prob_, 1).reshape(3, -1)
    assert np.abs(model.feature_log_prob_ - wanted).max() < 2e-3


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Ridge(1.0), linear_model.Ridge(1.0)),
        (LinearRegression(), linear_model.LinearRegression()),
        (Lasso(0.05, max_iter=40), linear_model.Lasso(0.05)),
    ],
)
def test_linear_models_have_the_weights_of_scikit_learn(diabetes, ours, theirs):
    x, y = diabetes
    with Local("bank", "shop") as parties:
        data = by_rows(parties, x, y + 0.5)
        ours.fit(data, parties)
        score = ours.score(data)
        ours.reveal()
    theirs.fit(x, y + 0.5)
    assert np.abs(ours.coef_[:, 0] - theirs.coef_).max() < 1e-3
    assert float(ours.intercept_[0, 0]) == pytest.approx(theirs.intercept_, abs=1e-3)
    assert score == pytest.approx(theirs.score(x, y + 0.5), abs=1e-3)


def test_an_extreme_learning_machine_is_a_ridge_on_features_that_owners_make(diabetes):
    x, y = diabetes
    with Local("bank", "shop") as parties:
        data = by_rows(parties, x, y)
        score = ExtremeLearning(24).fit(data, parties).score(data)
        with pytest.raises(DataError, match="owners of rows"):
            ExtremeLearning(24).fit(by_columns(parties, x, y), parties)
    assert score > linear_model.Ridge(1.0).fit(x, y).score(x, y) - 0.1


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (LogisticRegression(max_iter=20), linear_model.LogisticRegression()),
        (LinearSVC(max_iter=20), svm.LinearSVC(dual=False)),
    ],
)
@pytest.mark.parametrize("protocol", PROTOCOL)
def test_linear_classifiers_answer_as_scikit_learn_does(iris, ours, theirs, protocol):
    x, y = iris
    with Local("bank", "shop", protocol=protocol) as parties:
        data = by_columns(parties, x, y)
        answers = clone(ours).fit(data, parties).predict(data)
    assert (answers == theirs.fit(x, y).predict(x)).mean() >= 0.97


def test_class_weights_move_the_border(iris):
    x, y = iris[0], (iris[1] == 2).astype(int)
    with Local("bank", "shop") as parties:
        data = by_columns(parties, x, y)
        model = LogisticRegression(max_iter=25, class_weight=(1.0, 5.0)).fit(data, parties)
        answers = model.predict(data)
    other = linear_model.LogisticRegression(class_weight={0: 1.0, 1: 5.0}).fit(x, y)
    assert (answers == other.predict(x)).mean() >= 0.97
    assert answers.sum() > linear_model.LogisticRegression().fit(x, y).predict(x).sum()


def test_principal_components_are_those_of_scikit_learn(iris):
    with Local("bank", "shop") as parties:
        model = PCA(2).fit(by_rows(parties, iris[0]), parties).reveal()
    other = decomposition.PCA(2).fit(iris[0])
    cosines = np.abs((model.components_ * other.components_).sum(1))
    assert (cosines >= 0.999).all()
    assert model.explained_variance_[:, 0] == pytest.approx(other.explained_variance_, rel=1e-2)


def test_neighbours_vote_without_being_named(iris):
    x, y = iris
    with Local("bank", "shop") as parties:
        known = by_rows(parties, x[:60], y[:60])
        asked = parties.rows({"bank": (x[60:80], y[60:80])})
        answers = KNeighbors(3).fit(known, parties).predict(asked)
        ledger = {one.what for one in parties.ledger()}
    other = neighbors.KNeighborsClassifier(3).fit(x[:60], y[:60])
    assert (answers == other.predict(x[60:80])).mean() >= 0.9
    assert not any("neighbour" in what for what in ledger)


def test_a_scaler_hands_shares_to_the_next_learner(iris):
    x, y = 5 + 3 * iris[0], iris[1]
    with Local("bank", "shop") as parties:
        data = StandardScaler().fit_transform(by_rows(parties, x, y), parties)
        score = LogisticRegression(max_iter=12).fit(data, parties).score(data)
        assert {one.kind for one in parties.ledger()} <= {"size", "output"}
        with pytest.raises(DataError, match="raw features"):
            DecisionTreeClassifier().fit(data, parties)
    assert score > 0.94


def binned(x, bins):
    """Cut columns as their owner does, for XGBoost to see the same bins."""
    with Local("bank", "shop") as parties:
        data = parties.columns({"bank": x})
        edges = cut(data, name="", bins=bins, edges=None).edges["bank"].numpy()
    columns = [np.searchsorted(edges[at], x[:, at], side="left") for at in range(x.shape[1])]
    return np.stack(columns, 1).astype(float)


def test_boosted_trees_are_those_of_xgboost_on_the_same_bins(diabetes):
    xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed")
    x, y = diabetes[0][:300], diabetes[1][:300]
    with Local("bank", "shop") as parties:
        data = by_columns(parties, x, y)
        model = GradientBoostingRegressor(2, max_depth=3, max_bins=8).fit(data, parties)
        answers = model.predict(data)
    options = {"learning_rate": 0.3, "base_score": 0.0, "tree_method": "exact"}
    other = xgboost.XGBRegressor(n_estimators=2, max_depth=3, **options)
    bins = binned(x, 8)
    assert np.abs(answers - other.fit(bins, y).predict(bins)).max() < 1e-3


def test_boosting_classes_answers_as_xgboost_does():
    xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed")
    x, y = make_classification(400, 6, n_informative=4, flip_y=0.1, random_state=0)
    with Local("bank", "shop") as parties:
        data = by_columns(parties, x, y, classes=(0, 1))
        model = GradientBoostingClassifier(2, max_depth=3, max_bins=8).fit(data, parties)
        answers = model.predict(data)
    options = {"learning_rate": 0.3, "base_score": 0.5, "tree_method": "exact"}
    other = xgboost.XGBClassifier(n_estimators=2, max_depth=3, **options)
    bins = binned(x, 8)
    assert (answers == other.fit(bins, y).predict(bins)).mean() >= 0.99


def test_a_tree_and_a_forest_come_near_those_of_scikit_learn(iris):
    x, y = iris
    with Local("bank", "shop") as parties:
        data = by_columns(parties, x, y)
        one = DecisionTreeClassifier(2, max_bins=8).fit(data, parties).score(data)
        forest = RandomForestClassifier(3, max_depth=2, max_bins=8).fit(data, parties)
        several = GradientBoostingClassifier(1, max_depth=2, max_bins=8).fit(data, parties)
        assert forest.score(data) > 0.85
        assert several.score(data) > 0.85
    assert one >= tree.DecisionTreeClassifier(max_depth=2).fit(x, y).score(x, y) - 0.05


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_the_forecast_is_what_the_meter_counts(iris, protocol):
    x, y = iris[0][:40], iris[1][:40]
    with Local("bank", "shop", "clinic", protocol=protocol) as parties:
        data = parties.rows(
            {"bank": (x[:20], y[:20]), "shop": (x[20:30], y[20:30]), "clinic": (x[30:], y[30:])}
        )
        before = meter_of(parties.cost())
        forecast = GaussianNB().forecast(data, parties)
        GaussianNB().fit(data, parties)
        after = meter_of(parties.cost())
    spent = {key: size - before.get(key, 0) for key, size in after.items()}
    assert {key: size for key, size in spent.items() if size} == meter_of(forecast.cost)


def test_under_sealed_the_ledger_of_a_fit_says_sizes_only(iris):
    with Local("bank", "shop") as parties:
        data = by_columns(parties, *iris)
        model = GradientBoostingClassifier(1, max_depth=2, max_bins=4).fit(data, parties)
        assert {one.kind for one in parties.ledger()} == {"size"}
        model.score(data, to=("shop",))
        shown = [one for one in parties.ledger() if one.kind != "size"]
    assert [(one.to, one.elements) for one in shown] == [("shop", 1)]


def test_every_party_alone_runs_the_same_program(iris):
    x, y = iris
    parts = {"bank": x[:, :2], "shop": (x[:, 2:], y)}

    def party(session):
        parties = Connected(session, owners=("bank", "shop"))
        mine = {session.me: parts[session.me]} if session.me in parts else {}
        data = parties.columns(mine)
        model = GaussianNB().fit(data, parties)
        return model.score(data, to=("shop",))

    names = ("bank", "shop", "dealer")
    meeting = Meeting(parties=names, job_digest=bytes(32))
    found = run_threads(dict.fromkeys(names, party), meeting)
    assert found["shop"] == pytest.approx(naive_bayes.GaussianNB().fit(x, y).score(x, y), abs=0.01)
    assert found["bank"] is None
    assert found["dealer"] is None


BAD = [
    (lambda p: p.rows({"bank": [[1.0, np.nan]]}), "NaN"),
    (lambda p: p.rows({"bank": [["a", "b"]]}), "features of 'bank': wanted rows of numbers"),
    (lambda p: p.rows({"bank": np.ones(3)}), "rows and columns"),
    (lambda p: p.rows({"bank": (np.ones((3, 2)), [0, 1])}), "3 rows and 2 labels"),
    (lambda p: p.rows({"bank": np.ones((3, 2)), "shop": np.ones((3, 1))}), "same columns"),
    (lambda p: p.columns({"bank": np.ones((3, 2)), "shop": np.ones((2, 2))}), "same rows"),
    (lambda p: p.rows({"lab": np.ones((3, 2))}), "no owner here"),
    (lambda p: p.rows({"bank": (np.ones((2, 1)), ["x", "z"])}, classes=("x", "y")), "classes"),
]


@pytest.mark.parametrize(("make", "words"), BAD)
def test_tables_that_cannot_be_are_refused_by_name(make, words):
    with Local("bank", "shop") as parties, pytest.raises(TacitError, match=words):
        make(parties)


def test_what_cannot_be_learned_is_refused_before_a_row_is_shared(iris):
    x, y = iris
    with Local("bank", "shop") as parties:
        data = by_columns(parties, x, y)
        before = parties.cost()
        one = parties.rows({"bank": (x[:5], np.zeros(5, dtype=int))})
        for model, table, words in [
            (KMeans(1000), data, "n_clusters"),
            (GaussianNB(), one, "single class"),
            (Ridge(), data, "labels that are numbers"),
            (DecisionTreeClassifier(20), data, "max_depth"),
            (LogisticRegression(C=0), data, "C: wanted a number above 0"),
            (CategoricalNB(3), data, "category"),
            (KNeighbors(0), data, "n_neighbors"),
            (PCA(9), data, "n_components"),
        ]:
            with pytest.raises((ConfigError, DataError), match=words):
                model.fit(table, parties)
        with pytest.raises(InputError, match="not fitted"):
            GaussianNB().predict(data)
        assert parties.cost().online_rounds == before.online_rounds
    with pytest.raises(ConfigError, match="two owners"):
        Local("bank")
    with pytest.raises(ConfigError, match="have ended"):
        parties.rows({"bank": x})


def test_learners_are_cloned_and_shown_as_in_scikit_learn(iris):
    model = RandomForestClassifier(3, max_depth=2)
    assert clone(model).get_params() == model.get_params()
    assert "RandomForestClassifier" in repr(model)
    for one in (Lasso(0.1), LinearRegression(), ExtremeLearning(8), KMeans(3)):
        assert clone(one).get_params() == one.get_params()
    with Local("bank", "shop") as parties:
        fitted = GaussianNB().fit(by_columns(parties, *iris), parties)
        assert "shares" in repr(fitted)
        assert "<table" in fitted._repr_html_()
        assert fitted.theta_.reveal(("bank",)).shape == (3, 4)
