"""What parties of a split model bring: columns or labels, to train on and to test on."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from tacit.data.dataset import PUBLIC_SEED, Dataset
from tacit.data.source import split as split_dataset
from tacit.errors import DataError

_USUAL_TEST_SHARE = 0.3


@dataclass(frozen=True, kw_only=True, eq=False)
class Divided:
    """What one party brings, divided into rows to train on and rows to test on.

    `columns` is what brought them to mean 0 and deviation 1, if anything did.
    """

    train: Tensor
    test: Tensor
    test_ids: tuple[str, ...] = ()
    columns: nn.Module | None = None

    def digest(self) -> bytes:
        """Hash the rows to train on."""
        return hashlib.sha256(self.train.numpy().tobytes()).digest()


@dataclass(frozen=True, kw_only=True, eq=False)
class WholeData:
    """All rows, with their labels, for someone who may see both sides."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: int


class Columns(nn.Module):
    """Gives the columns of a table mean 0 and deviation 1, as the rows trained on had them."""

    mean: Tensor
    spread: Tensor

    def __init__(self, train: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", train.mean(0))
        self.register_buffer("spread", train.std(0).clamp(min=1e-6))

    def forward(self, x: Tensor) -> Tensor:
        """Return rows in the scale of those trained on."""
        return (x - self.mean) / self.spread


def divide_dataset(dataset: Dataset, *, test_share: float | None, rows: int | None) -> WholeData:
    """Divide a data set whose every row is known to all.

    Args:
        dataset: with classes.
        test_share: of the rows, to test on; as published if not given.
        rows: take only so many to train on.
    """
    if not dataset.is_labelled:
        raise DataError(f"{dataset.name}: wanted a set with classes")
    train, test = (
        split_dataset(dataset, part=part, test_share=test_share) for part in ("train", "test")
    )
    train_x, test_x = to_tensor(train)[:rows], to_tensor(test)
    columns = columns_of(train_x)
    if columns is not None:
        train_x, test_x = columns(train_x), columns(test_x)
    return WholeData(
        train_x=train_x,
        train_y=torch.from_numpy(train.labels)[:rows],
        test_x=test_x,
        test_y=torch.from_numpy(test.labels),
        classes=len(dataset.label_names),
    )


def divide_rows(
    values: Tensor,
    ids: Sequence[str] = (),
    *,
    test_share: float | None = None,
    rows: int | None = None,
    is_scaled: bool,
) -> Divided:
    """Divide one party's rows as the others divide theirs.

    Args:
        values: columns or labels, in the order that all parties have.
        ids: of the rows, if they have any.
        test_share: of the rows, to test on.
        rows: take only so many to train on.
        is_scaled: whether columns are brought to mean 0 and deviation 1.

    Raises:
        DataError: there are too few.
    """
    # By position alone: a feature owner has no classes to divide evenly.
    total = len(values)
    order = torch.from_numpy(np.random.default_rng(PUBLIC_SEED).permutation(total))
    count = max(1, round(total * (test_share or _USUAL_TEST_SHARE)))
    if total <= count:
        raise DataError(f"wanted rows to train on and rows to test on, got {total} in all")
    train, test = values[order[count:]][:rows], values[order[:count]]
    columns = columns_of(train) if is_scaled else None
    if columns is not None:
        train, test = columns(train), columns(test)
    test_ids = tuple(ids[at] for at in order[:count].tolist()) if ids else ()
    return Divided(train=train, test=test, test_ids=test_ids, columns=columns)


def columns_of(train: Tensor) -> Columns | None:
    """Return what scales the columns of a table; None for pictures, tokens, or a single row."""
    is_table = train.dim() == 2 and len(train) > 1 and train.is_floating_point()
    return Columns(train) if is_table else None


def to_tensor(dataset: Dataset) -> Tensor:
    """Return scaled rows."""
    return torch.from_numpy(dataset.scaled().astype(np.float32))


def read_tokens(values: Tensor, vocabulary: int, name: str) -> Tensor:
    """Read columns as tokens.

    Raises:
        DataError: they are no whole numbers, or beyond the vocabulary.
    """
    tokens = values.long()
    if not torch.equal(tokens.to(values.dtype), values):
        raise DataError(f"{name}: wanted tokens, which are whole numbers, in every column")
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= vocabulary:
        raise DataError(
            f"{name}: wanted tokens from 0 to {vocabulary - 1}, below model.vocabulary, "
            f"got {low} to {high}"
        )
    return tokens
