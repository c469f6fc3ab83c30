"""A client's own rows, as the service wants them: by the names of columns, in the units agreed."""

import numpy as np
import torch
from torch import Tensor

from tacit.data import Rows
from tacit.data.memory import Handed, names_of, numbers_of, take_rows
from tacit.errors import DataError
from tacit.inference.service.spec import ServeSpec


def shape_questions(x: Handed, spec: ServeSpec) -> Tensor:
    """Take rows of any kind; what is not a column of the service stays here.

    Raises:
        DataError: a column is missing, there are more or fewer of them, or values are not numbers.
    """
    features, names = _taken(x, takes_missing=spec.model.is_forest)
    if spec.service.columns and names and features.ndim == 2:
        features = _ordered(features, names, spec.service.columns)
    inputs = spec.model.inputs or (features[0].size,)
    wanted = len(spec.service.columns) or int(np.prod(inputs))
    if features[0].size != wanted:
        raise DataError(
            f"the service wants {wanted} features per row, got {features[0].size}; leave the true "
            "classes out (--label names their column)"
        )
    scale = spec.service.scale
    if len(scale) > 1 and len(scale) != wanted:
        raise DataError(f"service.scale has {len(scale)} divisors, the rows have {wanted} features")
    flat = features.reshape(len(features), -1) / (np.array(scale) if scale else 1.0)
    return torch.from_numpy(flat.reshape(len(features), *inputs))


def _taken(x: Handed, *, takes_missing: bool) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return numbers, and what their columns are called if they have names of their own."""
    if takes_missing and not isinstance(x, Rows):
        return numbers_of(x), tuple(names_of(x))
    rows = take_rows(x)
    numbered = tuple(f"feature {at}" for at in range(len(rows.columns)))
    features = rows.unscaled() if takes_missing else rows.features
    return features, () if rows.columns == numbered else rows.columns


def _ordered(features: np.ndarray, names: tuple[str, ...], wanted: tuple[str, ...]) -> np.ndarray:
    missing = [name for name in wanted if name not in names]
    if missing:
        raise DataError(
            f"the service asks about the columns {', '.join(wanted)}; the rows have no "
            f"{', '.join(missing)}"
        )
    return features[:, [names.index(name) for name in wanted]]
