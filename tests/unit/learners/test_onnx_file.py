"""Learners as ONNX files, run by onnxruntime: the answers of scikit-learn and XGBoost."""

import numpy as np
import pytest
import xgboost
from sklearn.datasets import load_breast_cancer

from tacit.errors import InputError
from tacit.learners import (
    PCA,
    GaussianNB,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    KMeans,
    LinearSVC,
    Local,
    LogisticRegression,
    Ridge,
    to_onnx,
    to_sklearn,
    to_xgboost,
)
from tacit.learners.trees import DecisionTreeClassifier

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

X, Y = load_breast_cancer(return_X_y=True)
X, Y = ((X - X.mean(0)) / X.std(0))[:80, :4].astype(np.float32).astype(float), Y[:80]
THREE = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.3)


@pytest.fixture
def parties():
    with Local("bank", "shop") as found:
        yield found


def run(data, x):
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(None, {"x": x.astype(np.float32)}), strict=True))


def table(parties, y=Y, **options):
    return parties.columns({"bank": X[:, :2], "shop": (X[:, 2:], y)}, **options)


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (LogisticRegression(max_iter=4), Y),
        (LogisticRegression(max_iter=4), THREE),
        (LinearSVC(max_iter=4), Y),
        (GaussianNB(), THREE),
        (Ridge(), Y + 0.5),
        (KMeans(3, max_iter=3), None),
        (PCA(1), None),
    ],
)
def test_opened_learners_answer_alike_in_onnxruntime(parties, model, y):
    given = X[:, 2:] if y is None else (X[:, 2:], y)
    data = parties.columns({"bank": X[:, :2], "shop": given})
    fitted = model.fit(data, parties)
    with pytest.raises(InputError, match="share"):
        to_onnx(fitted)
    found = run(to_onnx(fitted.reveal()), X)
    plain = to_sklearn(fitted)
    if hasattr(plain, "classes_"):
        assert np.array_equal(found["label"], plain.predict(X))
        assert found["scores"].shape == (80, len(plain.classes_))
    else:
        wanted = plain.transform(X) if isinstance(model, PCA) else plain.predict(X)
        assert np.abs(found["answer"].reshape(wanted.shape) - wanted).max() < 1e-9


def test_labels_that_are_texts_come_out_as_texts(parties):
    names = np.where(Y == 1, "well", "ill")
    parts = {"bank": X[:, :2], "shop": (X[:, 2:], names)}
    data = parties.columns(parts, classes=("ill", "well"))
    model = GaussianNB().fit(data, parties).reveal()
    found = run(to_onnx(model), X)["label"]
    assert set(found) == {"ill", "well"}
    assert (found == names).mean() > 0.8


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_boosted_trees_answer_as_in_xgboost(parties, tmp_path, classes):
    y = {0: X[:, 0] + 0.5, 2: Y, 3: THREE}[classes]
    kind = GradientBoostingClassifier if classes else GradientBoostingRegressor
    data = table(parties, y, is_classification=bool(classes))
    model = kind(2 if classes < 3 else 1, max_depth=2, max_bins=4).fit(data, parties)
    (tmp_path / "trees.json").write_text(to_xgboost(model))
    booster = xgboost.Booster(model_file=tmp_path / "trees.json")
    rows = X.copy()
    rows[::5, 1] = np.nan  # where missing values go, too
    margins = booster.predict(xgboost.DMatrix(rows), output_margin=True)
    found = run(to_onnx(model), rows)
    if classes == 0:
        assert np.abs(found["answer"][:, 0] - margins).max() < 1e-6
    elif classes == 2:
        assert np.abs(found["scores"][:, 1] - margins).max() < 1e-6
        assert np.array_equal(found["label"], margins > 0)
    else:
        moved = found["scores"] - margins  # XGBoost starts all classes at one half
        assert np.abs(moved - moved[0, 0]).max() < 1e-6


def test_what_has_no_file_is_said(parties):
    model = DecisionTreeClassifier(1, max_bins=4).fit(table(parties), parties)
    with pytest.raises(InputError, match="not exported"):
        to_onnx(model)
