"""Public ensembles and their rows: decided, replayed, and confirmed by Z3."""

import gzip

import numpy as np
import pytest

from tacit.verify import (
    Budget,
    Counterexample,
    Robust,
    check_proof,
    closest,
    load_ensemble,
    prove,
    verify,
    verify_many,
    verify_smt,
)

pytestmark = pytest.mark.data
RADII = {"breast_cancer": 0.3, "diabetes": 0.05, "breast_cancer_robust.0008": 0.3}


def load(data, name):
    suffix = "" if "robust" in name else "_rf"
    folder = data / "tree_models"
    model = load_ensemble(folder / "models" / f"{name}{suffix}.ubj.gz")
    with np.load(folder / "testdata" / f"{name}.npz") as saved:
        return model, saved["x"].astype(np.float64)[:, : model.n_features]


@pytest.mark.parametrize("name", ["breast_cancer", "diabetes", "ori_mnist", "binary_mnist"])
def test_predictions_are_those_of_the_library(data, name):
    xgb = pytest.importorskip("xgboost", reason="XGBoost is not installed")
    path = data / "tree_models" / "models" / f"{name}_rf.ubj.gz"
    booster = xgb.Booster()
    booster.load_model(bytearray(gzip.decompress(path.read_bytes())))
    ours = load_ensemble(path)
    rows = np.random.default_rng(0).random((50, ours.n_features))
    margins = booster.predict(xgb.DMatrix(rows), output_margin=True)
    assert (ours.scores(rows) == margins.reshape(50, -1)).all()


@pytest.mark.parametrize("name", list(RADII))
def test_all_rows_are_decided_and_z3_agrees(data, name):
    model, rows = load(data, name)
    answers = verify_many(model, rows[:100], RADII[name])
    assert {type(answer) for answer in answers} == {Robust, Counterexample}
    for row, answer in zip(rows[:8], answers, strict=False):
        assert type(verify_smt(model, row, RADII[name])) is type(answer)


def test_proofs_of_a_public_ensemble_are_accepted(data):
    model, rows = load(data, "diabetes")
    for row in rows[:10]:
        safe = np.nextafter(closest(model, row).eps, 0.0)
        assert check_proof(model, prove(model, verify(model, row, safe))) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ori_mnist", "fashion_mnist"])
def test_two_thousand_trees_are_decided(data, name):
    model, rows = load(data, name)
    answers = verify_many(model, rows[:20], 0.1, budget=Budget(seconds=60.0))
    assert {type(answer) for answer in answers} <= {Robust, Counterexample}
