"""Private predictions are the library's own, whatever holds the rows and whatever is fitted."""

import numpy as np
import pyarrow
import pytest
import torch
from sklearn.cross_decomposition import PLSRegression
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import (
    GammaRegressor,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    TweedieRegressor,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import OneClassSVM
from sklearn.tree import DecisionTreeClassifier
from torch import nn

import tacit
from tacit.errors import ConfigError, DataError

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")

COINS = np.random.default_rng(5)
# Quarters, so that numbers of 16 bits hold them too.
X = COINS.integers(-12, 13, size=(150, 4)) / 4
Y = (X[:, 0] > 0) + 0 + (X[:, 1] * X[:, 2] > 1)
ROWS, NAMES = X[:24], ("age", "weight", "size", "dose")


class Frame:
    """A data frame whose columns are of several kinds, as far as it concerns us."""

    columns = np.array(NAMES)

    def to_numpy(self):
        return ROWS.astype(object)


class Named(Frame):
    """One with the columns the other way round."""

    columns = np.array(NAMES[::-1])

    def to_numpy(self):
        return ROWS[:, ::-1]


KINDS = {
    "array": ROWS,
    "single precision": ROWS.astype(np.float32),
    "by columns": np.asfortranarray(ROWS),
    "big-endian": ROWS.astype(">f8"),
    "list": ROWS.tolist(),
    "tensor": torch.tensor(ROWS, requires_grad=True),
    "tensor of 16 bits": torch.tensor(ROWS, dtype=torch.bfloat16),
    "sparse tensor": torch.tensor(ROWS).to_sparse(),
    "arrow": pyarrow.table({name: ROWS[:, at] for at, name in enumerate(NAMES)}),
    "frame": Frame(),
}
CLASSIFIERS = {
    "boosted": GradientBoostingClassifier(n_estimators=2, max_depth=2, random_state=0),
    "forest": RandomForestClassifier(2, max_depth=2, random_state=0),
    "extra trees": ExtraTreesClassifier(2, max_depth=3, random_state=0),
    "tree": DecisionTreeClassifier(max_depth=3),
    "histograms": HistGradientBoostingClassifier(max_iter=2, max_depth=2),
    "xgboost": xgboost.XGBClassifier(n_estimators=2, max_depth=2),
    "lightgbm": lightgbm.LGBMClassifier(n_estimators=2, max_depth=2, verbose=-1),
    "logistic": LogisticRegression(),
    "bayes": GaussianNB(),
    "no mean": make_pipeline(StandardScaler(with_mean=False), LogisticRegression()),
    "no spread": make_pipeline(StandardScaler(with_std=False), LogisticRegression()),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_rows_of_every_kind_get_the_library_s_classes(name):
    model = CLASSIFIERS[name].fit(X, Y)
    wanted = model.classes_[model.predict(ROWS)].tolist()
    assert len(set(wanted)) > 1
    for protocol, kinds in (("enclave", KINDS), ("sealed", ("list", "frame"))):
        private = tacit.secure(model, reveal="class", protocol=protocol)
        for kind in kinds:
            found = private(KINDS[kind]).values.flatten().tolist()
            assert found == wanted, (protocol, kind)


@pytest.mark.parametrize("protocol", ["sealed", "enclave", "he"])
@pytest.mark.parametrize("model", [Ridge(), TweedieRegressor(power=0)])
def test_a_regression_predicts_what_the_library_does(model, protocol):
    model.fit(X, X @ [1.0, -2.0, 0.5, 0.25] + 3)
    found = tacit.secure(model, protocol=protocol)(KINDS["frame"]).values.flatten().numpy()
    assert np.abs(found - model.predict(ROWS)).max() < (0.1 if protocol == "he" else 1e-3)


@pytest.mark.parametrize(
    "model",
    [
        PoissonRegressor(),
        GammaRegressor(),
        TweedieRegressor(power=1.5),
        TweedieRegressor(power=0, link="log"),
        PLSRegression(1),
        OneClassSVM(kernel="linear"),
    ],
)
def test_what_predicts_more_than_a_linear_score_is_refused_by_name(model):
    model.fit(X + 1, np.exp(X[:, 0]))
    with pytest.raises(ConfigError, match=f"{type(model).__name__} .*linear score"):
        tacit.secure(model)


@pytest.mark.parametrize("protocol", ["sealed", "permuted2", "enclave"])
def test_one_output_has_no_class(protocol):
    with pytest.raises(ConfigError, match=r"Ridge has no classes.*reveal='output'"):
        tacit.secure(Ridge().fit(X, X[:, 0]), reveal="class", protocol=protocol)
    private = tacit.secure(nn.Linear(4, 1), reveal="class", protocol=protocol)
    with pytest.raises(ConfigError, match=r"one output.*reveal='output'"):
        private(ROWS)


def test_columns_in_another_order_than_the_model_s_are_refused():
    model = LogisticRegression().fit(X, Y)
    wanted = model.predict(ROWS).tolist()
    model.feature_names_in_ = np.array(NAMES)  # as fitting to a data frame leaves them
    private = tacit.secure(model, reveal="class")
    assert private(Frame()).values.flatten().tolist() == wanted
    with pytest.raises(DataError, match=r"age, weight, size, dose.*got dose, size, weight, age"):
        private(Named())


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([["a", "b"]], "wanted rows of numbers, got <U1"),
        (np.array([[1.0, "b"]], dtype=object), "got a str among them"),
        (np.array([["2020-01-01"]], dtype="datetime64[D]"), "datetime64"),
        (np.array([[None, 1.0, 2.0, 3.0]], dtype=object), "NaN"),
        (object(), "got object"),
    ],
)
def test_what_is_no_number_is_refused_by_name(rows, words):
    with pytest.raises(DataError, match=words):
        tacit.secure(LogisticRegression().fit(X, Y), reveal="class")(rows)


@pytest.mark.parametrize("protocol", ["sealed", "he"])
def test_values_that_no_ring_holds_are_refused_by_their_owner(protocol):
    with pytest.raises(DataError, match="the input has values beyond"):
        tacit.secure(Ridge().fit(X, X[:, 0]), protocol=protocol)(X * 1e30)


@pytest.mark.parametrize("protocol", ["sealed", "he", "enclave"])
@pytest.mark.parametrize("rows", [X[:, :3], X[0], X[:, :, None]])
@pytest.mark.parametrize("model", [LogisticRegression(), GaussianNB()])
def test_rows_of_another_width_are_refused_before_anything_is_sent(model, rows, protocol):
    private = tacit.secure(model.fit(X, Y), protocol=protocol)
    with pytest.raises(DataError, match="the model wants rows of 4 columns"):
        private(rows)
