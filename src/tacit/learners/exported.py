"""Learners handed over, when what they learned was opened: to scikit-learn, XGBoost and ONNX.

`counterpart` is scikit-learn's learner of the same kind, to fit in the clear.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn import cluster, decomposition, linear_model, naive_bayes, neighbors, svm
from torch import Tensor

from tacit.errors import ConfigError, InputError
from tacit.extras import install_hint
from tacit.learners.base import Learner, Shared
from tacit.learners.bayes import GaussianNB
from tacit.learners.boosting import GradientBoosting, GradientBoostingClassifier
from tacit.learners.clusters import KMeans, KNeighbors
from tacit.learners.linear import Lasso, LinearRegression, LinearSVC, LogisticRegression, Ridge
from tacit.learners.scaling import PCA
from tacit.mpc.walker import Walker

# scikit-learn has no types.
Estimator = Any
Opened = Mapping[str, Any]


def counterpart(model: Learner) -> Estimator | None:
    """Return scikit-learn's learner of the same kind and parameters, not fitted; None if none."""
    if type(model) not in _COUNTERPARTS:
        return None
    kind, names, _ = _COUNTERPARTS[type(model)]
    given = {name: getattr(model, name) for name in names}
    weights = getattr(model, "class_weight", None)
    if weights is not None:
        given["class_weight"] = dict(enumerate(weights))
    return kind(**given)


def to_sklearn(model: Learner) -> Estimator:
    """Return scikit-learn's fitted learner with what was opened to this process.

    Raises:
        InputError: results are still shares here, or scikit-learn has no such learner.

    Guarantee: none beyond the ledger; opening was the step that told something.
    """
    made = counterpart(model)
    _, _, put = _COUNTERPARTS.get(type(model), (None, (), None))
    if put is None or made is None:
        known = ", ".join(sorted(one.__name__ for one, (*_, put) in _COUNTERPARTS.items() if put))
        raise InputError(f"{type(model).__name__} is not exported to scikit-learn; {known} are")
    if not hasattr(model, "data_"):
        raise InputError(f"this {type(model).__name__} is not fitted yet; call fit first")
    opened = {name: getattr(model, f"{name}_") for name in model.results}
    closed = [name for name, value in opened.items() if isinstance(value, Shared)]
    if closed:
        raise InputError(f"{closed[0]}_ is a share here; call reveal(to=...) for this party first")
    made.n_features_in_ = model.data_.shape[1]
    if hasattr(model, "classes_"):
        made.classes_ = model.classes_
    put(made, opened)
    return made


def _put_kmeans(made: Estimator, opened: Opened) -> None:
    made.cluster_centers_ = np.ascontiguousarray(opened["cluster_centers"])
    made.inertia_ = float(opened["inertia"][0])
    made._n_threads = 1  # as its own fit leaves it, without which it does not predict


def _put_bayes(made: Estimator, opened: Opened) -> None:
    made.theta_, made.var_ = opened["theta"], opened["var"]
    made.class_prior_ = opened["class_prior"]


def _put_linear(made: Estimator, opened: Opened) -> None:
    made.coef_, made.intercept_ = opened["coef"][:, 0], float(opened["intercept"].reshape(-1)[0])


def _put_margins(made: Estimator, opened: Opened) -> None:
    made.coef_, made.intercept_ = opened["coef"][:-1].T, opened["coef"][-1]


def _put_components(made: Estimator, opened: Opened) -> None:
    made.components_, made.mean_ = opened["components"], opened["mean"].reshape(-1)
    made.explained_variance_ = opened["explained_variance"].reshape(-1)
    made.n_components_ = len(made.components_)


_LINEAR = ("alpha", "fit_intercept")
_COUNTERPARTS: Mapping[
    type[Learner], tuple[Any, tuple[str, ...], Callable[[Estimator, Opened], None] | None]
] = {
    KMeans: (cluster.KMeans, ("n_clusters", "n_init", "random_state"), _put_kmeans),
    GaussianNB: (naive_bayes.GaussianNB, ("var_smoothing",), _put_bayes),
    Ridge: (linear_model.Ridge, _LINEAR, _put_linear),
    LinearRegression: (linear_model.LinearRegression, ("fit_intercept",), _put_linear),
    Lasso: (linear_model.Lasso, _LINEAR, _put_linear),
    LogisticRegression: (linear_model.LogisticRegression, ("C",), _put_margins),
    LinearSVC: (svm.LinearSVC, ("C",), _put_margins),
    PCA: (decomposition.PCA, ("n_components",), _put_components),
    KNeighbors: (neighbors.KNeighborsClassifier, ("n_neighbors",), None),
}
"""What fits in the clear, which parameters both have, and how it is handed what was opened."""


Numbers = npt.NDArray[np.float64]
_LOWEST = float(np.finfo(np.float32).min)


def to_xgboost(model: GradientBoosting, to: tuple[str, ...] | None = None) -> str | None:
    """Open the trees, and where they cut, and return them as a model file of XGBoost (JSON).

    Every party calls this with the same receivers; one who does not opens nothing.

    Args:
        model: fitted, without categorical columns.
        to: who gets the trees; all owners if not said.

    Returns:
        What `xgboost.Booster.load_model` reads from a file; None for who is no receiver.

    Guarantee: none for what is opened, which the ledger lists: all splits and leaves, and of every
        owner of columns where its columns are cut, which tells quantiles of them to 2^-20.
    """
    name = model._fitted()
    if model.categorical:
        raise InputError("trees with categorical columns are not exported to XGBoost")
    parties, receivers = model.parties_, model.parties_.owners if to is None else to
    classes = model.data_.classes
    count = model._count(classes)

    def work(walker: Walker) -> dict[str, Tensor]:
        edges = _share_edges(walker, model, name)
        trees = [f"{name}/tree {at}" for at in range(count)]
        kept = [f"{tree}/{level} split" for tree in trees for level in range(model.max_depth)]
        kept += [f"{tree}/leaves" for tree in trees]
        why = "all parties agreed to open the trees"
        return walker.open([*kept, *edges], to=receivers, why=why)

    found = {key: value.double().numpy() for key, value in parties.do(work).items()}
    if not found:
        return None
    edges = found.get(f"{name}/edges")
    if edges is None:
        edges = next(iter(model.binning_.edges.values())).numpy()
    trees = [
        _read_tree(
            [found[f"{name}/tree {at}/{level} split"] for level in range(model.max_depth)],
            found[f"{name}/tree {at}/leaves"].reshape(-1),
            edges,
            has_missing=model.binning_.has_missing,
        )
        for at in range(count)
    ]
    is_classifier = isinstance(model, GradientBoostingClassifier)
    width = classes if classes > 2 else 1
    return _model_file(trees, columns=len(edges), classes=width, is_classifier=is_classifier)


def _share_edges(walker: Walker, model: GradientBoosting, name: str) -> list[str]:
    """Share where owners of columns cut; edges of rows are public already."""
    data, kept = model.data_, f"{name}/edges"
    if data.split != "columns":
        return []
    me = getattr(walker, "me", "")
    mine = {f"{kept} of {me}": model.binning_.edges[me]} if me in model.binning_.edges else {}
    parts = tuple((one.owner, one.columns, model.max_bins - 1) for one in data.holdings)
    featured = tuple(part for part in parts if part[1])
    data.enter(walker, kept, featured, mine, data.bound + 1.0, is_whole=False, along=0)
    return [kept]


Tree = dict[str, list[Any]]
_NODES = (
    "left_children", "right_children", "parents", "split_indices", "split_conditions",
    "default_left",
)  # fmt: skip


def _read_tree(
    splits: Sequence[Numbers], leaves: Numbers, edges: Numbers, *, has_missing: bool
) -> Tree:
    """Read a complete tree, in which a node that is not split sends everything to the left.

    Returns:
        Nodes as XGBoost writes them, a root first.
    """
    count = edges.shape[1]
    tree: Tree = {name: [] for name in _NODES}

    def grow(level: int, node: int, parent: int) -> int:
        while level < len(splits) and splits[level][:, node].argmax() == len(splits[level]) - 1:
            level, node = level + 1, 2 * node
        here, is_leaf = len(tree["parents"]), level == len(splits)
        column, is_left = 0, False
        if is_leaf:
            value = float(leaves[node])
        else:
            best = int(splits[level][:, node].argmax())
            column, at = divmod(best, 2 * count + 1 if has_missing else count)
            # XGBoost goes left below a number of single precision, and these trees up to an edge.
            value = _LOWEST if at == 2 * count else float(np.float32(edges[column, at % count]))
            is_left = at >= count
        for name, one in zip(_NODES, (-1, -1, parent, column, value, int(is_left)), strict=True):
            tree[name].append(one)
        if not is_leaf:
            for side, name in enumerate(_NODES[:2]):
                tree[name][here] = grow(level + 1, 2 * node + side, here)
        return here

    grow(0, 0, 2**31 - 1)
    return tree


def _to_json(tree: Tree, at: int, columns: int) -> dict[str, Any]:
    """Return a tree as XGBoost writes it; weights and gains are not opened, and 0."""
    count = len(tree["parents"])
    return {
        **{f"categories{end}": [] for end in ("", "_nodes", "_segments", "_sizes")},
        **tree,
        "base_weights": [0.0] * count,
        "id": at,
        "loss_changes": [0.0] * count,
        "split_type": [0] * count,
        "sum_hessian": [0.0] * count,
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(columns),
            "num_nodes": str(count),
            "size_leaf_vector": "1",
        },
    }


def _model_file(trees: Sequence[Tree], *, columns: int, classes: int, is_classifier: bool) -> str:
    steps = len(trees) // classes
    objective: dict[str, Any] = {
        "name": "reg:squarederror",
        "reg_loss_param": {"scale_pos_weight": "1"},
    }
    if classes > 1:
        parameters = {"num_class": str(classes)}
        objective = {"name": "multi:softprob", "softmax_multiclass_param": parameters}
    elif is_classifier:
        objective["name"] = "binary:logistic"
    booster = {
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
        "iteration_indptr": [classes * at for at in range(steps + 1)],
        "tree_info": [at % classes for at in range(len(trees))],
        "trees": [_to_json(tree, at, columns) for at, tree in enumerate(trees)],
    }
    learner = {
        "attributes": {},
        "feature_names": [],
        "feature_types": [],
        "gradient_booster": {"model": booster, "name": "gbtree"},
        "learner_model_param": {
            "base_score": "5E-1" if is_classifier else "0E0",  # margins begin at 0
            "boost_from_average": "0",
            "num_class": str(classes if classes > 1 else 0),
            "num_feature": str(columns),
            "num_target": "1",
        },
        "objective": objective,
    }
    return json.dumps({"learner": learner, "version": [2, 0, 0]})


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
