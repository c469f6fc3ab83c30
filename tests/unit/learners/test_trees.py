"""Trees as users of the plain ones expect them: missing values, categories, weights, XGBoost."""

import numpy as np
import pytest
from sklearn import tree
from sklearn.datasets import make_classification

from tacit.errors import ConfigError, DataError, InputError
from tacit.learners import (
    DecisionTreeClassifier,
    GaussianNB,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    Local,
    RandomForestClassifier,
    to_xgboost,
)

xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed")
BOOSTED = {"max_depth": 2, "max_bins": 8}
THEIRS = {"max_depth": 2, "learning_rate": 0.3, "tree_method": "exact", "n_estimators": 2}


@pytest.fixture(scope="module")
def rows():
    # Few values each, so that bins lose nothing and trees can be compared with exact ones.
    x, y = make_classification(240, 4, n_informative=3, n_redundant=0, flip_y=0.1, random_state=1)
    return np.clip(np.round(2 * x), -3, 3) / 2, y


@pytest.fixture
def parties():
    with Local("bank", "shop") as found:
        yield found


def by_columns(parties, x, y, **options):
    return parties.columns({"bank": x[:, :2], "shop": (x[:, 2:], y)}, **options)


def loaded(text, tmp_path):
    path = tmp_path / "model.json"
    path.write_text(text)
    booster = xgboost.Booster()
    booster.load_model(path)
    return booster


def margins(booster, x):
    return booster.predict(xgboost.DMatrix(x), output_margin=True)


def test_missing_values_go_to_the_better_side_as_in_xgboost(rows, parties, tmp_path):
    x, y = rows[0].copy(), rows[1]
    coins = np.random.default_rng(0)
    x[(coins.random(x.shape) < 0.25) & (y[:, None] == 1)] = np.nan  # missing tells something
    data = by_columns(parties, x, y, has_missing=True)
    model = GradientBoostingClassifier(2, **BOOSTED).fit(data, parties)
    answers = model.predict(data)
    other = xgboost.XGBClassifier(base_score=0.5, **THEIRS).fit(x, y)
    assert (answers == other.predict(x)).mean() >= 0.99
    ours = margins(loaded(to_xgboost(model), tmp_path), x)
    assert np.abs(ours - other.predict(x, output_margin=True)).max() < 2e-4
    with pytest.raises(DataError, match="takes no missing values"):
        GaussianNB().fit(data, parties)
    whole = GradientBoostingClassifier(1, **BOOSTED).fit(by_columns(parties, *rows), parties)
    with pytest.raises(DataError, match="grown without missing"):
        whole.predict(data)


def test_one_category_is_split_from_all_others(parties):
    coins = np.random.default_rng(0)
    x = coins.integers(0, 5, (200, 4)).astype(float)
    y = ((x[:, 0] == 2) | (x[:, 3] == 1)).astype(int)
    data = by_columns(parties, x, y)
    model = DecisionTreeClassifier(2, max_bins=6, categorical=(0, 3)).fit(data, parties)
    assert model.score(data) == 1.0
    plain = DecisionTreeClassifier(2, max_bins=6).fit(data, parties)
    assert plain.score(data) < 0.95
    unseen = by_columns(parties, np.full((2, 4), 9.0), np.zeros(2, dtype=int))
    assert (model.predict(unseen) == 0).all()
    with pytest.raises(DataError, match="no whole number from 0 to 2"):
        DecisionTreeClassifier(2, max_bins=4, categorical=(0,)).fit(data, parties)
    with pytest.raises(ConfigError, match="no column 4"):
        DecisionTreeClassifier(2, categorical=(4,)).fit(data, parties)
    boosted = GradientBoostingClassifier(1, max_depth=1, max_bins=6, categorical=(0,))
    with pytest.raises(InputError, match="not exported"):
        to_xgboost(boosted.fit(data, parties))


def test_class_weights_count_as_weights_of_rows(rows, parties):
    x, y = rows
    data = by_columns(parties, x, y)
    weights = np.where(y == 1, 4.0, 1.0)
    model = GradientBoostingClassifier(2, class_weight=(1.0, 4.0), **BOOSTED).fit(data, parties)
    other = xgboost.XGBClassifier(base_score=0.5, **THEIRS).fit(x, y, sample_weight=weights)
    assert (model.predict(data) == other.predict(x)).mean() >= 0.99
    one = DecisionTreeClassifier(2, max_bins=8, class_weight=(1.0, 4.0)).fit(data, parties)
    plain = tree.DecisionTreeClassifier(max_depth=2, class_weight={0: 1, 1: 4}).fit(x, y)
    assert (one.predict(data) == plain.predict(x)).mean() >= 0.97
    forest = RandomForestClassifier(2, max_depth=2, max_bins=4, class_weight=(1.0, 4.0))
    assert forest.fit(data, parties).predict(data).mean() > y.mean()
    with pytest.raises(ConfigError, match="class_weight"):
        DecisionTreeClassifier(class_weight=(1.0, 2.0, 3.0)).fit(data, parties)


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_opened_trees_answer_alike_in_xgboost(rows, parties, tmp_path, classes):
    x, y = rows
    if classes == 3:
        y = (x[:, 0] > 0).astype(int) + (x[:, 2] > 0.5)
    kind = GradientBoostingClassifier if classes else GradientBoostingRegressor
    data = by_columns(parties, x, y, is_classification=bool(classes))
    model = kind(2, **BOOSTED).fit(data, parties)
    answers = model.predict(data)
    assert {one.kind for one in parties.ledger()} <= {"size", "output"}
    text = to_xgboost(model, to=("shop",))
    shown = {(one.to, one.what.split("/")[-1]) for one in parties.ledger() if one.kind == "output"}
    assert ("shop", "edges") in shown
    assert ("bank", "edges") not in shown
    found = loaded(text, tmp_path).predict(xgboost.DMatrix(x))
    if classes == 0:
        assert np.abs(found - answers).max() < 1e-4
    else:
        said = found.argmax(1) if classes == 3 else found > 0.5
        assert (said == answers).all()


def test_trees_of_rows_with_public_edges_are_exported_without_opening_any(rows, parties, tmp_path):
    x, y = rows
    edges = [[-1.25, -0.75, -0.25, 0.25, 0.75, 1.25, 1.4]] * 4
    data = parties.rows({"bank": (x[:100], y[:100]), "shop": (x[100:], y[100:])})
    model = GradientBoostingClassifier(1, edges=edges, **BOOSTED).fit(data, parties)
    found = loaded(to_xgboost(model), tmp_path).predict(xgboost.DMatrix(x))
    assert ((found > 0.5) == model.predict(data)).all()
    assert not [one for one in parties.ledger() if one.what.endswith("edges")]
