"""What the parties of a split job bring, as its file says: their columns, their labels, or both."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from tacit.cli.jobs.config import Source
from tacit.cli.jobs.given import NOTHING, Given, load_source
from tacit.cli.jobs.split_job import SplitJob
from tacit.data import Dataset, load_dataset
from tacit.data.rows import ids_in
from tacit.errors import ConfigError, DataError
from tacit.split import CUT, SplitTask
from tacit.split.local import make_top
from tacit.split.rows import (
    Divided,
    WholeData,
    divide_dataset,
    divide_rows,
    read_tokens,
    to_tensor,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Brought:
    """What one party brings, divided into rows to train on and rows to test on."""

    features: Divided | None
    labels: Divided | None
    classes: int

    @property
    def counts(self) -> tuple[int, int]:
        """Return how many rows there are to train on, and to test on."""
        one = self.features or self.labels
        return (len(one.train), len(one.test)) if one is not None else (0, 0)

    def digest(self) -> bytes:
        """Hash the rows to train on."""
        parts = [one.digest() for one in (self.features, self.labels) if one is not None]
        return hashlib.sha256(b"".join(parts)).digest()


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnRows:
    """What is in a party's own file: columns, labels or both, and ids to match rows by, if any."""

    features: Tensor | None = None
    labels: Tensor | None = None
    ids: tuple[str, ...] = ()

    def __len__(self) -> int:
        one = self.labels if self.features is None else self.features
        return 0 if one is None else len(one)

    def take(self, chosen: Sequence[int]) -> "OwnRows":
        """Keep some rows, in the order given."""
        at = torch.tensor(list(chosen), dtype=torch.int64)
        features, labels = (
            None if one is None else one[at] for one in (self.features, self.labels)
        )
        return OwnRows(features=features, labels=labels, ids=tuple(self.ids[one] for one in chosen))


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
    return divide_dataset(dataset, test_share=job.data.test_share, rows=job.data.rows)


def load_part(job: SplitJob, party: str, search: Sequence[Path], given: Given = NOTHING) -> Brought:
    """Load what one party brings; its own file must have the rows of the others, in their order."""
    if job.data.set is None:
        return divide_own(job, load_own(job, party, given))
    given.refuse_rows(job.data.set, "data")
    whole = load_whole(job, search)
    features = labels = None
    if party == job.data.labels:
        labels = Divided(train=whole.train_y, test=whole.test_y)
    if party in job.data.features:
        place, count = job.data.blocks.index(party), len(job.data.blocks)
        train, test = (
            torch.tensor_split(x, count, dim=-1)[place].contiguous()
            for x in (whole.train_x, whole.test_x)
        )
        features = Divided(train=train, test=test)
    return Brought(features=features, labels=labels, classes=whole.classes)


def load_own(job: SplitJob, party: str, given: Given = NOTHING) -> OwnRows:
    """Load a party's own file, or take what it gives in its place.

    Raises:
        DataError: it cannot be read, has no column to match by, or nothing besides it.
    """
    data, has_labels = job.data, party == job.data.labels and job.serve is None
    source = Source(file=data.files.get(party), label=data.label if has_labels else None)
    dataset = load_source(source, f"data.files.{party}", (), given)
    ids = () if data.match is None else ids_in(dataset, data.match)
    labels = features = None
    if has_labels:
        _check_classes(job, party, dataset)
        labels = torch.from_numpy(dataset.labels)
    if party in data.features:
        taken = {data.match, data.label if party == data.labels else None}
        features = _features(job, dataset, taken)
    return OwnRows(features=features, labels=labels, ids=ids)


def divide_own(job: SplitJob, rows: OwnRows) -> Brought:
    """Divide a party's rows into those to train on and those to test on, as the others do.

    Raises:
        DataError: there are too few.
    """

    def divide(values: Tensor | None, is_scaled: bool) -> Divided | None:
        if values is None:
            return None
        share, most = job.data.test_share, job.data.rows
        return divide_rows(values, rows.ids, test_share=share, rows=most, is_scaled=is_scaled)

    return Brought(
        features=divide(rows.features, True),
        labels=divide(rows.labels, False),
        classes=job.data.classes or 0,
    )


def top_of(
    job: SplitJob, task: SplitTask, search: Sequence[Path]
) -> tuple[nn.Module, dict[str, int]]:
    """Build the label owner's part; a cut elsewhere than at "cut" looks at the known set."""
    shape = None if task.cut == CUT else load_whole(job, search).train_x.shape[1:]
    return make_top(job.model.network(task.classes), task, shape)


def _features(job: SplitJob, dataset: Dataset, taken: set[str | None]) -> Tensor:
    """Return the columns that are neither ids nor labels."""
    values, names = to_tensor(dataset), dataset.feature_names
    if names:  # pictures have none
        kept = [at for at, name in enumerate(names) if name not in taken]
        if not kept:
            besides = " and ".join(repr(one) for one in sorted(taken - {None}, key=str))
            raise DataError(f"{dataset.name}: wanted a column besides {besides}, got none")
        values = values[:, kept]
    if job.model.vocabulary is not None:
        return read_tokens(values, job.model.vocabulary, dataset.name)
    return values


def _check_classes(job: SplitJob, party: str, dataset: Dataset) -> None:
    found, wanted = int(dataset.labels.max()), job.data.classes or 0
    if found >= wanted:
        raise DataError(
            f"data.files.{party}: a label is {found}, wanted labels below data.classes = {wanted}"
        )
