"""What the audit of a job attacks: its rows, loaded, and its model, trained as the job says."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.audit.targets import (
    Build,
    FederatedTrainer,
    PrivateTrainer,
    SplitTrainer,
    Target,
    federated_target,
    own_target,
    picture_of,
    split_target,
    train_target,
)
from tacit.data import load_dataset
from tacit.errors import ConfigError, DataError
from tacit.jobs import folder
from tacit.jobs.config import Job
from tacit.jobs.federated_data import load_shards
from tacit.jobs.federated_job import FederatedJob
from tacit.jobs.split import SplitJob
from tacit.jobs.train import TrainJob
from tacit.matching import align_in_the_clear
from tacit.split.rows import load_own, load_whole
from tacit.training import HeldData, TrainPlan
from tacit.training.network import build
from tacit.training.plan import BATCH
from tacit.training.rows import join_owners


def _federated_target(job: FederatedJob, search: Sequence[Path], rows: int | None) -> Target:
    if job.model.stack:
        raise ConfigError(
            "audit: wanted a job with one model; a stack (model.stack) is not audited"
        )
    shards = load_shards(job.data, job.federated.clients, tuple(search))
    count = min(len(shards.labels), len(shards.test_labels), rows or len(shards.labels))
    shape = tuple(shards.features.shape[1:])
    trainer = FederatedTrainer(
        build=Build(job.model.name, shape, shards.classes, job.model.dropout),
        spec=job.spec(),
        division=job.data.division(),
        drop_rate=job.federated.simulated_drops,
    )
    return federated_target(
        trainer,
        (shards.features[:count], shards.labels[:count]),
        (shards.test_features[:count], shards.test_labels[:count]),
        classes=shards.classes,
        picture=_picture(job.data.set, search),
        is_quick=rows is not None,
    )


def _train_target(job: TrainJob, search: Sequence[Path], rows: int | None) -> Target:
    features, labels, holdings = join_owners(job, search)
    y = labels[:, 0] if job.training.loss == "logistic" else labels.argmax(1)
    trainer = PrivateTrainer(
        module=partial(build, job.model),
        task=partial(_alone, job),
        settings=f"{asdict(job.model)}\n{asdict(job.training)}\n{job.privacy}",
    )
    kept = folder.find_model(job.out)
    target = train_target(
        trainer, TrainPlan.of(job, holdings), features.float(), y.long(), kept=kept, rows=rows
    )
    whole = next(iter(job.data.owners.values())).set if job.data.split == "rows" else None
    return replace(target, picture=_picture(whole, search))


def _alone(job: TrainJob, rows: int, shape: tuple[int, ...]) -> TrainPlan:
    """Return the job's plan as if one owner held all rows; none is kept for measuring."""
    room = math.ceil(rows / (1 - job.data.test_share)) + 2
    protocol, privacy = job.protocol, job.privacy
    batch: int | None = min(job.training.batch or BATCH, rows)
    if privacy is not None:  # all rows in every step, and nothing is looked at
        room, batch = rows, None
        privacy, protocol = (
            replace(privacy, looks="none"),
            replace(protocol, show_to=(), score_to=()),
        )
    alone = replace(
        job,
        data=replace(job.data, split="rows", labels=None),
        training=replace(job.training, batch=batch),
        protocol=protocol,
        privacy=privacy,
    )
    held = HeldData(next(iter(job.data.owners)), room, shape, True)
    return TrainPlan.of(alone, (held,))


def _split_target(job: SplitJob, search: Sequence[Path], rows: int | None) -> Target:
    if job.model.vocabulary is not None:
        raise ConfigError(f"audit: wanted a model that reads numbers, got {job.model.kind!r}")
    x, y, classes = _join_split(job, search)
    target = split_target(
        SplitTrainer(spec=job.with_classes(classes)),
        x,
        y,
        rows=rows,
        per_class=job.audit.leaked_per_class,
        before=job.audit.before,
    )
    return replace(target, picture=_picture(job.data.set, search))


def _join_split(job: SplitJob, search: Sequence[Path]) -> tuple[Tensor, Tensor, int]:
    if job.data.set is not None:
        whole = load_whole(job, search)
        x = torch.cat([whole.train_x, whole.test_x])
        return x, torch.cat([whole.train_y, whole.test_y]), whole.classes
    parts = {party: load_own(job, party) for party in job.data.parties}
    if job.data.match is not None:
        parts = align_in_the_clear(parts)
    counts = {party: len(one) for party, one in parts.items()}
    if len(set(counts.values())) != 1:
        raise DataError(f"wanted the same rows in the file of every party, got {counts}")
    columns = [parts[owner].features for owner in job.data.blocks]
    x = torch.from_numpy(np.concatenate(columns, axis=1)).float()
    x = (x - x.mean(0)) / x.std(0).clamp(min=1e-6)
    y = parts[job.data.labels].labels
    if y is None:
        raise ConfigError("audit: wanted a job that trains, got [serve]")
    return x, torch.from_numpy(y), job.data.classes or int(y.max()) + 1


def _picture(name: str | None, search: Sequence[Path]) -> tuple[int, ...]:
    """Return height and width of a row, if a known set holds grey pictures."""
    return () if name is None else picture_of(load_dataset(name, search))


TARGETS: Mapping[str, Callable[[Any, Sequence[Path], int | None], Target]] = {
    "audit": lambda job, search, rows: own_target(job, search),
    "federated": _federated_target,
    "split": _split_target,
    "train": _train_target,
}
"""What is attacked of a job, by its kind."""


def make_target(job: Job, search: Sequence[Path], *, rows: int | None = None) -> Target:
    """Load the rows of a job and train or load its model.

    Raises:
        ConfigError: a kind of job that cannot be audited.
    """
    if job.job.kind not in TARGETS:
        raise ConfigError(
            "wanted a job that trains something, of kind 'audit', 'federated', 'split' or 'train', "
            f"or a language model, of kind 'audit-llm', got {job.job.kind!r}"
        )
    return TARGETS[job.job.kind](job, search, rows)
