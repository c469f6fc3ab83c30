"""One owner's rows: cut to its part, scaled, and checked before anything of them is sent."""

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, Self

import numpy as np
import torch
from torch import Tensor

from tacit.data.dataset import Dataset, Floats, scale_of
from tacit.errors import DataError, RangeError

_LARGEST_ID = 1 << 53
_MOST_NAMED = 5
FAR = 10.0
"""The root mean square of a column above which it is in a unit of its own: years, money."""


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Which part of a data set an owner brings, and in which form.

    Attributes:
        id: a column with numbers that rows are matched by; it is no feature.
        rows, columns: a stretch, from the first to before the second.
        scale: what to divide the columns by.
        shape: of a row; flat if not given.
        is_public: whether the rows are of a known set, whose columns are nobody's own.
    """

    id: str | None = None
    rows: Sequence[int] | None = None
    columns: Sequence[int] | None = None
    scale: tuple[float, ...] | None = None
    shape: tuple[int, ...] | None = None
    is_public: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """One owner's rows: features, labels if it has them, and ids to match rows by.

    ``columns`` names the features of an owner's own file; empty for public sets. ``scale`` is
    what the features were divided by: one number, or one each.
    """

    features: Tensor
    labels: Tensor | None
    ids: tuple[str, ...]
    columns: tuple[str, ...] = ()
    scale: float | tuple[float, ...] = 1.0

    def take(self, chosen: Sequence[int]) -> Self:
        """Keep some rows, in the order given."""
        at = torch.tensor(list(chosen), dtype=torch.int64)
        labels = None if self.labels is None else self.labels[at]
        ids = tuple(self.ids[one] for one in chosen)
        return replace(self, features=self.features[at], labels=labels, ids=ids)

    def check_columns(self, owner: str) -> None:
        """Refuse columns of an owner's own that say nothing about its rows.

        Public sets are let pass: pictures have pixels that are always black.

        Raises:
            DataError: a column has one value only.
        """
        flat = self.features.flatten(1)
        is_constant = (flat.amax(dim=0) == flat.amin(dim=0)).tolist()
        named = [name for name, is_one in zip(self.columns, is_constant, strict=False) if is_one]
        if named:
            raise DataError(
                f"{', '.join(map(repr, named))} of {owner!r} are constant over {len(flat)} rows: "
                "nothing can be learned from them; leave these columns out"
            )

    def digest(self) -> bytes:
        """Hash what is in the rows."""
        content = hashlib.sha256(self.features.numpy().tobytes())
        if self.labels is not None:
            content.update(self.labels.numpy().tobytes())
        return content.digest()


def cut_rows(dataset: Dataset, cut: Cut, *, owner: str) -> Rows:
    """Take an owner's part of a data set; labels are classes, if there are any.

    Raises:
        DataError: it holds NaN, goes beyond what there is, or nothing is left of it.
    """
    key = f"data.owners.{owner}"
    features, labels, ids = dataset.scaled(), dataset.labels, ids_in(dataset, cut.id)
    names = tuple(name for name in dataset.feature_names if name != cut.id)
    if cut.id is not None:
        features = features[:, [dataset.feature_names.index(name) for name in names]]
    rows = stretch(cut.rows, len(features), f"{key}.rows")
    features, labels, ids = features[rows], labels[rows], ids[rows]
    if cut.shape is not None:
        features = shaped(features, cut.shape, "data.shape")
    elif features.ndim > 2:
        features = features.reshape(len(features), -1)
    if cut.columns is not None:
        columns = stretch(cut.columns, features.shape[1], f"{key}.columns")
        features, names = features[:, columns], names[columns]
    features = _rescaled(features, cut.scale, key)
    if not len(features):
        raise DataError(f"{key}: no rows are left")
    if not np.isfinite(features).all():
        raise DataError(f"the data of {owner!r} holds NaN or infinite values; clean it first")
    known = torch.from_numpy(np.ascontiguousarray(labels)) if dataset.is_labelled else None
    return Rows(
        features=torch.from_numpy(np.ascontiguousarray(features)),
        labels=known,
        ids=ids,
        columns=() if cut.is_public else names,
        scale=scale_of(dataset) if cut.scale is None else cut.scale,
    )


def prepare_labels(
    rows: Rows, owner: str, *, classes: int, loss: Literal["softmax", "logistic"]
) -> Tensor:
    """Return labels as a training wants them: one-hot, or a column of zeros and ones.

    Raises:
        DataError: there are none, or they are out of range.
    """
    if rows.labels is None:
        raise DataError(
            f"the data of {owner!r} has no labels; name the column with data.owners.{owner}.label"
        )
    beyond = rows.labels[(rows.labels < 0) | (rows.labels >= classes)]
    if len(beyond):
        raise DataError(
            f"the labels of {owner!r} go up to {int(beyond.max())}, but the model has "
            f"{classes} classes"
        )
    if loss == "logistic":
        return rows.labels.double().reshape(-1, 1)
    return torch.nn.functional.one_hot(rows.labels, classes).double()


def check_features(rows: Rows, owner: str, *, may_be_none: bool) -> None:
    """Refuse rows that nothing can be learned from.

    Raises:
        DataError: there is no column, or all are constant.
    """
    if not rows.features.numel():
        if not may_be_none:
            raise DataError(f"data.owners.{owner}: no columns are left")
    elif rows.features.dim() == 2 and len(rows.features) > 1:
        is_constant = rows.features.amax(dim=0) == rows.features.amin(dim=0)
        if bool(is_constant.all()):
            raise DataError(f"all columns of {owner!r} are constant: nothing to learn from")


def check_bound(rows: Rows, owner: str, bound: float) -> None:
    """Refuse features beyond the bound of a job, before anything is planned with it.

    Raises:
        RangeError: names the columns, where they have names, and no value.
    """
    beyond = (rows.features.abs() > bound).any(dim=0).flatten()
    if not bool(beyond.any()):
        return
    named = [name for name, is_one in zip(rows.columns, beyond.tolist(), strict=False) if is_one]
    what = few_names(named) if named else f"{int(beyond.sum())} of {len(beyond)} features"
    raise RangeError(
        f"{what} of {owner!r} go beyond data.bound = {bound:g}: divide the columns by "
        f"data.owners.{owner}.scale, or raise data.bound"
    )


def state_far(features: Tensor, names: Sequence[str]) -> str:
    """Say which columns are far from the values of about 1 that a network begins with, or nothing.

    There are sizes in it: it is for who has these rows, and for nobody else.
    """
    if features.dim() != 2 or not len(features) or not features.is_floating_point():
        return ""  # pictures, or ids of tokens
    sizes = features.double().square().mean(0).sqrt().tolist()
    known = names or [f"column {at}" for at in range(1, len(sizes) + 1)]
    far = {
        name: f" (about {size:.1g})" for name, size in zip(known, sizes, strict=False) if size > FAR
    }
    if not far:
        return ""
    return (
        f"{few_names(far, far)} are far from the values of about 1 that a network begins with: it "
        "may learn to name the most frequent class and nothing else; divide such columns beforehand"
    )


def few_names(names: Collection[str], beside: Mapping[str, str] | None = None) -> str:
    """Name columns, the first few of many."""
    shown = [f"{name!r}{(beside or {}).get(name, '')}" for name in islice(names, _MOST_NAMED)]
    rest = len(names) - len(shown)
    return ", ".join([*shown, *([f"{rest} more"] if rest else [])])


def ids_in(dataset: Dataset, column: str | None) -> tuple[str, ...]:
    """Return the ids of all rows: a column of the file, or the position in a public set.

    Raises:
        DataError: there is no such column, or ids in it are no whole numbers, or too large to be
            exact.
    """
    if column is None:
        return tuple(str(row) for row in range(len(dataset.features)))
    if column not in dataset.feature_names:
        raise DataError(
            f"{dataset.name} has no column {column!r} to match rows by; it has "
            f"{', '.join(dataset.feature_names) or 'pictures'}"
        )
    values = dataset.features[:, dataset.feature_names.index(column)]
    if not (np.abs(values) < _LARGEST_ID).all():  # also of none, and of NaN
        raise DataError(
            f"{dataset.name}: wanted ids below {_LARGEST_ID}: larger ones are not exact"
        )
    if not (values == np.floor(values)).all():
        row = int(np.argmin(values == np.floor(values))) + 1
        raise DataError(
            f"{dataset.name}: wanted whole numbers as ids in column {column!r}, row {row} has a "
            "fraction"
        )
    return tuple(f"{value:.17g}" for value in values)


def stretch(pair: Sequence[int] | None, count: int, key: str) -> slice:
    """Return the part of rows or columns that a job names; all of them if it names none.

    Raises:
        DataError: it goes beyond what there is.
    """
    first, end = pair or (0, count)
    if end > count:
        raise DataError(
            f"{key}: wanted at most [{first}, {count}], as there are {count}, got {end}"
        )
    return slice(first, end)


def shaped(rows: Floats, shape: Sequence[int], key: str) -> Floats:
    """Give every row the shape that a key of the job wants.

    Raises:
        DataError: the rows have another number of values.
    """
    wanted, got = math.prod(shape), math.prod(rows.shape[1:])
    if got != wanted:
        raise DataError(f"{key}: wanted rows of {wanted} values, shape {list(shape)}, got {got}")
    return rows.reshape(len(rows), *shape)


def _rescaled(features: Floats, scale: tuple[float, ...] | None, key: str) -> Floats:
    """Divide the columns by what their owner says."""
    if scale is None:
        return features
    if features.shape[1:] != (len(scale),):
        raise DataError(
            f"{key}.scale has {len(scale)} divisors, the rows without id and label are of shape "
            f"{features.shape[1:]}"
        )
    scaled: Floats = features / np.array(scale)
    return scaled
