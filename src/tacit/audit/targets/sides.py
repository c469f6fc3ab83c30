"""Who was trained on, and who was not: members and strangers out of data sets."""

from dataclasses import replace

import numpy as np
import torch

from tacit.audit.targets.target import Side, take_rows
from tacit.data import Dataset, split_dataset
from tacit.errors import DataError

_MOST_SHARED = 0.5


def draw_sides(whole: Dataset, *, test_share: float) -> tuple[Dataset, Dataset]:
    """Draw members, and a share of strangers: right for a model that is trained on these members.

    Args:
        whole: all rows.
        test_share: of the rows, that are strangers.
    """
    inside, outside = (
        split_dataset(whole, part=part, test_share=test_share) for part in ("train", "test")
    )
    return inside, outside


def divide_by_column(whole: Dataset, column: str) -> tuple[Dataset, Dataset]:
    """Divide rows by a column of ones, the members, and zeros, which is no feature.

    Raises:
        DataError: no such column, or something else in it.
    """
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


def check_alike(inside: Dataset, outside: Dataset) -> None:
    """Refuse strangers whose columns are not those of the members.

    Raises:
        DataError: they differ in number, order or name.
    """
    shapes = inside.features.shape[1:], outside.features.shape[1:]
    if inside.feature_names != outside.feature_names or shapes[0] != shapes[1]:
        raise DataError(
            f"wanted the same columns in {inside.name} and {outside.name}, got rows of "
            f"shape {shapes[0]} and {shapes[1]}"
            + (", in another order or by other names" if shapes[0] == shapes[1] else "")
        )


def to_side(dataset: Dataset, *, rows: int | None = None) -> Side:
    """Return scaled rows and labels as tensors, at most so many.

    Raises:
        DataError: no labels.
    """
    if not dataset.is_labelled:
        raise DataError(f"data set {dataset.name!r} has no labels to predict; wanted data.label")
    x = torch.tensor(dataset.scaled(), dtype=torch.float32)
    return take_rows((x, torch.tensor(dataset.labels)), rows)


def check_apart(members: Side, strangers: Side) -> None:
    """Refuse strangers that are members: the same file twice, or one that holds the other.

    Raises:
        DataError: more than half of the strangers are among the members.
    """
    known = {row.numpy().tobytes() for row in members[0]}
    both = sum(row.numpy().tobytes() in known for row in strangers[0])
    if both > _MOST_SHARED * len(strangers[0]):
        raise DataError(
            "wanted strangers that the model was not trained on, but "
            f"{both} of {len(strangers[0])} are among the members too"
        )
