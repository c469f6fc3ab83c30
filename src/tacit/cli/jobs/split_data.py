"""What the parties of a split job bring: their columns or their labels, and their part."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tacit.cli.jobs.config import Source
from tacit.cli.jobs.given import NOTHING, Given, load_source
from tacit.cli.jobs.split_job import SplitJob
from tacit.errors import ConfigError, DataError
from tacit.learn import Dataset, load_dataset, split_dataset
from tacit.learn.split import CUT, Flat, Shaped, SplitTask, cut, cut_shape, make_head, make_model

SPLIT_SEED = 0
"""Fixed, so that all parties divide the rows alike."""
_USUAL_TEST_SHARE = 0.3
_LARGEST_ID = 2**53
"""Tables are read as float64, which has whole numbers up to here."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Brought:
    """What one party brings, divided into rows to train on and rows to test on.

    `columns` is what brought those of a file to mean 0 and deviation 1, if anything did.
    """

    train: Tensor
    test: Tensor
    classes: int
    test_ids: tuple[str, ...] = ()
    columns: nn.Module | None = None

    def digest(self) -> bytes:
        """Hash the rows to train on."""
        return hashlib.sha256(self.train.numpy().tobytes()).digest()


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnRows:
    """What is in a party's own file: columns or labels, and the ids to match rows by, if any."""

    values: Tensor
    ids: tuple[str, ...] = ()

    def take(self, chosen: Sequence[int]) -> "OwnRows":
        """Keep some rows, in the order given."""
        at = torch.tensor(list(chosen), dtype=torch.int64)
        return OwnRows(values=self.values[at], ids=tuple(self.ids[one] for one in chosen))


@dataclass(frozen=True, kw_only=True, eq=False)
class WholeData:
    """All of a known set, for someone who may see both sides."""

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


def check_inputs(job: SplitJob, parties: Sequence[str]) -> None:
    """Make sure, cheaply, that the files of these parties are there."""
    if job.serve is not None:
        for party in parties:
            trained = job.serve.models / f"{party}.npz"
            if not trained.is_file():
                raise DataError(f"serve.models: no trained part of {party!r}: {trained}")
        parties = [party for party in parties if party in job.data.features]
    if job.data.set is not None:
        return
    for party in parties:
        path = job.data.files.get(party)
        if path is None:
            raise ConfigError(f"data.files.{party}: missing; wanted the path of its rows")
        if not path.is_file():
            raise DataError(f"data.files.{party}: no such file: {path}")


def load_whole(job: SplitJob, search: Sequence[Path]) -> WholeData:
    """Load all of a known set."""
    if job.data.set is None:
        raise ConfigError("wanted data.set: the parties' files are not in one place")
    dataset = load_dataset(job.data.set, search)
    if not dataset.is_labelled:
        raise DataError(f"{dataset.name}: wanted a set with classes")
    train, test = (
        split_dataset(dataset, part=part, test_share=job.data.test_share, seed=SPLIT_SEED)
        for part in ("train", "test")
    )
    limit = job.data.rows
    train_x, test_x = _even(_tensor(train)[:limit], _tensor(test))
    return WholeData(
        train_x=train_x,
        train_y=torch.from_numpy(train.labels)[:limit],
        test_x=test_x,
        test_y=torch.from_numpy(test.labels),
        classes=len(dataset.label_names),
    )


def load_part(job: SplitJob, party: str, search: Sequence[Path], given: Given = NOTHING) -> Brought:
    """Load what one party brings; its own file must have the rows of the others, in their order."""
    if job.data.set is None:
        return divide_own(job, party, load_own(job, party, given))
    given.refuse_rows(job.data.set, "data")
    whole = load_whole(job, search)
    if party not in job.data.features:
        return Brought(train=whole.train_y, test=whole.test_y, classes=whole.classes)
    place, count = job.data.features.index(party), len(job.data.features)
    train, test = (
        torch.tensor_split(x, count, dim=-1)[place].contiguous()
        for x in (whole.train_x, whole.test_x)
    )
    return Brought(train=train, test=test, classes=whole.classes)


def load_own(job: SplitJob, party: str, given: Given = NOTHING) -> OwnRows:
    """Load a party's own file, or take what it gives in its place.

    Raises:
        DataError: it cannot be read, has no column to match by, or nothing besides it.
    """
    path, is_owner = job.data.files.get(party), party in job.data.features
    source = Source(file=path, label=None if is_owner else job.data.label)
    dataset = load_source(source, f"data.files.{party}", (), given)
    ids = () if job.data.match is None else _ids(dataset, job.data.match)
    if not is_owner:
        _check_classes(job, party, dataset)
        return OwnRows(values=torch.from_numpy(dataset.labels), ids=ids)
    values = _tensor(dataset)
    if job.data.match is not None:
        kept = [at for at, name in enumerate(dataset.feature_names) if name != job.data.match]
        if not kept:
            raise DataError(f"{dataset.name}: wanted a column besides {job.data.match!r}, got none")
        values = values[:, kept]
    if job.model.vocabulary is not None:
        values = _tokens(values, job.model.vocabulary, dataset.name)
    return OwnRows(values=values, ids=ids)


def divide_own(job: SplitJob, party: str, rows: OwnRows) -> Brought:
    """Divide a party's rows into those to train on and those to test on, as the others do.

    Raises:
        DataError: there are too few.
    """
    total = len(rows.values)
    # By position alone: a feature owner has no classes to divide evenly.
    order = torch.from_numpy(np.random.default_rng(SPLIT_SEED).permutation(total))  # noqa: TID251 - public, the same everywhere
    count = max(1, round(total * (job.data.test_share or _USUAL_TEST_SHARE)))
    if total <= count:
        raise DataError(f"wanted rows to train on and rows to test on, got {total} in all")
    train, test = rows.values[order[count:]][: job.data.rows], rows.values[order[:count]]
    columns = _columns(train) if party in job.data.features else None
    if columns is not None:
        train, test = columns(train), columns(test)
    test_ids = tuple(rows.ids[at] for at in order[:count].tolist()) if rows.ids else ()
    return Brought(
        train=train,
        test=test,
        classes=job.data.classes or 0,
        test_ids=test_ids,
        columns=columns,
    )


def make_bottom(job: SplitJob, task: SplitTask, example: Tensor) -> nn.Module:
    """Build a feature owner's part with fresh weights."""
    shape = tuple(example.shape[1:])
    if job.model.vocabulary is not None:
        shape = (*shape, job.model.vocabulary)
    model = make_model(job.model.kind, shape=shape, classes=task.classes, width=job.model.width)
    return Flat(cut(model, task.cut)[0], is_normalised=task.is_normalised)


def make_top(
    job: SplitJob, task: SplitTask, search: Sequence[Path]
) -> tuple[nn.Module, dict[str, int]]:
    """Build the label owner's part with fresh weights, and say which widths it takes.

    From the layer "cut" on, all models here are one or two linear layers, and nothing about the
    features is needed; a cut elsewhere needs the shape of a row, which a known set tells.
    """
    owners = task.feature_owners
    if task.cut == CUT:
        wide = job.model.width * len(owners)
        head = make_head(wide, task.classes, hidden=job.model.hidden)
        return head, dict.fromkeys(owners, job.model.width)
    example = load_whole(job, search).train_x[:1]
    model = make_model(
        job.model.kind,
        shape=tuple(example.shape[1:]),
        classes=task.classes,
        width=job.model.width,
        hidden=job.model.hidden,
    )
    low, high = cut(model, task.cut)
    inner = cut_shape(low, example)
    return Shaped(high, inner), {owners[0]: int(np.prod(inner))}


def _ids(dataset: Dataset, column: str) -> tuple[str, ...]:
    if column not in dataset.feature_names:
        raise DataError(
            f"{dataset.name} has no column {column!r} to match rows by; it has "
            f"{', '.join(dataset.feature_names) or 'pictures'}"
        )
    values = dataset.features[:, dataset.feature_names.index(column)]
    if not np.all(np.abs(values) < _LARGEST_ID):  # also of none, and of NaN
        raise DataError(
            f"{dataset.name}: wanted ids below {_LARGEST_ID}: larger ones are not exact"
        )
    return tuple(f"{value:.17g}" for value in values)


def _check_classes(job: SplitJob, party: str, dataset: Dataset) -> None:
    found, wanted = int(dataset.labels.max()), job.data.classes or 0
    if found >= wanted:
        raise DataError(
            f"data.files.{party}: a label is {found}, wanted labels below data.classes = {wanted}"
        )


def _tensor(dataset: Dataset) -> Tensor:
    return torch.from_numpy(dataset.scaled().astype(np.float32))


def _even(train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    """Give the columns of a table mean 0 and deviation 1, as the training rows have them."""
    columns = _columns(train)
    return (train, test) if columns is None else (columns(train), columns(test))


def _columns(train: Tensor) -> Columns | None:
    is_table = train.dim() == 2 and len(train) > 1 and train.is_floating_point()
    return Columns(train) if is_table else None


def _tokens(values: Tensor, vocabulary: int, name: str) -> Tensor:
    """Read columns as tokens."""
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
