"""What the audit of a job attacks: its rows, loaded, and its model, trained as the job says."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tacit.audit.targets import (
    Build,
    FederatedTrainer,
    Target,
    federated_target,
    own_target,
    picture_of_set,
    target_of_split,
    target_of_training,
)
from tacit.errors import ConfigError
from tacit.federated.front import task_of
from tacit.jobs import folder
from tacit.jobs.config import Job
from tacit.jobs.federated import FederatedJob


def _federated_target(job: FederatedJob, search: Sequence[Path], rows: int | None) -> Target:
    if job.model.stack:
        raise ConfigError(
            "audit: wanted a job with one model; a stack (model.stack) is not audited"
        )
    shards = task_of(job, search).load()
    count = min(len(shards.labels), len(shards.test_labels), rows or len(shards.labels))
    shape = tuple(shards.features.shape[1:])
    trainer = FederatedTrainer(
        build=Build(job.model.name, shape, shards.classes, job.model.dropout),
        spec=job,
        division=job.data.division(),
    )
    return federated_target(
        trainer,
        (shards.features[:count], shards.labels[:count]),
        (shards.test_features[:count], shards.test_labels[:count]),
        classes=shards.classes,
        picture=picture_of_set(job.data.set, search),
        is_quick=rows is not None,
    )


TARGETS: Mapping[str, Callable[[Any, Sequence[Path], int | None], Target]] = {
    "audit": lambda job, search, rows: own_target(job, search),
    "federated": _federated_target,
    "split": lambda job, search, rows: target_of_split(job, search, rows=rows, how=job.audit),
    "train": lambda job, search, rows: target_of_training(
        job, search, rows=rows, kept=folder.find_model(job.out)
    ),
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
