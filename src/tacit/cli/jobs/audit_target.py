"""What the audit of a job attacks: its rows, its trained model, and trainers of more like it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from tacit.audit import Classifier, TorchClassifier, TorchTrainer
from tacit.audit.target import code_of, code_of_module, fresh
from tacit.cli.jobs.audit_job import AuditJob
from tacit.cli.jobs.audit_own import OwnTrainer
from tacit.cli.jobs.audit_pictures import rebuild_rows
from tacit.cli.jobs.audit_rows import load_sides
from tacit.cli.jobs.audit_sides import Target, prg_of
from tacit.cli.jobs.audit_split import split_target
from tacit.cli.jobs.audit_train import train_target
from tacit.cli.jobs.code import OwnModel
from tacit.cli.jobs.config import Job
from tacit.cli.jobs.federated import judge_of
from tacit.cli.jobs.federated_data import Shards, load_shards
from tacit.cli.jobs.federated_job import FederatedJob
from tacit.cli.jobs.split_job import SplitJob
from tacit.cli.jobs.train_job import TrainJob
from tacit.errors import ConfigError
from tacit.learn import load_dataset
from tacit.learn.federated import (
    Learner,
    LocalEngine,
    build_model,
    find_aggregator,
    run_rounds,
)
from tacit.learn.noise import DpSgd, train_dp_sgd
from tacit.learn.partition import data_generator, divide
from tacit.learn.weights import load_weights
from tacit.ring import KEY_BYTES, Prg

_SAID = {
    True: "Members and strangers are those that the job names; the audit is as right as they are.",
    False: "Members and strangers were drawn here, and the model was trained here on the members.",
}


@final
@dataclass(frozen=True)
class Build:
    """Makes a model of the table; first weights follow torch's generator."""

    name: str
    shape: tuple[int, ...]
    classes: int
    dropout: float = 0.0

    def __call__(self) -> nn.Module:
        """Return a fresh module."""
        seed = torch.initial_seed() % 2**31
        return build_model(self.name, self.shape, self.classes, seed=seed, dropout=self.dropout)


@final
@dataclass(frozen=True, kw_only=True)
class DpTrainer:
    """Trains by DP-SGD. Noise follows from the seed, so that an audit can be repeated.

    It offers no plain modules: a game that trains them without noise would not be about this.

    Guarantee: none. Whoever knows the seed knows the noise; nothing that is trained here may be
    given away.
    """

    make: Callable[[], nn.Module]
    settings: DpSgd

    @property
    def recipe(self) -> str:
        """Return model, settings and code, as text."""
        made = repr(self.make), code_of_module(fresh(self.make, 0))
        return "\n".join([*made, repr(self.settings), code_of(train_dp_sgd)])

    def __call__(self, x: Tensor, y: Tensor, *, seed: int) -> TorchClassifier:
        """Return a module trained on these rows alone."""
        module = fresh(self.make, seed)
        train_dp_sgd(module, x, y, self.settings, prg=prg_of(seed))
        return TorchClassifier(module)


@final
@dataclass(frozen=True, kw_only=True)
class FederatedTrainer:
    """Trains as a federated job does, on the light engine, with the rows divided anew."""

    job: FederatedJob
    classes: int

    @property
    def recipe(self) -> str:
        """Return the settings of the job that decide the outcome, and the code."""
        tables = (self.job.model, self.job.federated, self.job.privacy, self.job.train)
        return "\n".join([*(repr(asdict(table)) for table in tables), code_of(run_rounds)])

    def __call__(self, x: Tensor, y: Tensor, *, seed: int) -> TorchClassifier:
        """Return the model that the clients end with."""
        job, generator = self.job, data_generator(seed)
        build = Build(job.model.name, tuple(x.shape[1:]), self.classes, job.model.dropout)
        module = fresh(build, seed)
        parts = divide(y.numpy(), job.federated.clients, job.data.division(), generator)
        spec = job.spec()
        learner = Learner(module, x, y, parts, training=spec.training)
        shards = Shards(x, y, parts, x, y, self.classes)
        outcome = run_rounds(
            LocalEngine(
                learner,
                find_aggregator(job.federated.aggregator),
                drop_rate=job.federated.simulated_drops,
                prg=Prg(seed.to_bytes(KEY_BYTES, "big", signed=True)),
            ),
            learner.first_weights(),
            spec,
            judge=judge_of(job, shards),
            on_round=lambda report: None,
        )
        torch.nn.utils.vector_to_parameters(
            torch.from_numpy(outcome.weights).float(), module.parameters()
        )
        return TorchClassifier(module)


def make_target(job: Job, search: Sequence[Path], *, rows: int | None = None) -> Target:
    """Load the rows of a job and train or load its model.

    Raises:
        ConfigError: a kind of job that cannot be audited.
    """
    if isinstance(job, FederatedJob):
        return _federated_target(job, search, rows)
    if isinstance(job, TrainJob):
        whole = next(iter(job.data.owners.values())).set if job.data.split == "rows" else None
        return replace(train_target(job, search, rows=rows), picture=_picture(whole, search))
    if isinstance(job, SplitJob):
        found = split_target(job, search, rows=rows)
        return replace(found, picture=_picture(job.data.set, search))
    if isinstance(job, AuditJob):
        return replace(_own_target(job, search), picture=_picture(job.data.set, search))
    raise ConfigError(
        "wanted a job that trains something, of kind 'audit', 'federated', 'split' or 'train', or "
        f"a language model, of kind 'audit-llm', got {job.job.kind!r}"
    )


def _own_target(job: AuditJob, search: Sequence[Path]) -> Target:
    members, non_members, classes = load_sides(job, search)
    trainer = trainer_of(job, tuple(members[0].shape[1:]), classes)
    if job.model.file is not None and not isinstance(trainer, OwnTrainer):
        build = trainer.make if isinstance(trainer, DpTrainer) else trainer.build
        model: Classifier = TorchClassifier(load_module(build, job.model.file))
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


def trainer_of(
    job: AuditJob, shape: tuple[int, ...], classes: int
) -> DpTrainer | OwnTrainer | TorchTrainer:
    """Return what trains targets and shadow models of a job."""
    build: Build | OwnModel = Build(job.model.name, shape, classes, job.model.dropout)
    if job.model.code is not None:
        build = OwnModel.read(job.model.code)
        found = build.make()
        if not isinstance(found, nn.Module):
            _check_estimator(job, found)
            return OwnTrainer(own=build, classes=classes)
    if job.privacy is not None:
        return DpTrainer(make=build, settings=job.privacy.settings())
    _check_device(job.train.device)
    return TorchTrainer(build=build, **asdict(job.train))


def _check_estimator(job: AuditJob, found: Any) -> None:
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


def load_module(build: Callable[[], nn.Module], path: Path) -> nn.Module:
    """Load weights by name into a fresh model.

    Raises:
        DataError: not such a file, or weights that do not fit the model.
    """
    module = fresh(build, 0)
    load_weights(module, path)
    return module


def _check_device(device: str) -> None:
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"train.device: cannot use {device!r} here, {str(error).splitlines()[0]}; "
            "leave it out to train on the processor"
        ) from error


def _federated_target(job: FederatedJob, search: Sequence[Path], rows: int | None) -> Target:
    shards = load_shards(job.data, job.federated.clients, tuple(search))
    count = min(len(shards.labels), len(shards.test_labels), rows or len(shards.labels))
    members = shards.features[:count], shards.labels[:count]
    others = shards.test_features[:count], shards.test_labels[:count]
    trainer = FederatedTrainer(job=job, classes=shards.classes)
    build = Build(job.model.name, tuple(members[0].shape[1:]), shards.classes)
    picture = _picture(job.data.set, search)
    rebuilt, notes = rebuild_rows(
        job, fresh(build, 0), members, others, picture=picture, is_quick=rows is not None
    )
    return Target(
        model=trainer(*members, seed=0),
        trainer=trainer,
        members=members,
        non_members=others,
        classes=shards.classes,
        findings=rebuilt,
        notes=notes,
        picture=picture,
        # The target already is what a participant would see.
        threats=("scores", "labels", "shadows", "gradients"),
    )


def _picture(name: str | None, search: Sequence[Path]) -> tuple[int, ...]:
    """Return height and width of a row, if a known set holds grey pictures."""
    if name is None:
        return ()
    dataset = load_dataset(name, search)
    if dataset.features.ndim == 3:
        return tuple(dataset.features.shape[1:])
    if all(one.startswith("pixel") for one in dataset.feature_names):
        side = math.isqrt(dataset.features.shape[1])
        return (side, side) if side**2 == dataset.features.shape[1] else ()
    return ()
