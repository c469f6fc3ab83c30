"""LightGBM models: the text form, a Booster, or a scikit-learn style estimator.

What LightGBM does and this module keeps: inputs, thresholds and leaf values are float64; a node
asks ``x <= t``; leaf values are added tree by tree. NaN counts as 0 at a node that saw no missing
values in training, and follows the node's default direction otherwise; so does 0 with
zero_as_missing. A category goes left where the node lists it; what is no whole number is cut down
to one, and what is negative, unseen or NaN goes right.

Trees to which zero is a missing value are written with questions about numbers alone: where a node
sends zero another way than its threshold would, the tree first asks whether the number is below, at
or above zero; within each of the three the node is an ordinary one.
"""

from dataclasses import replace

import numpy as np

from tacit.errors import DataError, foreign
from tacit.verify.kernels.tables import Bools, Floats, Longs
from tacit.verify.models.build import Tree, binary_cutoff, build, check_outputs
from tacit.verify.models.categories import CategorySet
from tacit.verify.models.ensemble import Decision, Ensemble

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


BELOW, AT_ZERO, ABOVE = range(3)
MOST_NODES = 1 << 20
Zones = tuple[int, int]
"""The first and the last of BELOW, AT_ZERO, ABOVE that a feature can still be in."""
Child = tuple[int, dict[int, Zones]]
"""A node of the tree as it was, and the zones of the features above it."""


def split_zeros(tree: Tree, is_zero_missing: Bools, *, zero: float) -> Tree:
    """Write a tree without nodes to which zero is missing.

    Args:
        tree: its nodes; `missing_left` says where those of `is_zero_missing` send zero and NaN.
        is_zero_missing: which nodes take zero for missing.
        zero: the largest size of a number that counts as zero; no threshold is nearer to 0.
    """
    if not is_zero_missing.any():
        return tree
    writer = _Writer(tree, is_zero_missing, zero)
    writer.write()
    return writer.tree()


class _Writer:
    """The nodes written so far: (the node it copies, feature, threshold, missing_left)."""

    def __init__(self, tree: Tree, is_zero_missing: Bools, zero: float) -> None:
        self._old, self._is_zero_missing, self._zero = tree, is_zero_missing, zero
        self._nodes: list[tuple[int, int, float, bool]] = []
        self._children: list[list[int]] = []

    def write(self) -> None:
        todo: list[tuple[int, dict[int, Zones], int, int]] = [(0, {}, -1, 0)]
        while todo:
            node, zones, parent, side = todo.pop()
            node = self._skip(node, zones)
            at = len(self._nodes)
            if parent >= 0:
                self._children[parent][side] = at
            if at >= MOST_NODES:
                raise DataError(
                    f"zero_as_missing makes a tree of more than {MOST_NODES} nodes; train with "
                    "zero_as_missing=false or with fewer leaves"
                )
            left, right = self._put(node, zones)
            self._children.append([-1, -1])
            todo += [(*child, at, side) for side, child in ((1, right), (0, left)) if child]

    def tree(self) -> Tree:
        old, feature, threshold, missing_left = (
            np.array(column) for column in zip(*self._nodes, strict=True)
        )
        children = np.array(self._children)
        sets = {at: self._old.sets[node] for at, node in enumerate(old) if node in self._old.sets}
        return replace(
            self._old,
            feature=feature,
            threshold=threshold,
            left=children[:, 0],
            right=children[:, 1],
            missing_left=missing_left,
            value=self._old.value[old],
            sets=sets,
        )

    def _skip(self, node: int, zones: dict[int, Zones]) -> int:
        """Follow nodes that the zones of their feature decide."""
        while self._old.left[node] >= 0 and self._is_zero_missing[node]:
            first, last = zones.get(int(self._old.feature[node]), (BELOW, ABOVE))
            is_high = self._old.threshold[node] >= 0.0
            if first == last == AT_ZERO:
                goes_left = bool(self._old.missing_left[node])
            elif last == BELOW and is_high:
                goes_left = True
            elif first == ABOVE and not is_high:
                goes_left = False
            else:
                break
            node = int((self._old.left if goes_left else self._old.right)[node])
        return node

    def _put(self, node: int, zones: dict[int, Zones]) -> tuple[Child | None, Child | None]:
        """Write one node; return what lies left and right of it."""
        tree, feature = self._old, int(self._old.feature[node])
        threshold, missing_left = float(tree.threshold[node]), bool(tree.missing_left[node])
        if tree.left[node] < 0:
            self._nodes.append((node, feature, 0.0, False))
            return None, None
        first, last = zones.get(feature, (BELOW, ABOVE))
        if not self._is_zero_missing[node]:
            low, high = (first, last), (first, last)
        elif first <= AT_ZERO <= last and missing_left != (threshold >= 0.0):
            # Zero goes its own way: this node comes again, once in each zone.
            cut = AT_ZERO if first == AT_ZERO else BELOW
            below = float(np.nextafter(-self._zero, -np.inf))
            self._nodes.append((node, feature, (below, self._zero)[cut], cut == AT_ZERO))
            ways = {**zones, feature: (first, cut)}, {**zones, feature: (cut + 1, last)}
            return (node, ways[0]), (node, ways[1])
        else:
            low, high = (first, last), (first, last)
            if threshold >= 0.0:
                high = (ABOVE, ABOVE)
            else:
                low = (BELOW, BELOW)
        self._nodes.append((node, feature, threshold, missing_left))
        left, right = int(tree.left[node]), int(tree.right[node])
        return (left, {**zones, feature: low}), (right, {**zones, feature: high})
