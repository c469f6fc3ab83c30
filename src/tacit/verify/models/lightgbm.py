"""LightGBM models: the text form, a Booster, or a scikit-learn style estimator.

What LightGBM does and this module keeps: inputs, thresholds and leaf values are float64; a node
asks ``x <= t``; leaf values are added tree by tree. NaN counts as 0 at a node that saw no missing
values in training, and follows the node's default direction otherwise; so does 0 with
zero_as_missing. A category goes left where the node lists it; what is no whole number is cut down
to one, and what is negative, unseen or NaN goes right.
"""

from dataclasses import replace

import numpy as np

from tacit.errors import DataError, foreign
from tacit.verify.kernels.arrays import Bools, Floats, Longs
from tacit.verify.models.build import Tree, binary_cutoff, build, check_outputs
from tacit.verify.models.categories import CategorySet
from tacit.verify.models.ensemble import Decision, Ensemble
from tacit.verify.models.zeros import split_zeros

REGRESSIONS = {"regression", "regression_l1", "huber", "fair", "quantile", "mape"}
SOFTMAX_GUARD = 1e-15
ZERO = float(np.float32(1e-35))
CATEGORICAL, DEFAULT_LEFT = 1, 2
MISSING_NONE, MISSING_ZERO = 0, 1


def from_lightgbm(model: object) -> Ensemble:
    """Import a Booster or an LGBMClassifier or LGBMRegressor.

    The import predicts with the best iteration where training stopped early, as LightGBM does.
    """
    booster = model.booster_ if hasattr(model, "booster_") else model
    if not hasattr(booster, "model_to_string"):
        raise DataError(f"want a LightGBM Booster or estimator, got {type(model).__name__}")
    return parse_lightgbm(booster.model_to_string())


def parse_lightgbm(text: str) -> Ensemble:
    """Import the text that `Booster.save_model` writes."""
    with foreign("not a valid LightGBM model"):
        blocks = text.split("end of trees")[0].split("\nTree=")
        header, flags = _fields(blocks[0])
        return _read(header, flags, [_fields(block)[0] for block in blocks[1:]])


def _read(header: dict[str, str], flags: set[str], blocks: list[dict[str, str]]) -> Ensemble:
    groups = check_outputs(int(header["num_tree_per_iteration"]))
    trees = [_tree(block, i % groups, groups) for i, block in enumerate(blocks)]
    rounds = len(trees) // groups
    return build(
        trees,
        base=np.zeros(groups),
        n_features=int(header["max_feature_idx"]) + 1,
        divisor=float(rounds) if "average_output" in flags else 1.0,
        origin=f"LightGBM {header.get('objective', 'without objective')}",
        takes_missing=True,
        **_rule(header.get("objective", ""), groups),
    )


def _rule(objective: str, groups: int) -> Decision:
    name, *options = objective.split() or [""]
    settings = dict(option.split(":", 1) for option in options if ":" in option)
    if name in REGRESSIONS and "sqrt" not in options:
        return {"task": "regress"}
    if name == "binary":
        slope = float(settings.get("sigmoid", "1"))
        return {"task": "classify", "cutoff": binary_cutoff("float64", slope)}
    if name == "multiclass" and groups > 1:
        return {"task": "classify", "guard": SOFTMAX_GUARD}
    known = ", ".join(sorted({*REGRESSIONS, "binary", "multiclass"}))
    raise DataError(f"objective {objective!r} is not supported; known are {known}")


def _tree(block: dict[str, str], group: int, groups: int) -> Tree:
    if block.get("is_linear", "0").strip() == "1":
        raise DataError("linear trees are not supported; train with linear_tree=false")
    leaf_value = _floats(block["leaf_value"])
    if int(block["num_leaves"]) == 1:
        none = np.empty(0, np.int64)
        return _assemble(
            leaf_value, none, np.empty(0), (none, none), none.astype(bool), group, groups
        )
    decision = np.array(block["decision_type"].split(), dtype=np.int64)
    is_category, missing_type = (decision & CATEGORICAL) != 0, decision >> 2
    threshold = _settle_zero(_floats(block["threshold"]))
    missing_left = np.where(
        missing_type == MISSING_NONE, threshold >= 0.0, (decision & DEFAULT_LEFT) != 0
    )
    split = np.array(block["split_feature"].split(), dtype=np.int64)
    left, right = (
        np.array(block[side].split(), np.int64) for side in ("left_child", "right_child")
    )
    missing_left &= ~is_category
    tree = _assemble(leaf_value, split, threshold, (left, right), missing_left, group, groups)
    tree = replace(tree, sets=_sets(block, np.flatnonzero(is_category).tolist()))
    is_zero_missing = np.zeros(tree.feature.size, dtype=bool)
    is_zero_missing[: split.size] = (missing_type == MISSING_ZERO) & ~is_category
    return split_zeros(tree, is_zero_missing, zero=ZERO)


def _sets(block: dict[str, str], nodes: list[int]) -> dict[int, CategorySet]:
    """Read which categories go left at each node that asks for one."""
    if not nodes:
        return {}
    threshold, start = block["threshold"].split(), [*map(int, block["cat_boundaries"].split())]
    words = np.array(block["cat_threshold"].split(), dtype="<u4")
    sets = {}
    for node in nodes:
        which = int(float(threshold[node]))
        part = words[start[which] : start[which + 1]]
        category = np.flatnonzero(np.unpackbits(part.view(np.uint8), bitorder="little"))
        # Cut down to a whole number, all between -1 and 1 is 0.
        low = np.where(category == 0, np.nextafter(-1.0, 0.0), category)
        high = np.nextafter(category + 1.0, 0.0)
        sets[node] = CategorySet(low=low, high=high, listed_left=True)
    return sets


def _settle_zero(threshold: Floats) -> Floats:
    # LightGBM takes inputs of size up to ZERO for 0 before it compares them.
    threshold = np.where((threshold >= 0.0) & (threshold <= ZERO), ZERO, threshold)
    is_below = (threshold < 0.0) & (threshold >= -ZERO)
    return np.where(is_below, np.nextafter(-ZERO, -np.inf), threshold)


def _assemble(
    leaf_value: Floats,
    split: Longs,
    threshold: Floats,
    children: tuple[Longs, Longs],
    missing_left: Bools,
    group: int,
    groups: int,
) -> Tree:
    """Number inner nodes first and leaves after them; LightGBM writes leaf i as -i-1."""
    inner, leaves = split.size, leaf_value.size
    value = np.zeros((inner + leaves, groups))
    value[inner:, group] = leaf_value
    none = np.full(leaves, -1)
    left, right = (
        np.concatenate([np.where(side < 0, inner - side - 1, side), none]) for side in children
    )
    return Tree(
        feature=np.concatenate([split, none]),
        threshold=np.concatenate([threshold, np.zeros(leaves)]),
        left=left,
        right=right,
        missing_left=np.concatenate([missing_left, np.zeros(leaves)]).astype(bool),
        value=value,
    )


def _fields(block: str) -> tuple[dict[str, str], set[str]]:
    lines = [line.strip() for line in block.splitlines()]
    pairs = dict(line.split("=", 1) for line in lines if "=" in line)
    return pairs, {line for line in lines if line and "=" not in line}


def _floats(text: str) -> Floats:
    return np.array([float(part) for part in text.split()])
