"""Rows that a program hands in, whatever holds them: arrays, tensors, data frames, data sets.

A torch `Dataset` and one of Hugging Face's `datasets` are known by what they can do; neither
library is needed. All of it is read into memory.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.data.ids import check_columns, take_ids, write_ids
from tacit.data.rows import Rows
from tacit.data.tables import check_finite, check_labels, from_columns, named_rows
from tacit.errors import DataError

Array = npt.NDArray[Any]
"""Of numbers, or of the names of classes."""
Handed = Any
"""What a program hands in: `Rows`, an array, a tensor, lists, a data frame, columns by name, a data
set of torch or Hugging Face, or a pair of features and labels. No library is needed, hence Any."""
_MEMORY = Path("the rows given")
LABELS = ("label", "labels")
"""What the column with classes is called in a data set that has columns."""


def features_and_labels(given: object) -> tuple[Any, Any]:
    """Return the features and the labels of what a program gave; None where it has no labels.

    Args:
        given: `Rows`; a pair of features and labels; features alone, as an array, a tensor or a
            data frame; a data set of pairs; or one with columns, of which one is called "label" or
            "labels" and all others are features.

    Raises:
        DataError: it is a stream, a dictionary of parts, or has columns that do not go together.
    """
    if isinstance(given, tuple) and len(given) == 2:
        return given
    if isinstance(given, Rows):  # without columns where somebody has labels alone
        return given.features if given.features.size else None, given.labels
    columns = _columns(given)
    if columns is None:
        items = _items(given)
        if items is None:
            return given, None
        if isinstance(items[0], Mapping):
            columns = {str(name): [one[name] for one in items] for name in items[0]}
        elif isinstance(items[0], tuple | list) and len(items[0]) == 2:
            return _stack([x for x, _ in items]), _stack([y for _, y in items])
        else:
            return _stack(items), None
    labels = next((name for name in LABELS if name in columns), None)
    features = {name: to_array(one) for name, one in columns.items() if name != labels}
    return _side_by_side(features), None if labels is None else to_array(columns[labels])


def features_of(given: object) -> Array:
    """Return the features alone of what a program gave; a tuple is an array of its items."""
    return to_array(given if isinstance(given, tuple) else features_and_labels(given)[0])


def to_array(values: Any) -> Array:
    """Make an array of whatever it is; a tensor may lie on a device and remember gradients."""
    if isinstance(values, Rows):
        values = values.features
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if str(values.layout) != "torch.strided":
            values = values.to_dense()
        if str(values.dtype) == "torch.bfloat16":  # which NumPy does not have
            values = values.float()
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    if isinstance(values, Sequence) and len(values) and hasattr(values[0], "detach"):
        return _stack(values)
    return np.asarray(values)


def take_rows(
    x: Handed,
    y: Handed = None,
    *,
    label: str | None = None,
    id: Sequence[str] = (),
    allows_missing: bool = False,
) -> Rows:
    """Take rows that are in memory, as the loaders take those of a file.

    Args:
        x: rows of features, or a torch or Hugging Face data set; None for someone who has labels
            alone.
        y: the class of each row, whole numbers from 0; None if there are none, or if they are the
            column ``label`` of a data frame.
        label: the name of that column.
        id: the columns of a data frame, or of a data set that has some, that rows are matched by.
        allows_missing: whether features may be missing; they are NaN.

    Raises:
        DataError: anything that `load_csv` refuses.
    """
    if id:
        return _take_with_ids(x, y, label, id, allows_missing)
    if isinstance(x, Rows) and y is None:
        return x
    labels = None
    if y is None and _is_set(x):
        x, y = features_and_labels(x)
    if y is not None:
        labels = check_labels(_MEMORY, to_array(y), label or "y", None)
    if x is None:
        return named_rows(_MEMORY, np.zeros((0 if labels is None else len(labels), 0)), labels, ())
    names = list(columns_of(x))
    values = to_array(
        np.stack([to_array(one) for one in x.values()], 1) if isinstance(x, Mapping) else x
    )
    if values.ndim < 2 or not len(values):
        raise DataError(
            f"wanted rows of numbers in 2 dimensions or more, not empty, got {values.dtype} of "
            f"shape {values.shape}"
        )
    values = as_numbers(values, whose="rows in memory")
    if y is None and label in names:
        return from_columns(_MEMORY, names, values, label, None, allows_missing)
    check_finite(_MEMORY, values, names or None, None, allows_missing)
    if values.ndim == 2 and not names:
        names = [f"feature {i}" for i in range(values.shape[1])]
    return named_rows(_MEMORY, values, labels, tuple(names))


def _take_with_ids(
    x: Handed, y: Handed, label: str | None, id: Sequence[str], allows_missing: bool
) -> Rows:
    """Take the ids out of what has columns, which may hold text there, and then the rows."""
    take = partial(take_rows, label=label, allows_missing=allows_missing)
    if isinstance(x, Rows):
        whole = take_ids(x, id)
        return replace(take(whole, y), ids=whole.ids)
    names = columns_of(x)
    if not names:  # columns of an array are called "feature 0" and so on
        return take_ids(take(x, y), id)
    check_columns(_MEMORY, names, id)
    ids = write_ids(_MEMORY, {one: _cells(x[one]) for one in id})
    rest: Any = {one: x[one] for one in names if one not in id}
    if y is None and set(rest) == {label}:
        rest, y = {}, rest[label]
    if y is None and rest and _is_set(x):
        rest, y = features_and_labels(rest)
    if not len(rest) and y is None:
        return replace(named_rows(_MEMORY, np.zeros((len(ids), 0)), None, ()), ids=ids)
    return replace(take(rest if len(rest) else None, y), ids=ids)


def _is_set(x: object) -> bool:
    """Tell whether it is a data set, or an array, and no data frame: labels are then inside."""
    return not isinstance(x, tuple | Mapping) and not hasattr(x, "columns")


def _cells(column: Any) -> Sequence[Any]:
    """Return the cells of a column of a data frame of any library."""
    for name in ("to_pylist", "to_list", "tolist"):
        if hasattr(column, name):
            return list(getattr(column, name)())
    return list(column)


def numbers_of(given: object, *, whose: str = "the input") -> npt.NDArray[np.float64]:
    """Return the features alone of what a program gave, in double precision.

    What a data frame lacks is NaN.

    Args:
        given: features of any kind, or a data set.
        whose: what an error calls them.

    Raises:
        DataError: they are not numbers.
    """
    try:
        found = features_of(given)
    except DataError as error:
        raise DataError(f"{whose}: {error}") from error
    except (TypeError, ValueError) as error:
        raise DataError(f"{whose}: wanted rows of numbers, all of one shape: {error}") from error
    return as_numbers(found if found.ndim else given, whose=whose)


def as_numbers(found: Any, *, whose: str) -> npt.NDArray[np.float64]:
    """Bring an array, of objects too, to double precision; what it lacks is NaN.

    Raises:
        DataError: it holds something else than numbers, or is no array.
    """
    wanted = f"{whose}: wanted rows of numbers"
    if not isinstance(found, np.ndarray):
        came = type(found).__name__
        raise DataError(f"{wanted}, got {came}{_HINTS.get(came, '')}")
    if found.dtype.kind in "biuf":
        return found.astype(np.float64)
    if found.dtype.kind != "O":
        raise DataError(f"{wanted}, got {found.dtype}")
    # Columns of several kinds, and those that may lack values, make an array of objects.
    for one in found.flat:
        if not isinstance(one, Real | Decimal | np.bool_) and not _is_missing(one):
            raise DataError(f"{wanted}, got a {type(one).__name__} among them")
    numbers = [np.nan if _is_missing(one) else float(one) for one in found.flat]
    return np.array(numbers, dtype=np.float64).reshape(found.shape)


_HINTS = {
    "DuckDBPyRelation": "; give what its .arrow() returns",
    "LazyFrame": "; give what its .collect() returns",
    **dict.fromkeys(("csr_matrix", "csc_matrix", "csr_array", "csc_array"), "; use .toarray()"),
}


def _is_missing(value: object) -> bool:
    return value is None or type(value).__name__ == "NAType"  # as pandas calls it


def names_of(given: object) -> tuple[str, ...]:
    """Return the names of the features, in order, of what has columns by name; else none.

    Args:
        given: features, or a pair of features and labels.
    """
    if isinstance(given, tuple) and len(given) == 2:
        given = given[0]
    found = columns_of(given)
    if hasattr(given, "to_numpy") or isinstance(given, Rows):  # see `features_and_labels`
        return found
    label = next((one for one in LABELS if one in found), None)
    return tuple(one for one in found if one != label)


def columns_of(given: object) -> tuple[str, ...]:
    """Return the names of all columns, in order, of what has columns by name; else none."""
    if isinstance(given, Mapping):
        return tuple(map(str, given))
    names: Any = getattr(given, "column_names", None)
    if not isinstance(names, Sequence):
        names = getattr(given, "columns", ())
    return tuple(map(str, names))


def mark_of(names: Sequence[str]) -> int:
    """Return a number that stands for names in their order, and 0 for none.

    Guarantee: 48 bits of SHA-256; who can guess the names can check the guess.
    """
    digest = hashlib.sha256("\0".join(names).encode()).digest()
    return int.from_bytes(digest[:6], "big") if names else 0


def check_names(marks: Mapping[str, int]) -> None:
    """Refuse owners of rows whose columns are called otherwise; no names go with all.

    Raises:
        DataError: names two owners.
    """
    named = [owner for owner, mark in marks.items() if mark]
    other = next((owner for owner in named if marks[owner] != marks[named[0]]), None)
    if other is not None:
        raise DataError(
            f"owners of rows must have the same columns in the same order, and those of {other!r} "
            f"are called otherwise, or stand in another order, than those of {named[0]!r}; bring "
            "them in one order (columns are taken by position)"
        )


def _columns(given: object) -> Mapping[str, Any] | None:
    """Return the columns of a data set that has them by name."""
    names: Any = getattr(given, "column_names", None)
    if isinstance(names, Mapping):  # a dictionary of such data sets says so of each
        raise DataError(
            f"wanted one data set, got a dictionary of {', '.join(map(repr, names))}; take one"
        )
    if isinstance(given, Mapping) and not names:
        return given
    if not isinstance(names, Sequence) or hasattr(given, "to_numpy"):
        return None
    if not hasattr(given, "__len__") or not hasattr(given, "__getitem__"):
        raise DataError("wanted a data set of known length, got a stream; take some rows of it")
    return {str(name): given[name] for name in names}


def _items(given: object) -> Sequence[Any] | None:
    """Return the items of a torch `Dataset`, and None for what is an array already."""
    is_array = hasattr(given, "__array__") or hasattr(given, "to_numpy")
    if is_array or isinstance(given, Sequence | str | bytes) or not hasattr(given, "__getitem__"):
        return None
    if not hasattr(given, "__len__"):
        raise DataError("wanted a data set of known length, got a stream; take some rows of it")
    if not len(given):
        raise DataError("wanted a data set with rows, got an empty one")
    return [given[at] for at in range(len(given))]


def _stack(items: Sequence[Any]) -> Array:
    try:
        return np.stack([to_array(one) for one in items])
    except ValueError as error:
        raise DataError(f"the items of the data set have different shapes: {error}") from error


def _side_by_side(columns: Mapping[str, Array]) -> Array:
    """Put columns of numbers side by side, or return the only one."""
    text = [name for name, one in columns.items() if one.dtype.kind not in "biuf"]
    if text:
        raise DataError(
            f"the columns {', '.join(map(repr, text))} are not numbers of one shape; encode them "
            "or leave them out"
        )
    if len(columns) == 1:
        (only,) = columns.values()
        return only if only.ndim > 1 else only[:, None]
    if not columns or any(one.ndim != 1 for one in columns.values()):
        shapes = ", ".join(f"{name!r} {one.shape[1:]}" for name, one in columns.items())
        raise DataError(f"wanted columns of one number each, or one column, got {shapes or 'none'}")
    return np.stack(list(columns.values()), axis=1)
