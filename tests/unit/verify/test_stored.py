import io
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import DataError
from tacit.verify import load_ensemble, save_ensemble, with_integers
from tacit.verify.models.build import build
from tacit.verify.models.categories import CategorySet
from tacit.verify.models.load import parse_stored, store_ensemble


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_a_stored_ensemble_gives_the_same_scores_to_the_bit(brute, seed):
    rng = np.random.default_rng(seed)
    sum_type = ("float32", "float64")[seed % 2]
    model = brute.random_ensemble(rng, scores=1 + seed % 3, values=brute.reals, sum_type=sum_type)
    again = parse_stored(store_ensemble(model))
    rows = np.array([brute.random_input(rng, model.n_features) for _ in range(20)])
    assert again.scores(rows).tobytes() == model.scores(rows).tobytes()
    assert (again.origin, again.guard, again.cutoff) == (model.origin, model.guard, model.cutoff)


def test_a_forest_of_scikit_learn_comes_back_from_its_file(brute, tmp_path):
    ensemble = pytest.importorskip("sklearn.ensemble")
    from tacit.verify import from_sklearn

    x, targets = brute.training_set()
    forest = ensemble.RandomForestClassifier(5, max_depth=4, random_state=0)
    model = from_sklearn(forest.fit(x, targets["several"]))
    save_ensemble(with_integers(model, [5]), tmp_path / "forest.npz")
    again = load_ensemble(tmp_path / "forest.npz")
    assert (again.predict(x) == forest.predict(x)).all()
    assert again.integer is not None
    assert again.integer.tolist() == [False] * 5 + [True]
    assert again.depth == 4


def change(model, **changed):
    """Store a model with some of what the file holds replaced or, by None, left out."""
    with np.load(io.BytesIO(store_ensemble(model))) as saved:
        told = dict(saved)
    rule = json.loads(told["rule"].tobytes())
    for name, value in changed.items():
        (told if name in told else rule)[name] = value
    rule = {name: value for name, value in rule.items() if value is not None}
    told = {name: value for name, value in told.items() if value is not None}
    told["rule"] = np.frombuffer(json.dumps(rule).encode(), dtype=np.uint8)
    file = io.BytesIO()
    np.savez(file, **told)
    return file.getvalue()


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"form": 3}, "form"),
        ({"takes_missing": 1}, "takes_missing"),
        ({"task": "guess"}, "task"),
        ({"input_type": "float16"}, "input_type"),
        ({"divisor": 0.0}, "divisor"),
        ({"cutoff": float("nan")}, "cutoff"),
        ({"n_features": 0}, "n_features"),
        ({"origin": 3}, "origin"),
        ({"guard": None}, "guard"),
        ({"roots": None}, "roots"),
        ({"value": np.zeros(3)}, "value"),
        ({"threshold": np.array(["a"], dtype=object)}, "pickle"),
    ],
)
def test_a_file_that_was_tampered_with_is_refused(brute, changed, match):
    model = brute.random_ensemble(np.random.default_rng(0))
    with pytest.raises(DataError, match=match):
        parse_stored(change(model, **changed))


def test_questions_about_categories_come_back_and_must_fit(brute):
    sets = {0: CategorySet(low=np.array([2.0]), high=np.array([2.5]), listed_left=True)}
    tree = brute.random_tree(
        np.random.default_rng(1), n_features=2, depth=2, scores=1, values=brute.reals
    )
    rule = {"base": np.zeros(1), "n_features": 2, "task": "regress", "takes_missing": True}
    model = build([replace(tree, sets=sets)], **rule)
    again = parse_stored(store_ensemble(model))
    rows = np.array([[2.0, 1.0], [2.6, 1.0], [np.nan, 0.0], [0.0, 2.5]])
    assert again.takes_missing
    assert (again.scores(rows) == model.scores(rows)).all()
    for name, wrong in (("start", [0, 2]), ("feature", [2]), ("low", [2.0, 3.0])):
        kind = getattr(model.categories, name).dtype
        with pytest.raises(DataError, match="categor"):
            parse_stored(change(model, **{f"category_{name}": np.array(wrong, kind)}))


def test_a_file_of_version_0_1_loads_and_takes_no_missing_values(brute):
    model = replace(brute.random_ensemble(np.random.default_rng(0)), takes_missing=True)
    again = parse_stored(change(model, form=1, takes_missing=None))
    assert not again.takes_missing


def test_marks_of_whole_numbers_must_fit(brute):
    model = brute.random_ensemble(np.random.default_rng(0))
    marked = with_integers(model, [0])
    with pytest.raises(DataError, match="whole"):
        parse_stored(change(marked, integer=np.zeros(model.n_features + 1, dtype=bool)))


def test_a_broken_archive_is_refused():
    with pytest.raises(DataError, match="stored"):
        parse_stored(b"PK\x03\x04 but no more")
