"""Loading an ensemble from a file or a library's model object, and saving it in a form of ours.

Our form is for models whose library saves only by pickle.
"""

import gzip
import io
import json
import math
import zlib
from dataclasses import fields
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import numpy.typing as npt

from tacit.errors import DataError, foreign
from tacit.files import open_arrays
from tacit.verify.models.categories import Categories
from tacit.verify.models.ensemble import Ensemble
from tacit.verify.models.lightgbm import from_lightgbm, parse_lightgbm
from tacit.verify.models.sklearn import from_sklearn
from tacit.verify.models.xgboost import from_xgboost, parse_xgboost

ARRAYS = {
    "roots": np.int32,
    "feature": np.int32,
    "threshold": np.float64,
    "left": np.int32,
    "right": np.int32,
    "missing_left": np.bool_,
    "value": np.float64,
    "base": np.float64,
}
CATEGORIES = {
    "feature": np.int32,
    "start": np.int32,
    "low": np.float64,
    "high": np.float64,
    "listed_left": np.bool_,
    "missing_left": np.bool_,
}
"""Stored under these names, with ``category_`` before them."""
Scalar = TypeVar("Scalar", bound=np.generic)
Stored = dict[str, npt.NDArray[np.generic]]
PARTS = {*ARRAYS, "integer", "categories"}
NUMBERS = ("float32", "float64")
TASKS = ("classify", "regress")
FORM = 2
"""Form 1 knew nothing of missing values and categories."""
LARGEST_FILE = 1 << 30


def save_ensemble(ensemble: Ensemble, path: Path | str) -> None:
    """Write an ensemble to a file that `load_ensemble` and ``tacit verify`` read."""
    Path(path).write_bytes(store_ensemble(ensemble))


def store_ensemble(ensemble: Ensemble) -> bytes:
    """Write an ensemble as an npz of plain arrays; floats keep all their bits."""
    arrays = {name: getattr(ensemble, name) for name in ARRAYS}
    if ensemble.integer is not None:
        arrays["integer"] = ensemble.integer
    if ensemble.categories is not None:
        every = {name: getattr(ensemble.categories, name) for name in CATEGORIES}
        arrays |= {f"category_{name}": one for name, one in every.items()}
    rule = {
        one.name: getattr(ensemble, one.name) for one in fields(ensemble) if one.name not in PARTS
    }
    text = json.dumps({"form": FORM} | rule)
    file = io.BytesIO()
    np.savez_compressed(file, rule=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)
    return file.getvalue()


def parse_stored(data: bytes) -> Ensemble:
    """Read the bytes of a file that `save_ensemble` wrote."""
    with foreign("not a stored ensemble"):
        with open_arrays(io.BytesIO(data)) as saved:
            told = {name: saved[name] for name in saved.files}
        rule = json.loads(told.pop("rule").tobytes())
        # Any: each is of the type that its name asks for.
        parts: Any = {name: _expect(told, name, kind) for name, kind in ARRAYS.items()}
        integer = _expect(told, "integer", np.bool_) if "integer" in told else None
        categories = _read_categories(told) if "category_feature" in told else None
        rule = _check_rule(rule)
        parts |= rule
        if integer is not None and integer.size != rule["n_features"]:
            raise DataError(f"want {rule['n_features']} marks of whole numbers, got {integer.size}")
        return Ensemble(**parts, integer=integer, categories=categories)


def _read_categories(told: Stored) -> Categories:
    # Any: as above.
    every: Any = {
        name: _expect(told, f"category_{name}", kind) for name, kind in CATEGORIES.items()
    }
    return Categories(**every)


def _expect(told: Stored, name: str, kind: type[Scalar]) -> npt.NDArray[Scalar]:
    array, axes = told[name], 2 if name == "value" else 1
    if array.dtype != kind or array.ndim != axes:
        raise ValueError(
            f"{name} must have {axes} axes of {np.dtype(kind)}, got {array.ndim} of {array.dtype}"
        )
    return np.ascontiguousarray(array, dtype=kind)


def _check_rule(told: object) -> dict[str, object]:
    """Check everything of an ensemble that is no array; its arrays check themselves."""
    if not isinstance(told, dict) or (form := told.pop("form", None)) not in (1, FORM):
        raise DataError(f"the stored ensemble is of another form than 1 to {FORM}")
    # Any: each is looked at below.
    rule: dict[str, Any] = told | ({"takes_missing": False} if form == 1 else {})
    known = {one.name for one in fields(Ensemble)} - PARTS
    if set(rule) != known:
        raise DataError(f"a stored ensemble has {sorted(known)}, got {sorted(rule)}")
    words = {"input_type": NUMBERS, "sum_type": NUMBERS, "task": TASKS}
    for name, allowed in words.items():
        if rule[name] not in allowed:
            raise DataError(f"{name} must be one of {allowed}, got {rule[name]!r}")
    for name in ("divisor", "cutoff", "guard"):
        if type(rule[name]) not in (int, float) or not math.isfinite(rule[name]):
            raise DataError(f"{name} must be a finite number, got {rule[name]!r}")
    if not (rule["divisor"] > 0 and rule["guard"] >= 0):
        raise DataError("divisor must be positive and guard not negative")
    if type(rule["n_features"]) is not int or not 0 < rule["n_features"] < 2**31:
        raise DataError(f"n_features must be a positive number, got {rule['n_features']!r}")
    if type(rule["takes_missing"]) is not bool:
        raise DataError(f"takes_missing must be true or false, got {rule['takes_missing']!r}")
    if not isinstance(rule["origin"], str):
        raise DataError(f"origin must be a text, got {rule['origin']!r}")
    return rule


def load_ensemble(path: Path | str) -> Ensemble:
    """Load a model file: XGBoost's .json or .ubj, LightGBM's text, or what `save_ensemble` wrote.

    Any of them may be gzipped. What the file holds is told by its first bytes, not by its name.
    """
    with foreign(f"cannot read the model file {path}", OSError, zlib.error):
        with Path(path).open("rb") as file:
            data = _read(file, path)
        if data[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(data)) as packed:
                data = _read(packed, path)
    if data[:1] in (b"{", b"["):
        return parse_xgboost(data)
    if data[:4] == b"tree":
        return parse_lightgbm(data.decode(errors="replace"))
    if data[:2] == b"PK":
        return parse_stored(data)
    raise DataError(
        f"{path} is neither an XGBoost model (.json, .ubj) nor a LightGBM text model; it begins "
        f"with {data[:8]!r}. A scikit-learn model is saved by "
        "save_ensemble(from_sklearn(model), path)"
    )


def _read(file: IO[bytes] | gzip.GzipFile, path: Path | str) -> bytes:
    # A few bytes of gzip can stand for gigabytes.
    data = file.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise DataError(f"the model file {path} is larger than {LARGEST_FILE >> 20} MiB")
    return data


def import_ensemble(model: object) -> Ensemble:
    """Import a model object of XGBoost, LightGBM or scikit-learn, whichever it is."""
    if hasattr(model, "get_booster") or hasattr(model, "save_raw"):
        return from_xgboost(model)
    if hasattr(model, "booster_") or hasattr(model, "model_to_string"):
        return from_lightgbm(model)
    return from_sklearn(model)
