"""What the leakage lab looks at: a model, its weights and rows, and programs that use them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tacit.audit.permutation.recording import Program, Run
from tacit.errors import ConfigError
from tacit.inference.service import ServiceTask
from tacit.mpc import Plan, Roles, find_protocol
from tacit.mpc.walker import Walker
from tacit.nn import Model
from tacit.training import TrainPlan
from tacit.training.ops import PlainStepOps
from tacit.training.programs import (
    Programs,
    initial_state,
    state_bounds,
    train_step,
)
from tacit.training.schedule import actions

Weights = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """A private computation to look at.

    Attributes:
        name: of the job.
        protocol: as the job names it.
        roles: who computes, and who deals or helps.
        model: what is computed.
        rows: the rows that the computation is about.
        classes: the class of every row.
        points: weights by the number of steps after which they are reached.
        is_start_public: whether everyone knows the weights before the first step.
        frac_bits: the precision of numbers.
        program: makes the program for a number of rows.
        values: everything that the two parties share beside rows and labels, given weights.
        feature_bound: the largest size of a feature.
        labels: what belongs to the rows in a training; None elsewhere.
    """

    name: str
    protocol: str
    roles: Roles
    model: Model
    rows: Tensor
    classes: Tensor
    points: Mapping[int, Weights]
    is_start_public: bool
    frac_bits: int
    program: Callable[[int], Program]
    values: Callable[[Weights], Mapping[str, tuple[Tensor, float]]]
    feature_bound: float
    labels: Tensor | None = None

    @property
    def viewer(self) -> str:
        """Return who sees permuted values, if anyone does.

        Raises:
            ConfigError: two parties do, each of other functions; what each infers is another run.
        """
        protocol = find_protocol(self.protocol)
        if len(protocol.shows_to) > 1:
            raise ConfigError(
                f"under {self.protocol!r} two parties see permuted values; look at a job with one "
                "of the two protocols at a time"
            )
        return self.roles.second if "second" in protocol.shows_to else self.roles.dealer

    @property
    def is_permuted(self) -> bool:
        """Tell whether anyone sees permuted values."""
        return bool(find_protocol(self.protocol).shows_to)


def training_subject(
    task: TrainPlan, rows: Tensor, labels: Tensor, *, name: str, looks: int
) -> Subject:
    """Look at the steps of a training, at the start and at a few points of its way."""
    total = task.steps
    steps = sorted({round(total * look / max(looks - 1, 1)) for look in range(looks)})
    classes = labels[:, 0].long() if labels.shape[1] == 1 else labels.argmax(-1)
    bounds, dials = state_bounds(task), task.spec.training.dial_bounds()
    state = {name: (value, bounds[name]) for name, value in initial_state(task).items()}
    for name, number in task.spec.training.dials(1).items():
        state[name] = (torch.tensor(number), dials[name])

    def program(batch: int) -> Program:
        return partial(Programs(task.with_batch(batch)).step, rate=task.spec.training.rate)

    def values(weights: Weights) -> dict[str, tuple[Tensor, float]]:
        return {**{name: (one, task.spec.weight_bound) for name, one in weights.items()}, **state}

    return Subject(
        name=name,
        protocol=task.spec.protocol.spelled,
        roles=task.spec.roles,
        model=task.model,
        rows=rows.double(),
        classes=classes,
        points=train_to(task, rows.double(), labels.double(), steps),
        is_start_public=True,
        frac_bits=task.frac_bits,
        program=program,
        values=values,
        feature_bound=task.bound,
        labels=labels.double(),
    )


def prediction_subject(
    task: ServiceTask, weights: Weights, rows: Tensor, classes: Tensor
) -> Subject:
    """Look at predictions from a network whose weights its owner alone knows."""
    assert isinstance(task.model, Model)  # noqa: S101 - a lab has layers

    def program(batch: int) -> Program:
        return partial(task.answer, rows=batch)

    def values(known: Weights) -> dict[str, tuple[Tensor, float]]:
        return {name: (one, task.spec.weight_bound) for name, one in known.items()}

    return Subject(
        name=task.name,
        protocol=task.spec.protocol.kind,
        roles=task.spec.roles,
        model=task.model,
        rows=rows.double(),
        classes=classes,
        points={0: {name: value.double() for name, value in weights.items()}},
        is_start_public=False,
        frac_bits=task.spec.frac_bits,
        program=program,
        values=values,
        feature_bound=task.spec.bound,
    )


def train_to(
    task: TrainPlan, rows: Tensor, labels: Tensor, steps: Sequence[int]
) -> dict[int, dict[str, Tensor]]:
    """Train in the clear and return the weights after some numbers of steps."""
    weights = {name: value.double() for name, value in task.model.initial.items()}
    state = {name: value.double() for name, value in initial_state(task).items()}
    found = {0: weights} if 0 in steps else {}
    for action in actions(task):
        if action.is_look or action.step > max(steps):
            continue
        x, y, rate = rows[action.rows], labels[action.rows], task.rate_at(action.step)
        ops = PlainStepOps(task.spec.training.dials(action.step))
        weights, state = train_step(ops, task, weights, state, x, y, rate=rate)
        if action.step in steps:
            found[action.step] = weights
    return found


class Planner:
    """Turns batches of a subject's rows into runs, with one plan per size of batch."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        # What the second party of permuted2 sees is what the helper of permuted3 sees.
        protocol = subject.protocol.replace("permuted2", "permuted3")
        self._walker = Walker(subject.roles, protocol=protocol, frac_bits=subject.frac_bits)
        self._plans: dict[int, tuple[Plan, Program]] = {}

    def run(self, batch: Sequence[int], weights: Weights) -> Run:
        """Return the run on these rows."""
        subject, count = self._subject, len(batch)
        if count not in self._plans:
            program = subject.program(count)
            self._plans[count] = self._walker.plan(program, key=count), program
        plan, program = self._plans[count]
        at = torch.tensor(list(batch))
        values = {**subject.values(weights), "x": (subject.rows[at], subject.feature_bound)}
        if subject.labels is not None:
            values["y"] = (subject.labels[at], 1.0)
        return Run(plan, program, values)


class FirstArguments(PlainStepOps):
    """Run a model in the clear, and remember the arguments of its first function."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Tensor | None = None

    def relu(self, x: Tensor) -> Tensor:
        """Give the positive part."""
        return super().relu(self._note(x))

    def sigmoid(self, x: Tensor) -> Tensor:
        """Apply the logistic function."""
        return super().sigmoid(self._note(x))

    def tanh(self, x: Tensor) -> Tensor:
        """Apply the hyperbolic tangent."""
        return super().tanh(self._note(x))

    def gelu(self, x: Tensor) -> Tensor:
        """Apply the Gaussian error linear unit."""
        return super().gelu(self._note(x))

    def silu(self, x: Tensor) -> Tensor:
        """Apply x·sigmoid(x)."""
        return super().silu(self._note(x))

    def _note(self, x: Tensor) -> Tensor:
        if self.found is None:
            self.found = x
        return x


def first_arguments(model: Model, weights: Weights, rows: Tensor) -> Tensor:
    """Return the values, row by row, that the first function of a model is applied to.

    A model without a hidden function is looked at through its scores.
    """
    ops = FirstArguments()
    scores = model(ops, dict(weights), rows)
    found = scores if ops.found is None else ops.found
    return found.reshape(len(rows), -1)
