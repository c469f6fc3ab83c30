"""Training on shares under audit: the finished model of a private training, and more like it."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import final

import torch
from torch import Tensor, nn

from tacit.audit.target import TorchClassifier, code_of
from tacit.audit.targets.target import Side, Target, halve_rows, picture_of_set, take_rows
from tacit.data import Holding
from tacit.mpc import find_protocol
from tacit.nn.weights import load_weights
from tacit.result import Claim
from tacit.training import TrainPlan
from tacit.training.gradients import plan_noise, private_step, shorten_rows
from tacit.training.loop import walk_plain
from tacit.training.ops import PlainStepOps
from tacit.training.plan import BATCH, build
from tacit.training.programs import initial_state, train_step
from tacit.training.rows import join_owners
from tacit.training.spec import TrainSpec

Shape = tuple[int, ...]
MakeModule = Callable[[Shape], nn.Module]
"""Builds the torch module for rows of a shape, with the weights to start from."""
MakeTask = Callable[[int, Shape], TrainPlan]
"""Returns the task as if one owner held so many rows of a shape, all of them to train on."""


@final
@dataclass(frozen=True, kw_only=True)
class PrivateTrainer:
    """Trains in the clear what a task trains on shares: start, steps, batches and rates alike.

    The first weights of such a training are public, so shadow models start from them too; the seed
    decides the order of the rows alone.

    Guarantee: none. Its models are trained in the clear.

    Attributes:
        module: builds the model.
        task: says how it is trained.
        settings: all that decides the outcome, as text.
    """

    module: MakeModule
    task: MakeTask
    settings: str

    @property
    def recipe(self) -> str:
        """Return the settings that decide the outcome, and the code, as text."""
        return "\n".join([self.settings, code_of(train_step), code_of(private_step)])

    def __call__(self, x: Tensor, y: Tensor, *, seed: int) -> TorchClassifier:
        """Return a model trained on these rows alone."""
        shape = tuple(x.shape[1:])
        task = self.task(len(x), shape)
        weights = {name: value.double() for name, value in task.model.initial.items()}
        state = {name: value.double() for name, value in initial_state(task).items()}
        rows, labels = x.double(), _targets(task, y)
        if task.spec.privacy is not None:  # all rows in every step, and fresh noise
            weights, _ = walk_plain(task, rows, labels)
            return TorchClassifier(self._with_weights(task, shape, weights))
        generator = torch.Generator().manual_seed(seed)
        batches = _shuffled(len(x), task.batch, generator)
        for step, chosen in enumerate(itertools.islice(batches, task.steps), start=1):
            weights, state = train_step(
                PlainStepOps(task.spec.training.dials(step)),
                task,
                weights,
                state,
                rows[chosen],
                labels[chosen],
                rate=task.rate_at(step),
            )
        return TorchClassifier(self._with_weights(task, shape, weights))

    def _with_weights(
        self, task: TrainPlan, shape: Shape, weights: Mapping[str, Tensor]
    ) -> nn.Module:
        """Put weights, named as in a run, into a torch module with a logit per class."""
        module = self.module(shape)
        state = task.model.state(weights)
        module.load_state_dict({name: value.to(torch.float32) for name, value in state.items()})
        return _sided(task, module)


class Shortened(nn.Module):
    """Brings rows to norm 1 at most, as a training with privacy does."""

    def __init__(self, frac_bits: int) -> None:
        super().__init__()
        self._frac_bits = frac_bits

    def forward(self, rows: Tensor) -> Tensor:
        """Return rows that are no longer than 1."""
        return shorten_rows(rows, frac_bits=self._frac_bits).to(rows.dtype)


class BothSides(nn.Module):
    """Turns the one score of a yes-or-no model into a logit per class."""

    def forward(self, score: Tensor) -> Tensor:
        """Return (rows, 2) logits."""
        return torch.cat([torch.zeros_like(score), score], dim=1)


def target_of_training(
    spec: TrainSpec,
    search: Sequence[Path] = (),
    *,
    rows: int | None = None,
    kept: Path | None = None,
) -> Target:
    """Take the model that a training has given out, or train one like it, on its owners' rows.

    Args:
        spec: where the rows of all owners come from, and how they train.
        search: folders that may hold data sets.
        rows: at most so many of each side.
        kept: the file of the model that was given out, if there is one.
    """
    features, labels, holdings = join_owners(spec, search)
    y = labels[:, 0] if spec.training.loss == "logistic" else labels.argmax(1)
    trainer = PrivateTrainer(
        module=partial(build, spec.model),
        task=partial(_plan_alone, spec),
        settings=f"{asdict(spec.model)}\n{asdict(spec.training)}\n{spec.privacy}",
    )
    task = TrainPlan.of(spec, holdings)
    target = train_target(trainer, task, features.float(), y.long(), kept=kept, rows=rows)
    whole = next(iter(spec.data.owners.values())).set if spec.data.split == "rows" else None
    return replace(target, picture=picture_of_set(whole, search))


def _plan_alone(spec: TrainSpec, rows: int, shape: Shape) -> TrainPlan:
    """Return the plan as if one owner held all rows; none is kept for measuring."""
    room = math.ceil(rows / (1 - spec.data.test_share)) + 2
    protocol, privacy = spec.protocol, spec.privacy
    batch: int | None = min(spec.training.batch or BATCH, rows)
    if privacy is not None:  # all rows in every step, and nothing is looked at
        room, batch = rows, None
        privacy, protocol = (
            replace(privacy, looks="none"),
            replace(protocol, show_to=(), score_to=()),
        )
    alone = replace(
        spec,
        data=replace(spec.data, split="rows", labels=None),
        training=replace(spec.training, batch=batch),
        protocol=protocol,
        privacy=privacy,
    )
    held = Holding(next(iter(spec.data.owners)), room, shape, "classes")
    return TrainPlan.of(alone, (held,))


def train_target(
    trainer: PrivateTrainer,
    task: TrainPlan,
    x: Tensor,
    y: Tensor,
    *,
    kept: Path | None = None,
    rows: int | None = None,
) -> Target:
    """Take the model that a training has given out, or train one like it.

    A model that was given out is attacked as it is, on the rows that it was trained on against
    those that were kept for measuring. Without one, half of all rows are trained on.

    Args:
        trainer: trains more like it.
        task: the training, with all owners.
        x: the rows of all owners, in the order of the task.
        y: a class for each.
        kept: the file of the model that was given out, if there is one.
        rows: at most so many of each side.
    """
    if kept is not None and task.test_rows:
        inside = torch.ones(len(x), dtype=torch.bool)
        inside[torch.from_numpy(task.test_indices())] = False
        members, others = (take_rows((x[side], y[side]), rows) for side in (inside, ~inside))
        module = trainer.module(tuple(x.shape[1:]))
        load_weights(module, kept)
        model = TorchClassifier(_sided(task, module.float()))
        said = f"Attacked: the model in {kept}, as the job gave it out."
    else:
        members, others = halve_rows((x, y), rows)
        model = trainer(*members, seed=0)
        said = "Attacked: a model trained in the clear on half of all rows, as the job says."
    return _target(trainer, task, model, (members, others), (said,))


def _target(
    trainer: PrivateTrainer,
    task: TrainPlan,
    model: TorchClassifier,
    sides: tuple[Side, Side],
    notes: tuple[str, ...],
) -> Target:
    if not task.spec.protocol.give_to:
        stays = "The weights stay shared: nobody holds them, so attacks on weights are left out."
        notes = (*notes, stays)
    return Target(
        model=model,
        trainer=trainer,
        members=sides[0],
        non_members=sides[1],
        classes=task.classes,
        threats=(
            "scores",
            "labels",
            "shadows",
            *(("gradients",) if task.spec.protocol.give_to else ()),
        ),
        claims=(*find_protocol(task.spec.protocol.spelled).claims, _claim(task)),
        notes=notes,
    )


def _shuffled(rows: int, batch: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield batches of all rows in a new order for every epoch, for as long as is asked."""
    while True:
        order = torch.empty(rows).uniform_(generator=generator).argsort()
        yield from torch.split(order, batch)[: rows // batch]


def _targets(task: TrainPlan, y: Tensor) -> Tensor:
    if task.loss == "logistic":
        return y.double().view(-1, 1)
    return nn.functional.one_hot(y, task.label_width).double()


def _sided(task: TrainPlan, module: nn.Module) -> nn.Module:
    before = [] if task.spec.privacy is None else [Shortened(task.frac_bits)]
    after = [BothSides()] if task.loss == "logistic" else []
    return nn.Sequential(*before, module, *after) if before or after else module


def _claim(task: TrainPlan) -> Claim:
    privacy = plan_noise(task)
    if privacy is not None:
        return privacy.claim
    who = ", ".join(task.spec.protocol.give_to) or "whoever may ask it"
    return Claim(
        subject=f"what the trained model tells {who} about the rows it was trained on",
        guarantee="no guarantee",
        assumptions=("the protocol hides rows while training, not what the model remembers",),
    )
