"""The clients' rows of a federated run, with some kept to test on."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.data.memory import (
    Handed,
    check_names,
    features_and_labels,
    mark_of,
    names_of,
    numbers_of,
    to_array,
)
from tacit.data.partition import How, Partition, data_generator, divide, split, split_by_row
from tacit.data.prepare import PREPARED, Prepare
from tacit.data.rows import Rows, state_far
from tacit.data.source import Source
from tacit.errors import DataError
from tacit.spec import LOCAL, Count, refuse


@dataclass(frozen=True, kw_only=True)
class FederatedData:
    """[data]: a known set or a file, and how its rows are divided among simulated clients.

    Attributes:
        set: a known data set; one of this, ``file`` and ``files``.
        file: a CSV, Parquet or NumPy file instead; on a real node, the rows of this client.
        files: one such file for each simulated client.
        label: the column with the classes in the file.
        prepare: what every client does to the values of columns, by their names.
        test_share: of the rows, to test on; the published division, else 0.3 (of a file each row by
            its own content), if not given.
        rows: take only so many rows to train on.
        partition: how rows are divided among simulated clients.
        shards: pieces per client, for "shards".
        alpha: of the Dirichlet draws.
        seed: of the division; not secret.
    """

    set: str | None = None
    file: Path | None = field(default=None, metadata=LOCAL)
    files: tuple[Path, ...] = field(default=(), metadata=LOCAL)
    label: str | None = None
    prepare: Prepare = field(default_factory=dict, hash=False, metadata=PREPARED)
    test_share: float | None = None
    rows: Count | None = None
    partition: How = "iid"
    shards: int = 2
    alpha: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if (self.set is not None) + (self.file is not None) + bool(self.files) != 1:
            refuse("set", "wanted either 'set' or 'file' or 'files'")
        if self.files and (self.rows is not None or self.partition != "iid"):
            text = "files are divided already; leave out 'rows' and 'partition'"
            refuse("files", text)
        self.division()

    def division(self) -> Partition:
        """Return how rows are divided."""
        return Partition(how=self.partition, shards=self.shards, alpha=self.alpha)


@dataclass(frozen=True, eq=False)
class Shards:
    """Rows to train on, whose they are, and rows to test on; none, if there are no such."""

    features: Tensor
    labels: Tensor
    parts: tuple[NDArray[np.int64], ...]
    test_features: Tensor
    test_labels: Tensor
    classes: int
    scale: float | tuple[float, ...] = 1.0
    """What features were divided by."""
    columns: tuple[str, ...] = ()
    """The names of features, where they have some."""

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return tuple(self.features.shape[1:])

    def state_far(self) -> str:
        """Say which columns are in units of their own, to whoever has these rows."""
        return state_far(self.features.cpu().numpy(), self.columns)

    def to(self, device: str) -> "Shards":
        """Return the same on a device."""
        return replace(
            self,
            features=self.features.to(device),
            labels=self.labels.to(device),
            test_features=self.test_features.to(device),
            test_labels=self.test_labels.to(device),
        )


def shard_rows(clients: Sequence[Handed], *, test: Handed = None) -> Shards:
    """Take the rows of every client as they are.

    Args:
        clients: features and labels of each; labels are classes, counted from 0.
        test: rows to test on.

    Raises:
        DataError: they do not go together; says whose.
    """
    if len(clients) < 2:
        raise DataError(f"wanted the rows of two clients or more, got {len(clients)}")
    named = {f"clients[{index}]": rows for index, rows in enumerate(clients)}
    found = [_tensors(name, rows) for name, rows in named.items()]
    shape = found[0][0].shape[1:]
    kept = _tensors("test", test) if test is not None else (found[0][0][:0], found[0][1][:0])
    for name, (x, _) in zip([*named, "test"], [*found, kept], strict=True):
        if x.shape[1:] != shape:
            raise DataError(f"{name}: wanted rows of shape {tuple(shape)}, as clients[0] has")
    marks = {name: mark_of(names_of(rows)) for name, rows in named.items()}
    check_names(marks if test is None else {**marks, "test": mark_of(names_of(test))})
    labels = torch.cat([y for _, y in found])
    return Shards(
        features=torch.cat([x for x, _ in found]),
        labels=labels,
        parts=_in_order([len(y) for _, y in found]),
        test_features=kept[0],
        test_labels=kept[1],
        classes=int(torch.cat([labels, kept[1]]).max()) + 1,
    )


@functools.lru_cache(maxsize=1)
def load_shards(data: FederatedData, clients: int, search: tuple[Path, ...]) -> Shards:
    """Load the rows and divide them; nodes of a simulation share one copy per process.

    Args:
        data: names them.
        clients: among how many they are divided. A node's own rows are those of one.
        search: folders that may hold data sets.
    """
    # Of a file, each row decides for itself, so that (ε, δ) for one row of it holds.
    part = functools.partial(
        split_by_row if data.set is None else split, test_share=data.test_share
    )
    source = Source.of(data, rows=None)
    sources = [replace(source, file=file) for file in data.files] or [source]
    sets = []
    for one in sources:
        whole = one.whole(search)
        sets.append(
            (one.prepared(part(whole, part="train")), one.prepared(part(whole, part="test")))
        )
    if data.files:
        return join_rows(sets, [*map(str, data.files)])
    return divide_rows(*sets[0], clients, partition=data.division(), rows=data.rows, seed=data.seed)


def divide_rows(
    train: Rows,
    test: Rows,
    clients: int,
    *,
    partition: Partition,
    rows: int | None = None,
    seed: int = 0,
) -> Shards:
    """Divide the rows of one set among simulated clients.

    Args:
        train: rows to train on.
        test: rows to test on, of the same columns.
        clients: how many.
        partition: how they are divided.
        rows: take only so many.
        seed: of the division; not secret.

    Raises:
        DataError: there are no labels to learn.
    """
    if train.labels is None:
        raise DataError(f"data set {train.name!r} has no labels to learn")
    generator = data_generator(seed)
    chosen = np.arange(len(train.labels))
    if rows is not None:
        chosen = np.sort(generator.permutation(len(chosen))[:rows])
    labels = train.labels[chosen]
    return Shards(
        features=torch.tensor(train.features[chosen], dtype=torch.float32),
        labels=torch.tensor(labels),
        parts=divide(labels, clients, partition, generator),
        test_features=torch.tensor(test.features, dtype=torch.float32),
        test_labels=torch.tensor(test.labels),
        classes=len(train.classes),
        scale=train.scale,
        columns=train.columns,
    )


def join_rows(sets: Sequence[tuple[Rows, Rows]], names: Sequence[str]) -> Shards:
    """Take one set per client, each with rows of its own to test on.

    Args:
        sets: rows to train and to test on, of every client.
        names: what errors call them.

    Raises:
        DataError: one has no labels, or other columns or classes than the first.
    """
    first = sets[0][0]
    for name, (train, _) in zip(names, sets, strict=True):
        if train.labels is None:
            raise DataError(f"{name}: no labels to learn; name their column in data.label")
        if (train.columns, train.classes) != (first.columns, first.classes):
            raise DataError(
                f"{name}: its columns or classes are others than those of {names[0]}; list "
                "the values that may occur in a description of each file (docs/howto/data.md)"
            )
    trains, tests = zip(*sets, strict=True)
    return Shards(
        features=_features(trains),
        labels=torch.tensor(np.concatenate([one.labels for one in trains])),
        parts=_in_order([len(one.labels) for one in trains]),
        test_features=_features(tests),
        test_labels=torch.tensor(np.concatenate([one.labels for one in tests])),
        classes=len(first.classes),
        scale=first.scale,
        columns=first.columns,
    )


def _tensors(name: str, rows: Handed) -> tuple[Tensor, Tensor]:
    try:
        given, labels = features_and_labels(rows)
        x, y = torch.from_numpy(numbers_of(given)), torch.as_tensor(to_array(labels))
    except (TypeError, ValueError) as error:
        raise DataError(f"{name}: wanted features and labels, as arrays: {error}") from error
    if x.dim() < 2 or y.dim() != 1 or len(x) != len(y) or not len(y):
        raise DataError(
            f"{name}: wanted a label for each of one row of features or more, got features of "
            f"shape {tuple(x.shape)} and labels of shape {tuple(y.shape)}"
        )
    if not bool(torch.isfinite(x).all()):
        raise DataError(f"{name}: the rows hold NaN or infinite values; clean them first")
    if not bool(((y == y.long()) & (y >= 0)).all()):
        raise DataError(f"{name}: labels are classes, whole numbers from 0 on")
    return x.float(), y.long()


def _in_order(counts: Sequence[int]) -> tuple[NDArray[np.int64], ...]:
    ends = np.cumsum(counts)
    return tuple(np.split(np.arange(ends[-1]), ends[:-1]))


def _features(sets: Sequence[Rows]) -> Tensor:
    return torch.tensor(np.concatenate([one.features for one in sets]), dtype=torch.float32)
