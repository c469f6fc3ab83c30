"""What is run, in which order: the steps and looks of a training, and the plans of all of them."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tacit.learn.training.programs import Programs
from tacit.learn.training.task import TrainTask
from tacit.mpc import Plan, find_protocol, make_plan


@dataclass(frozen=True)
class Action:
    """One run: a step on some rows, or a look at how it goes."""

    step: int
    rows: np.ndarray
    is_look: bool


def actions(task: TrainTask) -> Iterator[Action]:
    """Yield every run between sharing the data and handing out the model, in order."""
    step, total = 0, task.epochs * task.steps_per_epoch
    test = task.test_indices()
    for epoch in range(task.epochs):
        for chosen in task.batches(epoch):
            step += 1
            yield Action(step, chosen, is_look=False)
            if step % task.watch_every == 0 or step == total:
                yield Action(step, test, is_look=True)


@dataclass(eq=False)
class Plans:
    """The plans of a task, made when first asked for, and how often each was run."""

    task: TrainTask
    runs: list[tuple[Plan, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.programs = Programs(self.task)
        self._made: dict[str, Plan] = {}

    @classmethod
    def made(cls, task: TrainTask) -> "Plans":
        """Make all plans that will be run; RangeError if numbers do not fit."""
        plans = cls(task)
        plans.digest()
        return plans

    def get(self, name: str, *, rate: float = 0.0, counted: bool = True) -> Plan:
        """Return a plan; ``rate`` is that of a step."""
        key = f"{name} {rate!r}"
        if key not in self._made:
            program = partial(self.programs.step, rate=rate)
            if name != "step":
                program = getattr(self.programs, name)
            protocol = find_protocol(self.task.protocol)
            roles, frac_bits = self.task.roles, self.task.frac_bits
            self._made[key] = make_plan(program, protocol, roles, frac_bits=frac_bits)
        plan = self._made[key]
        if counted:
            times = 1
            if self.runs and self.runs[-1][0] is plan:
                times += self.runs.pop()[1]
            self.runs.append((plan, times))
        return plan

    def digest(self) -> bytes:
        """Return a hash of every plan that will be run."""
        steps = range(1, self.task.epochs * self.task.steps_per_epoch + 1)
        rates = dict.fromkeys(self.task.rate_at(step) for step in steps)
        plans = [self.get(name, counted=False) for name in ("share", "watch")]
        plans += [self.get("step", rate=rate, counted=False) for rate in rates]
        if self.task.score_to:
            plans.append(self.get("score", counted=False))
        if self.task.give_to:
            plans.append(self.get("give", counted=False))
        return hashlib.sha256(b"".join(plan.digest() for plan in plans)).digest()
