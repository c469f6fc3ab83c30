"""A client's own rows, as the service wants them: by the names of columns, prepared as agreed."""

from dataclasses import replace
from math import prod

import torch
from torch import Tensor

from tacit.data import Rows
from tacit.data.memory import Handed, names_of, numbers_of, take_rows
from tacit.data.prepare import prepare_rows
from tacit.errors import DataError
from tacit.inference.service.spec import ServeSpec


def shape_questions(x: Handed, spec: ServeSpec) -> Tensor:
    """Take rows of any kind; what is not a column of the service stays here.

    Raises:
        DataError: a column is missing, there are more or fewer of them, or a value cannot be used.
    """
    rows, names = _taken(x, spec), spec.service.columns
    if names and rows.columns and rows.features.ndim == 2:
        rows = _ordered(rows, names)
    elif names:  # by their places
        _check_size(rows, len(names))
        rows = replace(rows, columns=names)
    rows = prepare_rows(rows, spec.prepare, "service.prepare")
    is_raw = spec.model.is_forest and not spec.prepare  # thresholds are in the units of the rows
    features = rows.unscaled() if is_raw else rows.features
    inputs = spec.model.inputs or features.shape[1:]
    _check_size(rows, prod(inputs))
    return torch.from_numpy(features.reshape(len(features), *inputs))


def _check_size(rows: Rows, wanted: int) -> None:
    if (size := rows.features[0].size) != wanted:
        raise DataError(
            f"the service wants {wanted} features per row, got {size}; leave the true classes out "
            "(--label names their column)"
        )


def _taken(x: Handed, spec: ServeSpec) -> Rows:
    """Return numbers, with names of columns where they have some of their own."""
    if spec.model.is_forest and not isinstance(x, Rows):
        return Rows(features=numbers_of(x), columns=tuple(names_of(x)))
    rows = take_rows(x, allows_missing=bool(spec.prepare))
    numbered = tuple(f"feature {at}" for at in range(len(rows.columns)))
    return replace(rows, columns=()) if rows.columns == numbered else rows


def _ordered(rows: Rows, wanted: tuple[str, ...]) -> Rows:
    missing = [name for name in wanted if name not in rows.columns]
    if missing:
        raise DataError(
            f"the service asks about the columns {', '.join(wanted)}; the rows have no "
            f"{', '.join(missing)}"
        )
    places = [rows.columns.index(name) for name in wanted]
    scale = rows.scale if isinstance(rows.scale, float) else tuple(rows.scale[at] for at in places)
    return replace(rows, features=rows.features[:, places], columns=wanted, scale=scale)
