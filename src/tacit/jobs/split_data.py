"""What the parties of a split job bring, as its file says: their columns, their labels, or both."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tacit.data import Rows, Source
from tacit.data.source import NOTHING, Given
from tacit.errors import ConfigError, DataError
from tacit.jobs.split_job import SplitJob
from tacit.split import CUT, SplitTask
from tacit.split.local import make_top
from tacit.split.rows import (
    Divided,
    WholeData,
    divide_rows,
    divide_whole,
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
    whole = Source(set=job.data.set).whole(search)
    return divide_whole(whole, test_share=job.data.test_share, rows=job.data.rows)


def load_part(job: SplitJob, party: str, search: Sequence[Path], given: Given = NOTHING) -> Brought:
    """Load what one party brings; its own file must have the rows of the others, in their order."""
    if job.data.set is None:
        return divide_own(job, load_own(job, party, given))
    Source(set=job.data.set).refuse_given(given)
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


def load_own(job: SplitJob, party: str, given: Given = NOTHING) -> Rows:
    """Load a party's own file, or take what it gives in its place: columns, labels or both.

    Raises:
        DataError: it cannot be read, has no column to match by, or nothing besides it.
    """
    data, has_labels = job.data, party == job.data.labels and job.serve is None
    source = Source(
        file=data.files.get(party),
        label=data.label if has_labels else None,
        id=data.match,
        key=f"data.files.{party}",
    )
    rows = source.load(given=given)
    if data.match is None:
        rows = replace(rows, ids=())
    if has_labels:
        _check_classes(job, party, rows)
    if party not in data.features:
        return replace(rows, features=np.empty((len(rows), 0)), columns=())
    own_label = data.label if party == data.labels else None
    rows = rows.without(own_label)  # also of one that only asks
    if not rows.features.size:
        besides = " and ".join(sorted(repr(one) for one in (data.match, own_label) if one))
        raise DataError(f"{rows.name}: wanted a column besides {besides}, got none")
    values_of(job, rows)
    return rows


def values_of(job: SplitJob, rows: Rows) -> Tensor | None:
    """Return features as a network takes them; None for an owner of labels alone.

    Raises:
        DataError: tokens are wanted, and they are something else.
    """
    if not rows.features.size:
        return None
    if job.model.vocabulary is None:
        return to_tensor(rows)
    return read_tokens(to_tensor(rows), job.model.vocabulary, rows.name)


def divide_own(job: SplitJob, rows: Rows) -> Brought:
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
        features=divide(values_of(job, rows), True),
        labels=divide(None if rows.labels is None else torch.from_numpy(rows.labels), False),
        classes=job.data.classes or 0,
    )


def top_of(
    job: SplitJob, task: SplitTask, search: Sequence[Path]
) -> tuple[nn.Module, dict[str, int]]:
    """Build the label owner's part; a cut elsewhere than at "cut" looks at the known set."""
    shape = None if task.cut == CUT else load_whole(job, search).train_x.shape[1:]
    return make_top(job.model.network(task.classes), task, shape)


def _check_classes(job: SplitJob, party: str, rows: Rows) -> None:
    found, wanted = 0 if rows.labels is None else int(rows.labels.max()), job.data.classes or 0
    if found >= wanted:
        raise DataError(
            f"data.files.{party}: a label is {found}, wanted labels below data.classes = {wanted}"
        )
