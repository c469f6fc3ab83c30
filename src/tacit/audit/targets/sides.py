"""Who was trained on, and who was not: members and strangers out of data sets."""

import numpy as np
import torch

from tacit.audit.targets.target import Side, take_rows
from tacit.data import Rows, split_dataset
from tacit.errors import DataError

_MOST_SHARED = 0.5


def draw_sides(whole: Rows, *, test_share: float) -> tuple[Rows, Rows]:
    """Draw members, and a share of strangers: right for a model that is trained on these members.

    Args:
        whole: all rows.
        test_share: of the rows, that are strangers.
    """
    inside, outside = (
        split_dataset(whole, part=part, test_share=test_share) for part in ("train", "test")
    )
    return inside, outside


def divide_by_column(whole: Rows, column: str) -> tuple[Rows, Rows]:
    """Divide rows by a column of ones, the members, and zeros, which is no feature.

    Raises:
        DataError: no such column, or something else in it.
    """
    if column not in whole.columns:
        raise DataError(
            f"{whole.name}: wanted a column {column!r} with 1 for members and 0 for strangers, got "
            f"{', '.join(whole.columns[:8]) or 'no names of columns'}"
        )
    at = whole.columns.index(column)
    flags = whole.features[:, at]
    if set(np.unique(flags)) != {0.0, 1.0}:
        raise DataError(
            f"{whole.name}: wanted both 1 for members and 0 for strangers in {column!r}, and "
            "nothing else"
        )
    rest = whole.without(column)
    return rest.take(np.flatnonzero(flags == 1.0)), rest.take(np.flatnonzero(flags == 0.0))


def check_alike(inside: Rows, outside: Rows) -> None:
    """Refuse strangers whose columns are not those of the members.

    Raises:
        DataError: they differ in number, order or name.
    """
    shapes = inside.features.shape[1:], outside.features.shape[1:]
    if inside.columns != outside.columns or shapes[0] != shapes[1]:
        raise DataError(
            f"wanted the same columns in {inside.name} and {outside.name}, got rows of "
            f"shape {shapes[0]} and {shapes[1]}"
            + (", in another order or by other names" if shapes[0] == shapes[1] else "")
        )


def to_side(found: Rows, *, rows: int | None = None) -> Side:
    """Return scaled rows and labels as tensors, at most so many.

    Raises:
        DataError: no labels.
    """
    if found.labels is None:
        raise DataError(f"data set {found.name!r} has no labels to predict; wanted data.label")
    x = torch.tensor(found.features, dtype=torch.float32)
    return take_rows((x, torch.tensor(found.labels)), rows)


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
