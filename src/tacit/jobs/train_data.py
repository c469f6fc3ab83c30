"""The rows of a training: what each owner's table of a job names."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tacit.data.rows import Rows, check_bound, check_features, prepare_labels
from tacit.data.source import FLAT, NOTHING, Given, stretch
from tacit.data.spec import OwnerTable
from tacit.data.tables import read_texts
from tacit.errors import ConfigError, DataError
from tacit.jobs.train_job import TrainJob
from tacit.matching import align_in_the_clear
from tacit.nn.code import OwnModel
from tacit.nn.features import TEXTS, cut_out
from tacit.nn.networks import TextNetwork
from tacit.training import HeldData
from tacit.training.task import Loss, holding_of


def load_rows(job: TrainJob, owner: str, search: Sequence[Path], given: Given = NOTHING) -> Rows:
    """Load an owner's part of the data, with labels as a training wants them.

    Raises:
        DataError: it cannot be read, holds NaN, a constant column, or labels out of range.
        RangeError: features are beyond the bound of the job.
    """
    table, rule = job.data.owners[owner], job.data.features
    if rule is not None and rule.startswith(TEXTS):
        rows = _encoded(table, owner, Path(rule.removeprefix(TEXTS)))
    else:
        rows = table.source(owner, shape=job.data.shape or FLAT).load(search, given)
    if rule is not None and not rule.startswith(TEXTS):
        rows = replace(rows, features=cut_out(rule, rows.features), columns=())
    wants_labels, is_columns = job.data.labels in (None, owner), job.data.split == "columns"
    if job.reads_text:
        texts = _texts(rows, owner, _classes(job))
        reads = tuple(texts.features.shape[1:])
        known = None if job.model.table is None else job.trainable(reads).table
        if known is None:
            return texts
        return replace(texts, features=known.numpy()[texts.features.astype(np.int64)])
    check_features(rows, owner, may_be_none=is_columns and wants_labels)
    labels = None
    if wants_labels:
        loss: Loss = "logistic" if job.training.loss == "logistic" else "softmax"
        labels = prepare_labels(rows, owner, classes=_classes(job), loss=loss)
    if is_columns:
        rows.check_columns(owner)
    check_bound(rows, owner, job.data.bound)
    return replace(rows, labels=labels)


def _encoded(table: OwnerTable, owner: str, network: Path) -> Rows:
    """Read texts, and turn them into features by a public network."""
    if table.file is None or table.set is not None:
        raise ConfigError(f"data.owners.{owner}: texts come from a 'file' with lines of JSON")
    texts, classes = read_texts(table.file, label=table.label)
    part = stretch(table.rows, len(texts), f"data.owners.{owner}.rows")
    return Rows(features=TextNetwork(network)(texts[part]), labels=classes[part])


def _texts(rows: Rows, owner: str, vocabulary: int) -> Rows:
    """Cut rows of ids into what is read and what is to be told at every token."""
    ids = rows.features
    if ids.ndim != 2 or ids.shape[1] < 2:
        raise DataError(f"{owner!r}: wanted rows of two ids or more, got {ids.shape[1:]}")
    if not ((ids >= 0) & (ids < vocabulary) & (ids == ids.round())).all():
        raise DataError(f"{owner!r}: wanted ids, whole numbers from 0 to {vocabulary - 1}")
    hot = np.eye(vocabulary)[ids[:, 1:].astype(np.int64)]
    return replace(rows, features=np.ascontiguousarray(ids[:, :-1]), labels=hot, columns=())


def join_owners(
    job: TrainJob, search: Sequence[Path]
) -> tuple[Tensor, Tensor, tuple[HeldData, ...]]:
    """Put the rows of all owners together, for someone who may see them: rows, labels, and whose.

    Labels are as a training wants them: one-hot, or a column of zeros and ones.
    """
    parts = {owner: load_rows(job, owner, search) for owner in job.data.owners}
    if job.data.split == "columns":
        parts = align_in_the_clear(parts)
    holdings = tuple(holding_of(owner, one, split=job.data.split) for owner, one in parts.items())
    along = 0 if job.data.split == "rows" else 1
    features = np.concatenate([one.features for one in parts.values()], axis=along)
    labels = np.concatenate([one.labels for one in parts.values() if one.labels is not None])
    return torch.from_numpy(features), torch.from_numpy(labels), holdings


def _classes(job: TrainJob) -> int:
    if job.training.loss == "logistic":
        return 2
    if job.model.code is not None:
        layers = list(OwnModel.read(job.model.code)().modules())
        last = next((one for one in reversed(layers) if isinstance(one, nn.Linear)), None)
        if last is None:
            raise DataError("model.code: wanted a model that ends in an nn.Linear, a class each")
        return last.out_features
    dense = next((one for one in reversed(job.model.layers) if one.split()[0] == "dense"), None)
    if dense is None:
        raise ConfigError("model.layers: wanted layers that end in 'dense CLASSES', got no 'dense'")
    return int(dense.split()[1])
