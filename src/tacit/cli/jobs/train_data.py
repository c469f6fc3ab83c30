"""One owner's rows for a training: loaded, cut to its part, checked before anything is sent."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from tacit.cli.jobs.code import OwnModel
from tacit.cli.jobs.given import NOTHING, Given, load_source, shaped, stretch
from tacit.cli.jobs.train_job import OwnerTable, TrainJob
from tacit.errors import DataError
from tacit.learn import Dataset
from tacit.learn.dataset import scale_of
from tacit.learn.training import Holding

_LARGEST_ID = 1 << 53


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


def load_rows(job: TrainJob, owner: str, search: Sequence[Path], given: Given = NOTHING) -> Rows:
    """Load an owner's part of the data, with labels as a training wants them.

    Raises:
        DataError: it cannot be read, holds NaN, a constant column, or labels out of range.
    """
    rows = read_rows(job.data.owners[owner], owner, search, given, shape=job.data.shape)
    wants_labels = job.data.labels in (None, owner)
    brings_labels_alone = job.data.split == "columns" and wants_labels
    _check_columns(rows.features, owner, may_be_none=brings_labels_alone)
    rows = replace(rows, labels=_one_hot(job, owner, rows.labels) if wants_labels else None)
    if job.data.split == "columns":
        rows.check_columns(owner)
    return rows


def read_rows(
    table: OwnerTable,
    owner: str,
    search: Sequence[Path],
    given: Given = NOTHING,
    *,
    shape: tuple[int, ...] | None = None,
) -> Rows:
    """Read an owner's part of the data; labels are classes, if there are any.

    Raises:
        DataError: it cannot be read, holds NaN, or nothing is left of it.
    """
    dataset = load_source(table, f"data.owners.{owner}", search, given)
    features, labels, ids = dataset.scaled(), dataset.labels, ids_in(dataset, table.id)
    names = tuple(name for name in dataset.feature_names if name != table.id)
    if table.id is not None:
        features = features[:, [dataset.feature_names.index(name) for name in names]]
    rows = stretch(table.rows, len(features), f"data.owners.{owner}.rows")
    features, labels, ids = features[rows], labels[rows], ids[rows]
    if shape is not None:
        features = shaped(features, shape, "data.shape")
    elif features.ndim > 2:
        features = features.reshape(len(features), -1)
    if table.columns is not None:
        columns = stretch(table.columns, features.shape[1], f"data.owners.{owner}.columns")
        features, names = features[:, columns], names[columns]
    features = _rescaled(features, table, owner)
    _check(features, owner)
    known = torch.from_numpy(np.ascontiguousarray(labels)) if dataset.is_labelled else None
    return Rows(
        features=torch.from_numpy(np.ascontiguousarray(features)),
        labels=known,
        ids=ids,
        columns=() if table.set is not None else names,
        scale=scale_of(dataset) if table.scale is None else tuple(table.scale),
    )


def join_owners(
    job: TrainJob, search: Sequence[Path]
) -> tuple[Tensor, Tensor, tuple[Holding, ...]]:
    """Put the rows of all owners together, for someone who may see them: rows, labels, and whose.

    Labels are as a training wants them: one-hot, or a column of zeros and ones.
    """
    parts = {owner: load_rows(job, owner, search) for owner in job.data.owners}
    if job.data.split == "columns":
        parts = align_in_the_clear(parts)
    holdings = tuple(
        Holding(owner, len(one.features), tuple(one.features.shape[1:]), one.labels is not None)
        for owner, one in parts.items()
    )
    along = 0 if job.data.split == "rows" else 1
    features = torch.cat([one.features for one in parts.values()], dim=along)
    labels = torch.cat([one.labels for one in parts.values() if one.labels is not None])
    return features, labels, holdings


class Matchable(Protocol):
    """Rows that can be matched by their ids."""

    @property
    def ids(self) -> tuple[str, ...]:
        """Return an id for every row."""
        ...

    def take(self, chosen: Sequence[int]) -> Self:
        """Keep some rows, in the order given."""
        ...


M = TypeVar("M", bound=Matchable)


def align_in_the_clear(rows: Mapping[str, M]) -> dict[str, M]:
    """Order the common rows alike, as a matching does, for a comparison on one machine."""
    common = sorted(set.intersection(*(set(one.ids) for one in rows.values())))
    places = {name: {row: at for at, row in enumerate(one.ids)} for name, one in rows.items()}
    return {name: one.take([places[name][row] for row in common]) for name, one in rows.items()}


def _rescaled(features: np.ndarray, table: OwnerTable, owner: str) -> np.ndarray:
    """Divide the columns by what their owner says."""
    if table.scale is None:
        return features
    if features.shape[1:] != (len(table.scale),):
        raise DataError(
            f"data.owners.{owner}.scale has {len(table.scale)} divisors, the rows without id and "
            f"label are of shape {features.shape[1:]}"
        )
    scaled: np.ndarray = features / np.array(table.scale)
    return scaled


def ids_in(dataset: Dataset, column: str | None) -> tuple[str, ...]:
    """Return the ids of all rows: a column of the file, or the position in a public set.

    Raises:
        DataError: there is no such column, or ids in it are too large to be exact.
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
    return tuple(f"{value:.17g}" for value in values)


def _check(features: np.ndarray, owner: str) -> None:
    if not len(features):
        raise DataError(f"data.owners.{owner}: no rows are left")
    if not np.isfinite(features).all():
        raise DataError(f"the data of {owner!r} holds NaN or infinite values; clean it first")


def _check_columns(features: Tensor, owner: str, *, may_be_none: bool) -> None:
    if not features.numel():
        if not may_be_none:
            raise DataError(f"data.owners.{owner}: no columns are left")
    elif features.dim() == 2 and len(features) > 1:
        is_constant = features.amax(dim=0) == features.amin(dim=0)
        if bool(is_constant.all()):
            raise DataError(f"all columns of {owner!r} are constant: nothing to learn from")


def _one_hot(job: TrainJob, owner: str, labels: Tensor | None) -> Tensor:
    if labels is None:
        raise DataError(
            f"the data of {owner!r} has no labels; name the column with data.owners.{owner}.label"
        )
    classes = _classes(job)
    beyond = labels[(labels < 0) | (labels >= classes)]
    if len(beyond):
        raise DataError(
            f"the labels of {owner!r} go up to {int(beyond.max())}, but the model has "
            f"{classes} classes"
        )
    if job.training.loss == "logistic":
        return labels.double().reshape(-1, 1)
    return torch.nn.functional.one_hot(labels, classes).double()


def _classes(job: TrainJob) -> int:
    if job.training.loss == "logistic":
        return 2
    if job.model.code is not None:
        layers = list(OwnModel.read(job.model.code)().modules())
        last = next((one for one in reversed(layers) if isinstance(one, nn.Linear)), None)
        if last is None:
            raise DataError("model.code: wanted a model that ends in an nn.Linear, a class each")
        return last.out_features
    words = next(one for one in reversed(job.model.layers) if one.split()[0] == "dense").split()
    return int(words[1])
