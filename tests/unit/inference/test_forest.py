"""Forests and other estimators made private: the library's classes, and nothing else shown."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import tacit
from tacit.errors import ConfigError, DataError, DisagreementError
from tacit.inference.forest import FOREST, agree_on_forest, make_forest, order_of
from tacit.mpc import PROTOCOLS
from tacit.party import Meeting, run_threads, without_setup
from tacit.verify import import_ensemble

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")


def missing(x):
    """Take values away, here and there."""
    x = x.copy()
    x[::3, 5], x[1::4, 20] = np.nan, np.nan
    return x


BINARY, DIGITS = (load(return_X_y=True) for load in (load_breast_cancer, load_digits))
MODELS = {
    "forest": (RandomForestClassifier(7, max_depth=4, random_state=0), BINARY),
    "uneven tree": (DecisionTreeClassifier(max_leaf_nodes=9, random_state=0), DIGITS),
    "boosted by scikit-learn": (GradientBoostingClassifier(n_estimators=4, random_state=0), BINARY),
    "xgboost": (xgboost.XGBClassifier(n_estimators=4, max_depth=3), DIGITS),
    "xgboost, missing": (
        xgboost.XGBClassifier(n_estimators=6, max_depth=3),
        (missing(DIGITS[0]), DIGITS[1]),
    ),
    "lightgbm": (lightgbm.LGBMClassifier(n_estimators=5, max_depth=3, verbose=-1), BINARY),
}


@pytest.mark.parametrize("name", MODELS)
def test_classes_are_the_library_s(name):
    model, (x, y) = MODELS[name]
    half = len(x) // 2
    model.fit(x[:half], y[:half])
    answer = tacit.secure(model, reveal="class")(torch.from_numpy(x[half:]))
    assert answer.values.reshape(-1).tolist() == model.predict(x[half:]).tolist()


def small():
    x, y = DIGITS
    return RandomForestClassifier(2, max_depth=2, random_state=0).fit(x, y), torch.from_numpy(
        x[:9].copy()
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_computes_it_at_the_planned_cost_and_shows_sizes_alone(protocol):
    model, x = small()
    answer = tacit.secure(model, reveal="class", protocol=protocol)(x)
    assert answer.values.reshape(-1).tolist() == model.predict(x.numpy()).tolist()
    assert without_setup(answer.cost) == answer.result.forecast.cost
    learned = {(one.to, one.kind) for one in answer.ledger if one.kind != "protocol"}
    assert learned == {("server", "size"), ("dealer", "size"), ("client", "output")}


def test_what_is_planned_depends_on_sizes_alone():
    x, y = DIGITS
    plans = set()
    for classes in (y, y[::-1].copy()):
        model = RandomForestClassifier(3, max_depth=2, random_state=1).fit(x, classes)
        forest = make_forest(import_ensemble(model), is_class=True)
        assert {
            name: float(one.abs().max()) <= forest.bounds[name]
            for name, one in forest.weights.items()
        } == dict.fromkeys(forest.weights, True)
        private = tacit.secure(forest, reveal="class")
        plans.add(private.plan(private.facts((5, 64))).digest())
    assert len(plans) == 1


def test_thresholds_are_met_exactly():
    """Rows that lie on a threshold, and one float on either side of it."""
    model, _ = small()
    ensemble = import_ensemble(model)
    asked = ensemble.feature >= 0
    rows = []
    for feature, threshold in zip(ensemble.feature[asked], ensemble.threshold[asked], strict=True):
        near = np.float32(threshold)
        for value in (near, np.nextafter(near, np.float32(99)), np.nextafter(near, np.float32(-9))):
            row = np.zeros(64)
            row[feature] = value
            rows.append(row)
    answer = tacit.secure(model, reveal="class")(torch.from_numpy(np.array(rows)))
    assert answer.values.reshape(-1).tolist() == model.predict(np.array(rows)).tolist()


def test_whole_numbers_stand_in_the_order_of_floats():
    values = np.array([-np.inf, -3e38, -1.5, -1e-45, -0.0, 0.0, 1e-45, 1.0, 3e38, np.inf])
    order = order_of(values)
    assert (np.diff(order) >= 0).all()
    assert order[4] == order[5] == 0
    assert len(set(order)) == 9


OTHERS = {
    "logistic": (LogisticRegression(max_iter=500), DIGITS),
    "svc": (LinearSVC(), BINARY),
    "kernel": (SVC(kernel="linear"), BINARY),
    "bayes": (GaussianNB(), BINARY),
    "pipeline": (make_pipeline(StandardScaler(), LogisticRegression()), BINARY),
}


@pytest.mark.parametrize("name", OTHERS)
def test_linear_models_and_bayes_have_the_library_s_classes(name):
    model, (x, y) = OTHERS[name]
    x = x / np.abs(x).max(axis=0).clip(1e-9)
    model.fit(x[:200], y[:200])
    answer = tacit.secure(model, reveal="class")(torch.from_numpy(x[200:]))
    same = answer.values.reshape(-1).numpy() == model.predict(x[200:])
    assert same.mean() >= 0.99


def test_a_regression_gives_its_output():
    x, y = BINARY
    x = x[:, :4] / 100
    model = LinearRegression().fit(x, y)
    found = tacit.secure(model)(torch.from_numpy(x[:20])).values.reshape(-1).numpy()
    assert np.abs(found - model.predict(x[:20])).max() < 1e-2


REFUSED = {
    "a regression of trees": (DecisionTreeRegressor(), "class", "a classifier"),
    "scores of a forest": (RandomForestClassifier(2, max_depth=2), "output", "reveal='class'"),
    "a forest too deep": (DecisionTreeClassifier(), "class", "depth 1 to 12"),
    "a kernel": (SVC(kernel="rbf"), "class", "linear kernel|SVC"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_computed_is_refused_with_what_to_do(name):
    model, reveal, words = REFUSED[name]
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(3000, 8)), generator.integers(2, size=3000)
    model.fit(x, y)
    with pytest.raises((ConfigError, DataError), match=words):
        tacit.secure(model, reveal=reveal)


def test_rows_that_do_not_fit_are_refused_before_anything_is_sent():
    model, x = small()
    private = tacit.secure(model, reveal="class")
    with pytest.raises(DataError, match="64 columns"):
        private(x[:, :5])
    x[0, 0] = np.nan
    with pytest.raises(DataError, match=r"missing values \(NaN\)"):
        tacit.secure(GradientBoostingClassifier(n_estimators=2).fit(*DIGITS), reveal="class")(x)


@pytest.mark.parametrize("sizes", [(1 << 30, 4, 3, 2, 0), (1, 40, 3, 2, 0), (1, 2, 0, 2, 0)])
def test_an_owner_cannot_announce_what_nobody_can_compute(sizes):
    def owner(session):
        session.publish(FOREST, sizes)

    programs = {"ann": owner, "bob": lambda session: agree_on_forest(session, "ann", None)}
    with pytest.raises(DisagreementError, match="ann"):
        run_threads(programs, Meeting(parties=("ann", "bob"), job_digest=bytes(32)))
