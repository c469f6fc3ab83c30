"""Learners handed over as ONNX files, when what they learned was opened."""

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError
from tacit.extras import install_hint
from tacit.learners.base import Learner
from tacit.learners.boosting import GradientBoosting, GradientBoostingClassifier
from tacit.learners.exported import to_sklearn
from tacit.learners.xgboosted import to_xgboost

# onnx has no types.
Node = Any
_OPSETS = {"": 17, "ai.onnx.ml": 3}
_IR_VERSION = 8
_FLOAT, _INT64, _STRING, _DOUBLE = 1, 7, 8, 11  # TensorProto's numbers of types
_MODES = ("BRANCH_LT", "LEAF")


def to_onnx(model: Learner, to: tuple[str, ...] | None = None) -> bytes | None:
    """Return an ONNX file with the answers of a learner: input ``x``, rows of single precision.

    Outputs are ``label`` and ``scores`` of classifiers, ``answer`` of all others. Of boosted trees
    every party calls this, and it opens them as `to_xgboost` does; of all others it takes what was
    revealed to this party before.

    Args:
        model: fitted.
        to: who gets boosted trees; all owners if not said.

    Raises:
        InputError: results are still shares here, or this learner is not exported.
        ConfigError: onnx is not installed.

    Guarantee: none beyond the ledger; opening is the step that tells something.
    """
    graph = _Graph(model.data_.shape[1] if hasattr(model, "data_") else 0)
    if isinstance(model, GradientBoosting):
        text = to_xgboost(model, to)
        if text is None:
            return None
        _boosted(graph, model, json.loads(text))
    else:
        made = to_sklearn(model)
        _MADE[type(made).__name__](graph, made)
    return graph.to_bytes(type(model).__name__)


def _library() -> ModuleType:
    """Import onnx where it is needed: parties that export nothing start without it."""
    try:
        return import_module("onnx")
    except ImportError as error:
        raise ConfigError(f"an ONNX file needs onnx; run: {install_hint('onnx')}") from error


class _Graph:
    """Nodes and constants on the way to a file; numbers are computed in double precision."""

    def __init__(self, columns: int) -> None:
        self._onnx = _library()
        self._columns = columns
        self._nodes: list[Node] = []
        self._constants: list[Node] = []
        self._outputs: list[Node] = []

    def rows(self) -> str:
        """Return the rows in double precision."""
        return self.node("Cast", "x", to=_DOUBLE)

    def constant(self, value: npt.ArrayLike) -> str:
        """Keep an array."""
        name = f"c{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, kind: str, *inputs: str, domain: str = "", **attributes: object) -> str:
        """Add an operation with one output, and return its name."""
        name = f"n{len(self._nodes)}"
        made = self._onnx.helper.make_node(kind, list(inputs), [name], domain=domain, **attributes)
        self._nodes.append(made)
        return name

    def affine(self, rows: str, matrix: npt.ArrayLike, move: npt.ArrayLike) -> str:
        """Add rows · matrix + move."""
        product = self.node("MatMul", rows, self.constant(np.asarray(matrix, np.float64)))
        return self.node("Add", product, self.constant(np.asarray(move, np.float64)))

    def output(self, name: str, value: str, kind: int, dims: int = 2) -> None:
        """Name an output of so many dimensions."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name]))
        self._outputs.append(self._onnx.helper.make_tensor_value_info(name, kind, [None] * dims))

    def labels(self, scores: str, classes: npt.NDArray[Any]) -> None:
        """Output the class of the largest score of two columns or more, and the scores."""
        at = self.node("ArgMax", scores, axis=1, keepdims=0)
        is_text = classes.dtype.kind not in "iufb"
        known = classes.astype(str).astype(object) if is_text else classes.astype(np.int64)
        chosen = self.node("Gather", self.constant(known), at)
        self.output("label", chosen, _STRING if is_text else _INT64, dims=1)
        self.output("scores", scores, _DOUBLE)

    def to_bytes(self, name: str) -> bytes:
        """Check the graph and return the file."""
        rows = self._onnx.helper.make_tensor_value_info("x", _FLOAT, [None, self._columns])
        graph = self._onnx.helper.make_graph(
            self._nodes, name, [rows], self._outputs, self._constants
        )
        opsets = [
            self._onnx.helper.make_opsetid(domain, version) for domain, version in _OPSETS.items()
        ]
        made = self._onnx.helper.make_model(graph, opset_imports=opsets, producer_name="tacit")
        made.ir_version = _IR_VERSION
        self._onnx.checker.check_model(made)
        found: bytes = made.SerializeToString()
        return found


def _linear(graph: _Graph, made: Any) -> None:
    found = graph.affine(graph.rows(), made.coef_.reshape(-1, 1), made.intercept_)
    graph.output("answer", found, _DOUBLE)


def _margins(graph: _Graph, made: Any) -> None:
    scores = graph.affine(graph.rows(), made.coef_.T, made.intercept_)
    if made.coef_.shape[0] == 1:  # of two classes: the score of the second
        scores = graph.node("Concat", graph.node("Neg", scores), scores, axis=1)
    graph.labels(scores, made.classes_)


def _bayes(graph: _Graph, made: Any) -> None:
    rows = graph.rows()
    squares = graph.affine(graph.node("Mul", rows, rows), (-0.5 / made.var_).T, 0.0)
    start = np.log(made.class_prior_) - 0.5 * (
        np.log(2 * np.pi * made.var_) + made.theta_**2 / made.var_
    ).sum(axis=1)
    scores = graph.node("Add", squares, graph.affine(rows, (made.theta_ / made.var_).T, start))
    graph.labels(scores, made.classes_)


def _kmeans(graph: _Graph, made: Any) -> None:
    centres = made.cluster_centers_
    distances = graph.affine(graph.rows(), -2 * centres.T, (centres**2).sum(axis=1))
    nearest = graph.node("ArgMin", distances, axis=1, keepdims=0)
    graph.output("answer", nearest, _INT64, dims=1)


def _components(graph: _Graph, made: Any) -> None:
    moved = -made.mean_ @ made.components_.T
    found = graph.affine(graph.rows(), made.components_.T, moved)
    graph.output("answer", found, _DOUBLE)


_MADE: Mapping[str, Callable[[_Graph, Any], None]] = {
    "GaussianNB": _bayes,
    "KMeans": _kmeans,
    "Lasso": _linear,
    "LinearRegression": _linear,
    "LinearSVC": _margins,
    "LogisticRegression": _margins,
    "PCA": _components,
    "Ridge": _linear,
}


def _boosted(graph: _Graph, model: GradientBoosting, text: Mapping[str, Any]) -> None:
    """Write XGBoost's own trees as one node; single precision, as XGBoost compares."""
    trees = text["learner"]["gradient_booster"]["model"]
    width = max(1, int(text["learner"]["learner_model_param"]["num_class"]))
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for at, (tree, target) in enumerate(zip(trees["trees"], trees["tree_info"], strict=True)):
        for place, left in enumerate(tree["left_children"]):
            _add_node(columns, tree, at, place, target, is_leaf=left < 0)
    margins = graph.node(
        "TreeEnsembleRegressor",
        "x",
        domain="ai.onnx.ml",
        n_targets=width,
        aggregate_function="SUM",
        post_transform="NONE",
        **columns,
    )
    margins = graph.node("Cast", margins, to=_DOUBLE)
    if not isinstance(model, GradientBoostingClassifier):
        graph.output("answer", margins, _DOUBLE)
        return
    if width == 1:
        margins = graph.node("Concat", graph.node("Neg", margins), margins, axis=1)
    graph.labels(margins, np.asarray(model.classes_))


_COLUMNS = (
    "nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes",
    "nodes_truenodeids", "nodes_falsenodeids", "nodes_missing_value_tracks_true",
    "target_treeids", "target_nodeids", "target_ids", "target_weights",
)  # fmt: skip


def _add_node(
    columns: Mapping[str, list[Any]],
    tree: Mapping[str, Any],
    at: int,
    place: int,
    target: int,
    *,
    is_leaf: bool,
) -> None:
    value = float(tree["split_conditions"][place])
    entry = {
        "nodes_treeids": at,
        "nodes_nodeids": place,
        "nodes_featureids": 0 if is_leaf else tree["split_indices"][place],
        "nodes_values": 0.0 if is_leaf else value,
        "nodes_modes": _MODES[is_leaf],
        "nodes_truenodeids": 0 if is_leaf else tree["left_children"][place],
        "nodes_falsenodeids": 0 if is_leaf else tree["right_children"][place],
        "nodes_missing_value_tracks_true": 0 if is_leaf else int(tree["default_left"][place]),
    }
    if is_leaf:
        entry |= {
            "target_treeids": at,
            "target_nodeids": place,
            "target_ids": target,
            "target_weights": value,
        }
    for name, one in entry.items():
        columns[name].append(one)
