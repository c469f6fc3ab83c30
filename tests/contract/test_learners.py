"""Every learner under every protocol: it learns, and the meter counts what was planned."""

import numpy as np
import pytest

from tacit import learners
from tacit.learners import Classifier, Local, Regressor
from tacit.mpc import PROTOCOLS

TREE = {"max_depth": 1, "max_bins": 4}
LEARNERS = {
    "KMeans": {"n_clusters": 2, "max_iter": 2},
    "GaussianNB": {},
    "CategoricalNB": {"n_categories": 3},
    "LinearRegression": {},
    "Ridge": {"alpha": 0.1},
    "Lasso": {"alpha": 0.01, "max_iter": 10},
    "ExtremeLearning": {"n_features": 6, "alpha": 0.1},
    "LogisticRegression": {"max_iter": 4},
    "LinearSVC": {"max_iter": 4},
    "PCA": {"n_components": 1, "squarings": 3},
    "KNeighbors": {"n_neighbors": 3},
    "DecisionTreeClassifier": TREE,
    "RandomForestClassifier": {"n_estimators": 2, "max_features": 1.0, **TREE},
    "GradientBoostingClassifier": {"n_estimators": 2, **TREE},
    "GradientBoostingRegressor": {"n_estimators": 3, "learning_rate": 0.8, **TREE},
    "StandardScaler": {},
}
FAST = ("KMeans", "LogisticRegression")


def rows(name):
    """Give rows that any learner of its kind gets right: two groups, and a line through them."""
    coins = np.random.default_rng(0)
    y = np.arange(24) % 2
    if name == "CategoricalNB":
        return np.stack([2.0 * y, coins.integers(0, 3, 24)], axis=1), y
    x = np.stack([2.0 * y - 1, 1 - 2.0 * y], axis=1) + coins.normal(scale=0.1, size=(24, 2))
    return x, x[:, 0] if issubclass(getattr(learners, name), Regressor) else y


def traffic(cost):
    found = {}
    for one in cost.traffic:
        if one.phase != "setup":
            found[one.sender, one.receiver, one.phase] = one.payload_bytes
    return found


def check(name, protocol):
    x, y = rows(name)
    model = getattr(learners, name)(**LEARNERS[name])
    with Local("bank", "shop", protocol=protocol) as parties:
        parts = {"bank": (x[:10], y[:10]), "shop": (x[10:], y[10:])}
        data = parties.rows(parts, is_classification=not isinstance(model, Regressor))
        planned = traffic(model.forecast(data, parties).cost)
        before = traffic(parties.cost())
        model.fit(data, parties)
        spent = {key: size - before.get(key, 0) for key, size in traffic(parties.cost()).items()}
        assert {key: size for key, size in spent.items() if size} == planned
        shown = {one.kind for one in parties.ledger()}
        assert "output" not in shown
        if protocol == "sealed":
            assert shown == {"size"}
        if isinstance(model, Classifier | Regressor):
            assert model.score(data) > 0.9
        if isinstance(model, Classifier):
            assert model.auc(data) == pytest.approx(1.0, abs=0.05)
            assert model.ks(data) == pytest.approx(1.0, abs=0.15)
        elif name == "KMeans":
            assert -model.score(data) < 24 * 2 * 0.03
        else:
            opened = model.reveal()
            assert all(np.isfinite(getattr(opened, f"{one}_")).all() for one in opened.results)


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
@pytest.mark.parametrize("name", FAST)
def test_a_learner_runs_under_every_protocol_at_the_planned_cost(name, protocol):
    check(name, protocol)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
@pytest.mark.parametrize("name", [name for name in LEARNERS if name not in FAST])
def test_all_learners_run_under_every_protocol_at_the_planned_cost(name, protocol):
    check(name, protocol)


def test_no_learner_is_left_out():
    known = {
        name
        for name in learners.__all__
        if isinstance(getattr(learners, name), type)
        and issubclass(getattr(learners, name), learners.Learner)
    }
    assert known - {"Learner", "Classifier", "Regressor"} == set(LEARNERS)
