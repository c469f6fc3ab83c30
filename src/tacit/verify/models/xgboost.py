"""XGBoost models: the saved form (.json, .ubj), a Booster, or a scikit-learn style estimator.

What XGBoost does and this module keeps: inputs are rounded to float32; a node asks ``x < t`` in
float32; leaf values are added in float32, tree by tree, to the base score's margin. A category
goes right where the node lists it; what is no whole number is cut down to one, and what is negative
or unseen goes left. NaN follows the node's default direction.

UBJSON is JSON in bytes; what it announces is checked against what is there, before it is made.
"""

import json
import struct

import numpy as np
import numpy.typing as npt

from tacit.errors import DataError, foreign
from tacit.verify.kernels.tables import Outputs
from tacit.verify.models.build import Tree, before, binary_cutoff, build, check_outputs
from tacit.verify.models.categories import CategorySet
from tacit.verify.models.ensemble import Decision, Ensemble

REGRESSIONS = {"reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror", "reg:linear"}
SOFTMAX_GUARD = 2.5e-7
"""Margins further apart than this have different float32 probabilities, in the same order."""


Fields = dict[str, object]
"""What an object of the saved form holds; each field is checked where it is read."""


def from_xgboost(model: object) -> Ensemble:
    """Import a Booster or an XGBClassifier, XGBRegressor, XGBRFClassifier, XGBRFRegressor.

    An estimator that stopped early predicts with its best iteration, and so does the import; a
    Booster predicts with all its trees.
    """
    booster: object = model.get_booster() if hasattr(model, "get_booster") else model
    if not (hasattr(booster, "save_raw") and hasattr(booster, "attr")):
        raise DataError(f"want an XGBoost Booster or estimator, got {type(model).__name__}")
    missing = getattr(model, "missing", None)
    if missing is not None and not np.isnan(missing):
        raise DataError(
            f"the estimator takes {missing} for missing, which one cannot move away from: write "
            "NaN into its rows instead, and train with missing=nan"
        )
    saved = read_ubjson(bytes(booster.save_raw("ubj")))
    rounds = None
    if booster is not model and (best := booster.attr("best_iteration")) is not None:
        rounds = int(best) + 1
    return read_xgboost(saved, rounds=rounds)


def parse_xgboost(data: bytes) -> Ensemble:
    """Import the bytes of a saved model, JSON or UBJSON."""
    # Both begin with a brace; in UBJSON a type code and a length follow, in JSON text.
    if data[1:2] in b"iUIlL" and data[:1] == b"{":
        return read_xgboost(read_ubjson(data))
    with foreign("not a valid XGBoost model"):
        return read_xgboost(json.loads(data))


def read_xgboost(saved: object, *, rounds: int | None = None) -> Ensemble:
    """Import a decoded model.

    Args:
        saved: what `Booster.save_model` wrote, decoded.
        rounds: how many boosting rounds to keep; all when not given.
    """
    if isinstance(saved, list):
        raise DataError("this is a dump without objective and base score; use save_model instead")
    if isinstance(saved, dict) and "learner" not in saved:
        raise DataError(
            "this JSON is no model of XGBoost's (no 'learner'); LightGBM's are read as text; "
            "others once save_ensemble(import_ensemble(model), path) has written them"
        )
    with foreign("the XGBoost model lacks a field, or has it wrong"):
        return _read(saved, rounds)


def _read(saved: object, rounds: int | None) -> Ensemble:
    learner = _table(_table(saved)["learner"])
    booster = _table(learner["gradient_booster"])
    if booster["name"] != "gbtree":
        raise DataError(f"only XGBoost's gbtree booster is supported, got {booster['name']!r}")
    shape = _table(learner["learner_model_param"])
    groups = check_outputs(max(1, _whole(shape["num_class"])))
    if _whole(shape.get("num_target", 1)) > 1:
        raise DataError(f"one target is supported, the model has {shape['num_target']}")
    objective = str(_table(learner["objective"])["name"])
    model = _table(booster["model"])
    saved_trees, owner = _list(model["trees"]), np.asarray(model["tree_info"], dtype=np.int64)
    kept = _keep_rounds(model, len(saved_trees), rounds, groups)
    trees = [_tree(_table(saved_trees[i]), int(owner[i]), groups) for i in range(kept)]
    return build(
        trees,
        base=_base_margin(str(shape["base_score"]), objective, groups),
        n_features=_whole(shape["num_feature"]),
        input_type="float32",
        sum_type="float32",
        origin=f"XGBoost {objective}",
        takes_missing=True,
        **_rule(objective, groups),
    )


def _table(saved: object) -> Fields:
    if not isinstance(saved, dict):
        raise TypeError(f"want an object, got {type(saved).__name__}")
    return saved


def _list(saved: object) -> list[object]:
    if not isinstance(saved, list):
        raise TypeError(f"want a list, got {type(saved).__name__}")
    return saved


def _whole(saved: object) -> int:
    # XGBoost writes its parameters as texts.
    return int(str(saved))


def _rule(objective: str, groups: int) -> Decision:
    if objective in REGRESSIONS:
        return {"task": "regress"}
    if objective == "binary:logistic":
        return {"task": "classify", "cutoff": binary_cutoff("float32")}
    if objective == "binary:hinge":
        return {"task": "classify", "cutoff": float(np.nextafter(np.float32(0), np.float32(1)))}
    if objective == "multi:softmax" and groups > 1:
        return {"task": "classify"}
    if objective == "multi:softprob" and groups > 1:
        return {"task": "classify", "guard": SOFTMAX_GUARD}
    known = sorted(
        {*REGRESSIONS, "binary:logistic", "binary:hinge", "multi:softmax", "multi:softprob"}
    )
    raise DataError(f"objective {objective!r} is not supported; known are {', '.join(known)}")


def _keep_rounds(model: Fields, count: int, rounds: int | None, groups: int) -> int:
    if rounds is None:
        return count
    parallel = _whole(_table(model["gbtree_model_param"]).get("num_parallel_tree", 1))
    return min(count, rounds * groups * max(1, parallel))


def _tree(saved: Fields, group: int, groups: int) -> Tree:
    if _whole(_table(saved["tree_param"]).get("size_leaf_vector", 1)) > 1:
        raise DataError("trees with a vector in each leaf are not supported")
    condition: npt.NDArray[np.float32] = np.asarray(saved["split_conditions"], dtype=np.float32)
    left = np.asarray(saved["left_children"], dtype=np.int64)
    value = np.zeros((left.size, groups))
    value[:, group] = condition
    return Tree(
        feature=np.asarray(saved["split_indices"], dtype=np.int64),
        threshold=before(condition),
        left=left,
        right=np.asarray(saved["right_children"], dtype=np.int64),
        missing_left=np.asarray(saved["default_left"], dtype=np.bool_),
        value=value,
        sets=_sets(saved),
    )


def _sets(saved: Fields) -> dict[int, CategorySet]:
    """Read which categories go right at each node that asks for one."""
    names = ("categories_nodes", "categories_segments", "categories_sizes")
    columns = [np.asarray(saved.get(name, ()), dtype=np.int64).tolist() for name in names]
    listed = np.asarray(saved.get("categories", ()), dtype=np.float32)
    sets = {
        node: CategorySet(
            low=listed[start : start + size].astype(np.float64),
            high=before(listed[start : start + size] + np.float32(1)),
            listed_left=False,
        )
        for node, start, size in zip(*columns, strict=False)
    }
    split_type = np.asarray(saved.get("split_type", ()))
    if len({*map(len, columns), len(sets)}) > 1 or {*np.flatnonzero(split_type)} != {*sets}:
        raise DataError("the XGBoost model has a categorical split that lists no categories")
    return sets


def _base_margin(text: str, objective: str, groups: int) -> npt.NDArray[np.float64]:
    # One number for all groups before version 3.1, a bracketed list since.
    numbers = np.array([float(part) for part in text.strip("[]").split(",")], dtype=np.float32)
    base = np.broadcast_to(numbers, (groups,)).astype(np.float64)
    if objective == "binary:logistic":
        base = -np.log((np.float32(1.0) / base.astype(np.float32) - np.float32(1.0)).astype(float))
    return base.astype(np.float32).astype(np.float64)


NUMBERS = {"i": "b", "U": "B", "I": "h", "l": "i", "L": "q", "d": "f", "D": "d"}
ARRAYS = {"i": ">i1", "U": ">u1", "I": ">i2", "l": ">i4", "L": ">i8", "d": ">f4", "D": ">f8"}
DEEPEST = 100


def read_ubjson(data: bytes) -> object:
    """Decode one value; typed arrays come back as numpy arrays.

    Raises:
        DataError: the bytes end early, nest too deep or hold an unknown type.
    """
    reader = _Reader(data)
    with foreign("not a valid UBJSON model", struct.error):
        return reader.value(reader.tag(), 0)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.data):
            raise DataError(
                f"the UBJSON model wants {count} bytes at {self.at}, but has only {len(self.data)}"
            )
        part = self.data[self.at : self.at + count]
        self.at += count
        return part

    def tag(self) -> str:
        tag = "N"
        while tag == "N":
            tag = chr(self.take(1)[0])
        return tag

    def number(self, tag: str) -> int | float:
        if tag not in NUMBERS:
            raise DataError(f"the UBJSON model has an unknown type {tag!r} at byte {self.at}")
        form = ">" + NUMBERS[tag]
        found: int | float = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return found

    def text(self) -> str:
        return self.take(int(self.number(self.tag()))).decode()

    def value(self, tag: str, depth: int) -> object:
        if depth > DEEPEST:
            raise DataError(f"the UBJSON model nests deeper than {DEEPEST} levels")
        if tag == "{":
            return self.mapping(depth)
        if tag == "[":
            return self.array(depth)
        if tag == "S":
            return self.text()
        if tag == "C":
            return chr(self.take(1)[0])
        if tag in "ZTF":
            return {"Z": None, "T": True, "F": False}[tag]
        return self.number(tag)

    def mapping(self, depth: int) -> dict[str, object]:
        found: dict[str, object] = {}
        while self.data[self.at : self.at + 1] != b"}":
            key = self.text()
            found[key] = self.value(self.tag(), depth + 1)
        self.take(1)
        return found

    def array(self, depth: int) -> list[object] | Outputs:
        kind = None
        if self.data[self.at : self.at + 1] == b"$":
            self.take(1)
            kind = chr(self.take(1)[0])
        if self.data[self.at : self.at + 1] == b"#":
            self.take(1)
            count = int(self.number(self.tag()))
            return self.counted(kind, count, depth)
        found = []
        while self.data[self.at : self.at + 1] != b"]":
            found.append(self.value(self.tag(), depth + 1))
        self.take(1)
        return found

    def counted(self, kind: str | None, count: int, depth: int) -> list[object] | Outputs:
        if kind in ARRAYS:
            form = np.dtype(ARRAYS[kind])
            return np.frombuffer(self.take(count * form.itemsize), form).astype(form.newbyteorder())
        if count > len(self.data):
            raise DataError(f"the UBJSON model announces {count} values, more than it has bytes")
        return [self.value(kind or self.tag(), depth + 1) for _ in range(count)]
