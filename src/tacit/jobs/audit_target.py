"""What the audit of a job attacks: its rows, loaded, and its model, trained as the job says."""

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tacit.audit import Classifier, TorchClassifier, TorchTrainer
from tacit.audit.target import fresh
from tacit.audit.targets import (
    Build,
    DpTrainer,
    EstimatorTrainer,
    FederatedTrainer,
    PrivateTrainer,
    Side,
    SplitTrainer,
    Target,
    check_alike,
    check_apart,
    divide_by_column,
    draw_sides,
    federated_target,
    picture_of,
    split_target,
    to_side,
    train_target,
)
from tacit.data import Rows, Source, load_dataset, load_file
from tacit.errors import ConfigError, DataError
from tacit.jobs import folder
from tacit.jobs.audit_job import AuditData, AuditJob
from tacit.jobs.config import Job
from tacit.jobs.federated_data import load_shards
from tacit.jobs.federated_job import FederatedJob
from tacit.jobs.split_data import load_own, load_whole
from tacit.jobs.split_job import SplitJob
from tacit.jobs.train_data import join_owners
from tacit.jobs.train_job import BATCH, TrainJob
from tacit.matching import align_in_the_clear
from tacit.nn.code import OwnModel
from tacit.nn.weights import load_weights
from tacit.ring import check_device
from tacit.training import Holding, TrainTask

_SAID = {
    True: "Members and strangers are those that the job names; the audit is as right as they are.",
    False: "Members and strangers were drawn here, and the model was trained here on the members.",
}


def make_target(job: Job, search: Sequence[Path], *, rows: int | None = None) -> Target:
    """Load the rows of a job and train or load its model.

    Raises:
        ConfigError: a kind of job that cannot be audited.
    """
    if isinstance(job, FederatedJob):
        return _federated_target(job, search, rows)
    if isinstance(job, TrainJob):
        whole = next(iter(job.data.owners.values())).set if job.data.split == "rows" else None
        return replace(_train_target(job, search, rows), picture=_picture(whole, search))
    if isinstance(job, SplitJob):
        return replace(_split_target(job, search, rows), picture=_picture(job.data.set, search))
    if isinstance(job, AuditJob):
        return replace(_own_target(job, search), picture=_picture(job.data.set, search))
    raise ConfigError(
        "wanted a job that trains something, of kind 'audit', 'federated', 'split' or 'train', or "
        f"a language model, of kind 'audit-llm', got {job.job.kind!r}"
    )


def load_sides(job: AuditJob, search: Sequence[Path]) -> tuple[Side, Side, int]:
    """Load members, strangers, and the number of classes.

    Raises:
        DataError: no labels, files whose columns differ, or rows that are on both sides.
    """
    data = job.data
    members, strangers = _name_sides(data, search)
    shares = (members, 1 - data.test_share), (strangers, data.test_share)
    inside, outside = (
        to_side(one, rows=None if data.rows is None else round(share * data.rows))
        for one, share in shares
    )
    if data.names_members:
        check_apart(inside, outside)
    return inside, outside, max(len(members.classes), len(strangers.classes))


def trainer_of(
    job: AuditJob, shape: tuple[int, ...], classes: int
) -> DpTrainer | EstimatorTrainer | TorchTrainer:
    """Return what trains targets and shadow models of a job."""
    build: Build | OwnModel = Build(job.model.name, shape, classes, job.model.dropout)
    if job.model.code is not None:
        build = OwnModel.read(job.model.code)
        found = build.make()
        if not isinstance(found, nn.Module):
            _check_estimator(job, found)
            return EstimatorTrainer(make=build.make, classes=classes)
    if job.privacy is not None:
        return DpTrainer(make=build, settings=job.privacy.settings())
    check_device(job.train.device, "train.device")
    return TorchTrainer(build=build, **asdict(job.train))


def _name_sides(data: AuditData, search: Sequence[Path]) -> tuple[Rows, Rows]:
    if data.members is not None and data.strangers is not None:
        inside, outside = (
            load_file(one, label=data.label) for one in (data.members, data.strangers)
        )
        check_alike(inside, outside)
        return inside, outside
    whole = Source(set=data.set, file=data.file, label=data.label).whole(search)
    if data.member is not None:
        return divide_by_column(whole, data.member)
    return draw_sides(whole, test_share=data.test_share)


def _own_target(job: AuditJob, search: Sequence[Path]) -> Target:
    members, non_members, classes = load_sides(job, search)
    trainer = trainer_of(job, tuple(members[0].shape[1:]), classes)
    if job.model.file is not None and not isinstance(trainer, EstimatorTrainer):
        module = fresh(trainer.make if isinstance(trainer, DpTrainer) else trainer.build, 0)
        load_weights(module, job.model.file)
        model: Classifier = TorchClassifier(module)
    else:
        model = trainer(*members, seed=job.audit.seed)
    return Target(
        model=model,
        trainer=trainer,
        members=members,
        non_members=non_members,
        classes=classes,
        notes=(_SAID[job.data.names_members],),
    )


def _check_estimator(job: AuditJob, found: object) -> None:
    if not hasattr(found, "predict_proba") or not hasattr(found, "get_params"):
        raise ConfigError(
            "model.code: wanted a function that returns a torch module or a scikit-learn "
            f"classifier with predict_proba, got {type(found).__name__}"
        )
    if job.privacy is not None or job.model.file is not None:
        raise ConfigError(
            "model.code: a scikit-learn model is fitted here, without DP-SGD; "
            "leave [privacy] and model.file out"
        )


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
        module=job.module,
        task=partial(_alone, job),
        settings=f"{asdict(job.model)}\n{asdict(job.training)}\n{job.privacy}",
    )
    kept = folder.find_model(job.out)
    return train_target(
        trainer, job.task(holdings), features.float(), y.long(), kept=kept, rows=rows
    )


def _alone(job: TrainJob, rows: int, shape: tuple[int, ...]) -> TrainTask:
    """Return the job's task as if one owner held all rows; none is kept for measuring."""
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
    return alone.task((Holding(next(iter(job.data.owners)), room, shape, True),))


def _split_target(job: SplitJob, search: Sequence[Path], rows: int | None) -> Target:
    if job.model.vocabulary is not None:
        raise ConfigError(f"audit: wanted a model that reads numbers, got {job.model.kind!r}")
    x, y, classes = _join_split(job, search)
    return split_target(
        SplitTrainer(task=job.task(classes), network=job.model.network(classes)),
        x,
        y,
        rows=rows,
        per_class=job.audit.leaked_per_class,
        before=job.audit.before,
    )


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
