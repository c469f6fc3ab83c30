"""Jobs of kind "train" under audit: the finished model of a private training, and more like it."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import final

import torch
from torch import Tensor, nn

from tacit.audit import TorchClassifier
from tacit.audit.target import code_of
from tacit.cli import folder
from tacit.cli.jobs.audit_sides import Target, halve_rows, take_rows
from tacit.cli.jobs.train_data import Rows, load_rows
from tacit.cli.jobs.train_job import TrainJob
from tacit.learn.training import Holding, TrainTask
from tacit.learn.training.programs import initial_state, train_step
from tacit.learn.training.verbs import PlainStepOps
from tacit.learn.weights import load_weights
from tacit.mpc import find_protocol
from tacit.result import Claim


@final
@dataclass(frozen=True, kw_only=True)
class PrivateTrainer:
    """Trains in the clear what a job trains on shares: start, steps, batches and rates alike.

    The first weights of such a job are public, so shadow models start from them too; the seed
    decides the order of the rows alone.

    Guarantee: none. Its models are trained in the clear.
    """

    job: TrainJob

    @property
    def recipe(self) -> str:
        """Return the settings of the job that decide the outcome, and the code, as text."""
        tables = (self.job.model, self.job.training)
        return "\n".join([*(repr(asdict(table)) for table in tables), code_of(train_step)])

    def __call__(self, x: Tensor, y: Tensor, *, seed: int) -> TorchClassifier:
        """Return a model trained on these rows alone."""
        shape = tuple(x.shape[1:])
        task = _task_of(self.job, len(x), shape)
        weights = {name: value.double() for name, value in task.model.initial.items()}
        state = {name: value.double() for name, value in initial_state(task).items()}
        rows, labels = x.double(), _targets(self.job, y, task.label_width)
        generator = torch.Generator().manual_seed(seed)
        steps = itertools.count(1)
        for epoch in range(task.epochs):
            first = epoch * task.steps_per_epoch + 1
            order = torch.empty(len(x)).uniform_(generator=generator).argsort()
            batches = torch.split(order, task.batch)[: len(x) // task.batch]
            for step, chosen in enumerate(batches, start=first):
                weights, state = train_step(
                    PlainStepOps(task.optimiser.dials(next(steps))),
                    task,
                    weights,
                    state,
                    rows[chosen],
                    labels[chosen],
                    rate=task.rate_at(step),
                )
        return TorchClassifier(_with_weights(self.job, shape, weights))


class BothSides(nn.Module):
    """Turns the one score of a yes-or-no model into a logit per class."""

    def forward(self, score: Tensor) -> Tensor:
        """Return (rows, 2) logits."""
        return torch.cat([torch.zeros_like(score), score], dim=1)


def train_target(job: TrainJob, search: Sequence[Path], *, rows: int | None) -> Target:
    """Load all owners' rows, and the model that the job has given out, or train one like it.

    A model that was given out is attacked as it is, on the rows that it was trained on against
    those that were kept for measuring. Without one, half of all rows are trained on as the job
    says.
    """
    x, y, holdings = _load(job, search)
    trainer, kept = PrivateTrainer(job=job), folder.find_model(job.out)
    if kept is not None:
        outside = torch.from_numpy(job.task(holdings).test_indices())
        inside = torch.ones(len(x), dtype=torch.bool)
        inside[outside] = False
        members = take_rows((x[inside], y[inside]), rows)
        others = take_rows((x[~inside], y[~inside]), rows)
        model = TorchClassifier(_given_out(job, tuple(x.shape[1:]), kept))
        said = f"Attacked: the model in {kept}, as the job gave it out."
    else:
        members, others = halve_rows((x, y), rows)
        model = trainer(*members, seed=0)
        said = "Attacked: a model trained in the clear on half of all rows, as the job says."
    return Target(
        model=model,
        trainer=trainer,
        members=members,
        non_members=others,
        classes=_classes(job, y),
        threats=("scores", "labels", "shadows", *(("gradients",) if job.protocol.give_to else ())),
        claims=(*find_protocol(job.protocol.spelled).claims, _no_claim(job)),
        notes=(said, *_notes(job)),
    )


def _load(job: TrainJob, search: Sequence[Path]) -> tuple[Tensor, Tensor, tuple[Holding, ...]]:
    parts = {owner: load_rows(job, owner, search) for owner in job.data.owners}
    if job.data.split == "columns":
        common = sorted(set.intersection(*(set(one.ids) for one in parts.values())))
        parts = {owner: _in_order(one, common) for owner, one in parts.items()}
    holdings = tuple(
        Holding(owner, len(one.features), tuple(one.features.shape[1:]), one.labels is not None)
        for owner, one in parts.items()
    )
    along = 0 if job.data.split == "rows" else 1
    x = torch.cat([one.features for one in parts.values()], dim=along)
    y = torch.cat([one.labels for one in parts.values() if one.labels is not None])
    labels = y[:, 0] if job.training.loss == "logistic" else y.argmax(1)
    return x.float(), labels.long(), holdings


def _in_order(rows: Rows, ids: Sequence[str]) -> Rows:
    places = {name: at for at, name in enumerate(rows.ids)}
    return rows.take([places[name] for name in ids])


def _task_of(job: TrainJob, rows: int, shape: tuple[int, ...]) -> TrainTask:
    """Return the job's task as if one owner held all rows; none is kept for measuring."""
    room = math.ceil(rows / (1 - job.data.test_share)) + 2
    alone = replace(
        job,
        data=replace(job.data, split="rows", labels=None),
        training=replace(job.training, batch=min(job.training.batch, rows)),
    )
    return alone.task((Holding(next(iter(job.data.owners)), room, shape, True),))


def _targets(job: TrainJob, y: Tensor, width: int) -> Tensor:
    if job.training.loss == "logistic":
        return y.double().view(-1, 1)
    return nn.functional.one_hot(y, width).double()


def _with_weights(
    job: TrainJob, shape: tuple[int, ...], weights: Mapping[str, Tensor]
) -> nn.Module:
    """Put weights, named as in a run, into a torch module with a logit per class."""
    module = job.module(shape)
    state = job.make_model(shape).state(weights)
    module.load_state_dict({name: value.to(torch.float32) for name, value in state.items()})
    return _sided(job, module)


def _given_out(job: TrainJob, shape: tuple[int, ...], path: Path) -> nn.Module:
    """Read the model that the job gave out."""
    module = job.module(shape)
    load_weights(module, path)
    return _sided(job, module.float())


def _sided(job: TrainJob, module: nn.Module) -> nn.Module:
    return nn.Sequential(module, BothSides()) if job.training.loss == "logistic" else module


def _classes(job: TrainJob, y: Tensor) -> int:
    return 2 if job.training.loss == "logistic" else int(y.max()) + 1


def _notes(job: TrainJob) -> tuple[str, ...]:
    if job.protocol.give_to:
        return ()
    return ("The weights stay shared: nobody holds them, so attacks on weights are left out.",)


def _no_claim(job: TrainJob) -> Claim:
    who = ", ".join(job.protocol.give_to) or "whoever may ask it"
    return Claim(
        subject=f"what the trained model tells {who} about the rows it was trained on",
        guarantee="no guarantee",
        assumptions=("the protocol hides rows while training, not what the model remembers",),
    )
