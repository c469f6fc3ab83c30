"""The rows of a job of kind "audit": who was trained on, and who was not."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from tacit.cli.jobs.audit_job import AuditData, AuditJob
from tacit.cli.jobs.audit_sides import SPLIT_SEED, Side
from tacit.errors import DataError
from tacit.learn import Dataset, load_dataset, load_file, split_dataset

_MOST_SHARED = 0.5


def load_sides(job: AuditJob, search: Sequence[Path]) -> tuple[Side, Side, int]:
    """Load members, strangers, and the number of classes.

    Raises:
        DataError: no labels, files whose columns differ, or rows that are on both sides.
    """
    members, strangers = _name_sides(job.data, search)
    for one in (members, strangers):
        if not one.is_labelled:
            raise DataError(f"data set {one.name!r} has no labels to predict; wanted data.label")
    share = job.data.test_share
    sides = _take(members, 1 - share, job.data.rows), _take(strangers, share, job.data.rows)
    if job.data.names_members:
        _check_apart(*sides)
    return *sides, max(len(members.label_names), len(strangers.label_names))


def _name_sides(data: AuditData, search: Sequence[Path]) -> tuple[Dataset, Dataset]:
    if data.members is not None and data.strangers is not None:
        inside, outside = (
            load_file(one, label=data.label) for one in (data.members, data.strangers)
        )
        shapes = inside.features.shape[1:], outside.features.shape[1:]
        if inside.feature_names != outside.feature_names or shapes[0] != shapes[1]:
            raise DataError(
                f"wanted the same columns in {data.members} and {data.strangers}, got rows of "
                f"shape {shapes[0]} and {shapes[1]}"
                + (", in another order or by other names" if shapes[0] == shapes[1] else "")
            )
        return inside, outside
    if data.file is not None:
        whole = load_file(data.file, label=data.label)
    else:
        whole = load_dataset(data.set or "", search)
    if data.member is not None:
        return _by_column(whole, data.member)
    inside, outside = (
        split_dataset(whole, part=part, test_share=data.test_share, seed=SPLIT_SEED)
        for part in ("train", "test")
    )
    return inside, outside


def _by_column(whole: Dataset, column: str) -> tuple[Dataset, Dataset]:
    """Divide rows by a column of ones and zeros, which is no feature."""
    if column not in whole.feature_names:
        raise DataError(
            f"{whole.name}: wanted a column {column!r} with 1 for members and 0 for strangers, got "
            f"{', '.join(whole.feature_names[:8]) or 'no names of columns'}"
        )
    at = whole.feature_names.index(column)
    flags = whole.features[:, at]
    if set(np.unique(flags)) != {0.0, 1.0}:
        raise DataError(
            f"{whole.name}: wanted both 1 for members and 0 for strangers in {column!r}, and "
            "nothing else"
        )
    rest = replace(
        whole,
        features=np.delete(whole.features, at, axis=1),
        scale=np.delete(whole.scale, at),
        feature_names=tuple(one for one in whole.feature_names if one != column),
    )
    inside, outside = (
        replace(
            rest,
            features=rest.features[chosen],
            labels=rest.labels[chosen] if rest.is_labelled else rest.labels,
            published_test_rows=0,
        )
        for chosen in (flags == 1.0, flags == 0.0)
    )
    return inside, outside


def _take(dataset: Dataset, share: float, rows: int | None) -> Side:
    """Return the rows of a side as tensors, at most its share of so many."""
    x = torch.tensor(dataset.scaled(), dtype=torch.float32)
    y = torch.tensor(dataset.labels)
    if rows is None:
        return x, y
    keys = torch.empty(len(y)).uniform_(generator=torch.Generator().manual_seed(SPLIT_SEED))
    chosen = keys.argsort()[: max(round(share * rows), 1)].sort().values
    return x[chosen], y[chosen]


def _check_apart(members: Side, strangers: Side) -> None:
    """Refuse strangers that are members: the same file twice, or one that holds the other."""
    known = {row.numpy().tobytes() for row in members[0]}
    both = sum(row.numpy().tobytes() in known for row in strangers[0])
    if both > _MOST_SHARED * len(strangers[0]):
        raise DataError(
            "wanted strangers that the model was not trained on, but "
            f"{both} of {len(strangers[0])} are among the members too"
        )
