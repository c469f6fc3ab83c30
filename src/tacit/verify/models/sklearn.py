"""scikit-learn models: trees, forests, gradient boosting and histogram gradient boosting.

What scikit-learn does and this module keeps: trees round inputs to float32 and ask ``x <= t``
with a float64 threshold; forests add up float64 probabilities or outputs in the order of their
trees (with ``n_jobs`` above 1 the order is that of the threads: verify what one thread predicts)
and divide by their number; boosting adds learning_rate × value to the initial score.
Histogram boosting compares and adds in float64; its categories are known by their value, and one
that was not seen in training goes where a missing value goes.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import DataError
from tacit.verify.kernels.tables import Bools, Floats
from tacit.verify.models.build import Tree, build
from tacit.verify.models.categories import CategorySet
from tacit.verify.models.ensemble import Ensemble, Task

FORESTS = ("RandomForest", "ExtraTrees")
LEAST_POSITIVE = float(np.nextafter(0.0, 1.0))


Model = Any
"""A fitted model or a part of one: most of what is read here no type of scikit-learn lists."""


def from_sklearn(model: object) -> Ensemble:
    """Import a fitted DecisionTree, ExtraTree, RandomForest, ExtraTrees or (Hist)GradientBoosting.

    Class c of the ensemble is ``model.classes_[c]``.
    """
    fitted: Model = model
    name = type(model).__name__
    family = name.removesuffix("Classifier").removesuffix("Regressor")
    task: Task = "classify" if name.endswith("Classifier") else "regress"
    if family in FORESTS and hasattr(model, "estimators_"):
        return _forest(fitted, list(fitted.estimators_), task)
    if family in ("DecisionTree", "ExtraTree") and hasattr(model, "tree_"):
        return _forest(fitted, [fitted], task)
    if family == "GradientBoosting" and hasattr(model, "estimators_"):
        return _boosting(fitted, task)
    if family == "HistGradientBoosting" and hasattr(model, "_predictors"):
        return _histogram(fitted, task)
    raise DataError(
        f"want a fitted scikit-learn tree, forest or gradient boosting, got {name} "
        f"({'fitted' if hasattr(model, 'n_features_in_') else 'not fitted'})"
    )


def _forest(model: Model, members: list[Model], task: Task) -> Ensemble:
    if model.n_outputs_ != 1:
        raise DataError(f"one output is supported, the model has {model.n_outputs_}")
    scores = int(model.n_classes_) if task == "classify" else 1
    if scores == 1 and task == "classify":
        raise DataError("the model knows a single class: it cannot change its prediction")
    trees = [_tree(member.tree_, member.tree_.value[:, 0, :scores]) for member in members]
    return build(
        trees,
        base=np.zeros(scores),
        n_features=int(model.n_features_in_),
        task=task,
        input_type="float32",
        divisor=float(len(members)),
        origin=f"scikit-learn {type(model).__name__}",
        takes_missing=_takes_missing(model),
    )


def _boosting(model: Model, task: Task) -> Ensemble:
    first = model._raw_predict_init(np.zeros((1, model.n_features_in_), dtype=np.float32))
    init = type(model.init_).__name__
    if model.init_ != "zero" and init not in ("DummyClassifier", "DummyRegressor"):
        raise DataError(f"an init estimator that looks at the input is not supported, got {init}")
    scores = model.estimators_.shape[1]
    trees = []
    for stage in model.estimators_:
        for column, member in enumerate(stage):
            value = np.zeros((member.tree_.node_count, scores))
            value[:, column] = model.learning_rate * member.tree_.value[:, 0, 0]
            trees.append(_tree(member.tree_, value))
    return build(
        trees,
        base=np.asarray(first[0], dtype=np.float64),
        n_features=int(model.n_features_in_),
        task=task,
        input_type="float32",
        cutoff=0.0,
        origin=f"scikit-learn {type(model).__name__}",
    )


def _histogram(model: Model, task: Task) -> Ensemble:
    link = type(model._loss.link).__name__
    if task == "regress" and link != "IdentityLink":
        raise DataError(f"a regression through {link} is not supported; use a squared-error loss")
    base = np.asarray(model._baseline_prediction, dtype=np.float64).reshape(-1)
    columns = _Columns(model)
    trees = [
        columns.read(predictor, score, base.size)
        for stage in model._predictors
        for score, predictor in enumerate(stage)
    ]
    return build(
        trees,
        base=base,
        n_features=int(model.n_features_in_),
        task=task,
        cutoff=LEAST_POSITIVE,
        origin=f"scikit-learn {type(model).__name__}",
        takes_missing=True,
    )


def _tree(tree: Model, value: Floats) -> Tree:
    missing = getattr(tree, "missing_go_to_left", np.zeros(tree.node_count, dtype=bool))
    return Tree(
        feature=np.asarray(tree.feature),
        threshold=np.asarray(tree.threshold),
        left=np.asarray(tree.children_left),
        right=np.asarray(tree.children_right),
        missing_left=np.asarray(missing),
        value=np.asarray(value, dtype=np.float64),
    )


def _takes_missing(model: object) -> bool:
    if not hasattr(model, "__sklearn_tags__") or getattr(model, "monotonic_cst", 0) is not None:
        return False
    return bool(model.__sklearn_tags__().input_tags.allow_nan)


class _Columns:
    """The columns that the trees of histogram boosting see: categories first, as their codes."""

    def __init__(self, model: Model) -> None:
        is_category = model.is_categorical_
        if is_category is None:
            is_category = np.zeros(model.n_features_in_, dtype=bool)
        first, rest = np.flatnonzero(is_category), np.flatnonzero(~is_category)
        self._feature = np.concatenate([first, rest])
        self._known, self._values = np.zeros((0, 256), dtype=bool), list[Floats]()
        if first.size:
            self._known = _unpack(model._bin_mapper.make_known_categories_bitsets()[0])
            encoder = model._preprocessor.named_transformers_["encoder"]
            self._values = [_check_values(one) for one in encoder.categories_]

    def read(self, predictor: Model, score: int, scores: int) -> Tree:
        """Read a tree that adds to one of the scores."""
        nodes, is_leaf = predictor.nodes, predictor.nodes["is_leaf"].astype(bool)
        value = np.zeros((nodes.size, scores))
        value[:, score] = nodes["value"]
        goes_left = _unpack(predictor.raw_left_cat_bitsets)
        asking = np.flatnonzero(nodes["is_categorical"].astype(bool) & ~is_leaf)
        sets = {int(at): self._set(nodes[at], goes_left[nodes[at]["bitset_idx"]]) for at in asking}
        return Tree(
            feature=self._feature[nodes["feature_idx"].astype(np.int64)],
            threshold=np.where(is_leaf, 0.0, nodes["num_threshold"]),
            left=np.where(is_leaf, -1, nodes["left"].astype(np.int64)),
            right=np.where(is_leaf, -1, nodes["right"].astype(np.int64)),
            missing_left=nodes["missing_go_to_left"].astype(bool),
            value=value,
            sets=sets,
        )

    def _set(self, node: np.void, goes_left: Bools) -> CategorySet:
        """List the categories that go another way than a missing value: what is unseen does not."""
        missing_left, column = bool(node["missing_go_to_left"]), int(node["feature_idx"])
        is_listed = self._known[column] & ~goes_left if missing_left else goes_left
        codes = np.flatnonzero(is_listed)
        values = self._values[column][codes]
        return CategorySet(low=values, high=values, listed_left=not missing_left)


def _check_values(values: npt.NDArray[np.object_]) -> Floats:
    if any(isinstance(value, str) for value in values):
        raise DataError(
            f"the model knows categories by their names ({values[0]!r}, …), and rows are numbers "
            "here: train on numbers in their place, e.g. from an OrdinalEncoder"
        )
    return np.asarray(values, dtype=np.float64)


def _unpack(bitsets: npt.NDArray[np.uint32]) -> Bools:
    """Turn rows of 8 words into rows of 256 bits."""
    words = np.ascontiguousarray(bitsets, dtype="<u4").reshape(-1, 8)
    return np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").astype(bool)
