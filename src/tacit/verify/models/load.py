"""Loading an ensemble from a file or from a library's model object."""

import gzip
import io
import zlib
from pathlib import Path
from typing import IO

from tacit.errors import DataError, foreign
from tacit.verify.models.ensemble import Ensemble
from tacit.verify.models.lightgbm import from_lightgbm, parse_lightgbm
from tacit.verify.models.sklearn import from_sklearn
from tacit.verify.models.stored import parse_stored
from tacit.verify.models.xgboost import from_xgboost, parse_xgboost

LARGEST_FILE = 1 << 30


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
