"""Boosted trees handed over to XGBoost, when all parties agree to open them and their edges."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from tacit.errors import InputError
from tacit.learners.boosting import GradientBoosting, GradientBoostingClassifier
from tacit.mpc.walker import Walker

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
