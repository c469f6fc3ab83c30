"""The rows of a federated job: divided among clients, with some kept to test on."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.cli.jobs.federated_job import FederatedData, FederatedJob
from tacit.errors import DataError
from tacit.learn import Dataset, load_dataset, load_file, split_dataset
from tacit.learn.dataset import Part, scale_of, split_by_row
from tacit.learn.federated import Learner, build_model, build_stack
from tacit.learn.partition import data_generator, divide

_PARTS: tuple[Part, ...] = ("train", "test")


@dataclass(frozen=True, eq=False)
class Shards:
    """Rows to train on, whose they are, and rows to test on."""

    features: Tensor
    labels: Tensor
    parts: tuple[NDArray[np.int64], ...]
    test_features: Tensor
    test_labels: Tensor
    classes: int
    scale: float | tuple[float, ...] = 1.0
    """What features were divided by."""


@functools.lru_cache(maxsize=1)
def load_shards(data: FederatedData, clients: int, search: tuple[Path, ...]) -> Shards:
    """Load the rows and divide them; nodes of a simulation share one copy per process."""
    if data.files:
        return _join(data)
    whole = _load(data, search)
    if not whole.is_labelled:
        raise DataError(f"data set {whole.name!r} has no labels to learn")
    train, test = (_split(whole, data, part) for part in _PARTS)
    generator = data_generator(data.seed)
    chosen = np.arange(len(train.labels))
    if data.rows is not None:
        chosen = np.sort(generator.permutation(len(chosen))[: data.rows])
    labels = train.labels[chosen]
    return Shards(
        features=torch.tensor(train.scaled()[chosen], dtype=torch.float32),
        labels=torch.tensor(labels),
        parts=divide(labels, clients, data.division(), generator),
        test_features=torch.tensor(test.scaled(), dtype=torch.float32),
        test_labels=torch.tensor(test.labels),
        classes=len(whole.label_names),
        scale=scale_of(whole),
    )


def make_model(job: FederatedJob, shards: Shards) -> nn.Module:
    """Build the model of a job."""
    shape, table = shards.features.shape[1:], job.model
    if table.stack:
        return build_stack(
            table.stack, shape, shards.classes, seed=table.seed, dropout=table.dropout
        )
    return build_model(table.name, shape, shards.classes, seed=table.seed, dropout=table.dropout)


def make_learner(job: FederatedJob, shards: Shards) -> Learner:
    """Put rows and model on the job's device."""
    device = job.train.device
    return Learner(
        make_model(job, shards).to(device),
        shards.features.to(device),
        shards.labels.to(device),
        shards.parts,
        training=job.train.local(),
    )


def _join(data: FederatedData) -> Shards:
    """Load one file per client, and keep rows of each to test on."""
    wholes = [load_file(file, label=data.label) for file in data.files]
    first = wholes[0]
    for file, whole in zip(data.files, wholes, strict=True):
        if not whole.is_labelled:
            raise DataError(f"{file}: no labels to learn; name their column in data.label")
        if (whole.feature_names, whole.label_names) != (first.feature_names, first.label_names):
            raise DataError(
                f"{file}: its columns or classes are others than those of {data.files[0]}; list "
                "the values that may occur in a description of each file (docs/howto/data.md)"
            )
    trains, tests = ([_split(whole, data, part) for whole in wholes] for part in _PARTS)
    ends = np.cumsum([len(one.labels) for one in trains])
    return Shards(
        features=_features(trains),
        labels=torch.tensor(np.concatenate([one.labels for one in trains])),
        parts=tuple(np.split(np.arange(ends[-1]), ends[:-1])),
        test_features=_features(tests),
        test_labels=torch.tensor(np.concatenate([one.labels for one in tests])),
        classes=len(first.label_names),
        scale=scale_of(first),
    )


def _split(whole: Dataset, data: FederatedData, part: Part) -> Dataset:
    if data.set is not None:
        return split_dataset(whole, part=part, test_share=data.test_share)
    return split_by_row(whole, part=part, test_share=data.test_share)


def _features(sets: Sequence[Dataset]) -> Tensor:
    return torch.tensor(np.concatenate([one.scaled() for one in sets]), dtype=torch.float32)


def _load(data: FederatedData, search: Sequence[Path]) -> Dataset:
    if data.set is not None:
        return load_dataset(data.set, search)
    if data.file is None:
        raise DataError("the job names no data; wanted data.set, data.file or data.files")
    return load_file(data.file, label=data.label)
