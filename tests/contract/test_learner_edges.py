"""What data may be like: every learner takes it as scikit-learn does, or refuses it in time.

Refused is before anything but public facts is sent: the meter counts no word beyond setup.
"""

import numpy as np
import pytest

from contract.test_learners import LEARNERS, rows
from tacit import learners
from tacit.errors import InputError, TacitError
from tacit.learners import Classifier, Local, Regressor

LABELLED = [
    name for name in LEARNERS if issubclass(getattr(learners, name), Classifier | Regressor)
]
CLASSES = [name for name in LABELLED if issubclass(getattr(learners, name), Classifier)]


def changed(x, at, value):
    found = x.copy()
    found[at] = value
    return found


def halves(x, y, at=10):
    return {"bank": (x[:at], y[:at]), "shop": (x[at:], y[at:])}


REFUSED = {
    "other columns": (
        LEARNERS,
        lambda x, y: halves(x, y) | {"shop": (x[10:, :1], y[10:])},
        "same columns",
    ),
    "NaN": (LEARNERS, lambda x, y: halves(changed(x, (3, 0), np.nan), y), "NaN"),
    "infinity": (LEARNERS, lambda x, y: halves(changed(x, (12, 1), np.inf), y), "infinite"),
    "no rows": (LEARNERS, lambda x, y: halves(x, y) | {"bank": (x[:0], y[:0])}, "one row"),
    "labels NaN": (LEARNERS, lambda x, y: halves(x, changed(y.astype(float), 3, np.nan)), "NaN"),
    "labels too few": (LEARNERS, lambda x, y: halves(x, y) | {"bank": (x[:10], y[:9])}, "9 labels"),
    "labels of one owner": (
        LABELLED,
        lambda x, y: halves(x, y) | {"bank": x[:10]},
        "without labels",
    ),
    "no labels": (LABELLED, lambda x, y: {"bank": x[:10], "shop": x[10:]}, "wants labels"),
    "one class": (CLASSES, lambda x, y: halves(x, np.zeros(len(y))), "single class"),
}


def sent(parties):
    return sum(one.payload_bytes for one in parties.cost().traffic if one.phase != "setup")


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_learned_from_is_refused_before_anything_is_sent(case):
    names, make, words = REFUSED[case]
    with Local("bank", "shop") as parties:
        for name in names:
            x, y = rows(name)
            model = getattr(learners, name)(**LEARNERS[name])
            is_classes = not isinstance(model, Regressor)
            with pytest.raises(InputError, match=words):
                model.fit(parties.rows(make(x, y), is_classification=is_classes), parties)
        assert sent(parties) == 0


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("KMeans", {"n_clusters": 25}, "25"),
        ("KNeighbors", {"n_neighbors": 25}, "25"),
        ("PCA", {"n_components": 3}, "3"),
        ("CategoricalNB", {"n_categories": 2}, "no category"),
        ("DecisionTreeClassifier", {"max_depth": 9}, "max_depth"),
        ("GradientBoostingClassifier", {"max_bins": 1}, "max_bins"),
        ("GradientBoostingClassifier", {"categorical": (7,)}, "no column 7"),
        ("GradientBoostingClassifier", {"categorical": (0,), "max_bins": 8}, "categorical column"),
        ("RandomForestClassifier", {"class_weight": (1.0,)}, "class_weight"),
    ],
)
def test_parameters_that_do_not_fit_the_table_are_refused_as_soon(name, options, words):
    x, y = rows(name)
    with Local("bank", "shop") as parties:
        data = parties.rows(halves(x, y), is_classification=True)
        with pytest.raises(TacitError, match=words):
            getattr(learners, name)(**LEARNERS[name] | options).fit(data, parties)
        assert sent(parties) == 0


def test_values_that_are_too_large_are_refused_before_anything_is_sent():
    x, y = rows("Ridge")
    for name in ("KMeans", "Ridge"):
        model = getattr(learners, name)(**LEARNERS[name])
        with Local("bank", "shop") as parties:
            labels = y if name == "Ridge" else (y > 0).astype(float)
            data = parties.rows(halves(1e9 * x, labels), is_classification=name != "Ridge")
            with pytest.raises(InputError, match="more than 62 bits"):
                model.fit(data, parties)
            assert sent(parties) == 0
            small = parties.rows(halves(x, labels), is_classification=name != "Ridge")
            model.fit(small, parties)  # the parties live on


def learned(name, x, y, at):
    model = getattr(learners, name)(**LEARNERS[name] | FEWER.get(name, {}))
    with Local("bank", "shop") as parties:
        is_classes = not isinstance(model, Regressor)
        data = parties.rows(halves(x, y, at), is_classification=is_classes)
        model.fit(data, parties)
        if isinstance(model, Classifier | Regressor):
            return model.score(data)
        found = model.reveal()
        return [np.asarray(getattr(found, f"{one}_")) for one in found.results]


FEWER = {"KNeighbors": {"n_neighbors": 1}}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_two_rows_and_constant_columns_are_learned_from(name):
    x, y = rows(name)
    flat = x.copy()
    flat[:, 1] = 1.0
    for one, labels, at in ((x[:2], y[:2], 1), (flat, y, 10), (0 * x, y, 10)):
        found = learned(name, one, labels, at)
        if isinstance(found, float):
            assert found > 0.9 or one is not flat
            assert -0.01 <= found <= 1.0
        else:
            assert all(np.isfinite(value).all() for value in found)


def test_labels_that_are_all_alike_score_as_scikit_learn_says():
    x, _ = rows("Ridge")
    assert learned("Ridge", x, np.full(24, 0.0), 10) == 1.0


def test_a_cluster_without_rows_stays_where_it_was():
    x = np.array([[1.0, 1.0]] * 12 + [[-1.0, -1.0]] * 12)
    with Local("bank", "shop") as parties:
        data = parties.rows({"bank": x[:12], "shop": x[12:]})
        model = learners.KMeans(4, max_iter=3).fit(data, parties)
        centres = model.reveal().cluster_centers_
        assert np.isfinite(centres).all()
        assert -model.score(data) < 1e-3


def test_a_category_that_was_never_seen_is_none_of_the_known_ones():
    coins = np.random.default_rng(0)
    kinds = coins.integers(0, 3, 60).astype(float)
    x, y = np.stack([kinds, coins.normal(size=60)], axis=1), (kinds == 1).astype(float)
    with Local("bank", "shop") as parties:
        data = parties.columns({"bank": x[:, :1], "shop": (x[:, 1:], y)})
        tree = {"max_depth": 1, "max_bins": 6, "categorical": (0,)}
        model = learners.DecisionTreeClassifier(**tree).fit(data, parties)
        new = parties.columns({"bank": np.array([[1.0], [4.0], [77.0]]), "shop": np.zeros((3, 1))})
        assert model.predict(new).tolist() == [1, 0, 0]
