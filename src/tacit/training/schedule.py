"""What is run, in which order: the steps and looks of a training, as programs of one walk."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from tacit.mpc import Plan
from tacit.mpc.secret_ops import Given
from tacit.mpc.share import AnyShare, Spec
from tacit.mpc.walker import Walker
from tacit.party import Session
from tacit.training.plan import TrainPlan
from tacit.training.private import plan_noise
from tacit.training.programs import Programs
from tacit.training.start import enter_starts


@dataclass(frozen=True)
class Action:
    """One run: a step on some rows, or a look at how it goes."""

    step: int
    rows: np.ndarray
    is_look: bool


def actions(task: TrainPlan) -> Iterator[Action]:
    """Yield every run between sharing the data and handing out the model, in order."""
    step, total = 0, task.steps
    test = task.test_indices()
    for epoch in range(task.spec.training.epochs):
        for chosen in task.batches(epoch):
            step += 1
            yield Action(step, chosen, is_look=False)
            if step % task.spec.training.look_every == 0 or step == total:
                yield Action(step, test, is_look=True)


class TrainingWalk:
    """The programs of a task as a party walks through them, all planned before the first is run.

    What follows from openings of this session alone is planned on the way: a private training
    opens its rows under their masks in its first step of a session, and never again.

    Args:
        task: what is trained.
        session: my end of the job; none for who plans alone.

    Raises:
        RangeError: numbers do not fit.
    """

    def __init__(self, task: TrainPlan, session: Session | None = None) -> None:
        self.task, self.privacy = task, plan_noise(task)
        self.programs = Programs(task, self.privacy)
        self.walker = Walker(
            task.spec.roles,
            protocol=task.spec.protocol.spelled,
            frac_bits=task.frac_bits,
            session=session,
        )
        steps = range(1, task.steps + 1)
        before = {"share": True, "start": self.has_starts, "watch": bool(task.looks)}
        after = {
            "score": bool(task.spec.protocol.score_to),
            "give": bool(task.spec.protocol.give_to),
        }
        for name in (name for name, is_run in before.items() if is_run):
            self.plan(name)
        for rate in dict.fromkeys(task.rate_at(step) for step in steps):
            self.plan("step", rate=rate)
        for name in (name for name, is_run in after.items() if is_run):
            self.plan(name)

    @property
    def has_starts(self) -> bool:
        """Tell whether owners train alone before."""
        return self.task.spec.privacy is not None and self.task.spec.privacy.start != "public"

    def plan(self, name: str, *, rate: float = 0.0) -> Plan:
        """Return the plan of a program; ``rate`` is that of a step."""
        task, reads = self.task, {}
        if name == "step" and self.privacy is not None and not task.spec.is_sampled:
            # A private step takes all rows: after the first they are known under their masks.
            shape = (task.batch, *task.model.inputs)
            reads["x"] = Spec.of(shape=shape, frac_bits=task.frac_bits, bound=task.bound)
        return self.walker.plan(self._program(name, rate), key=(name, rate), reads=reads)

    def run(
        self,
        name: str,
        *,
        rate: float = 0.0,
        inputs: Mapping[str, Given] | None = None,
        kept: Mapping[str, AnyShare] | None = None,
    ) -> tuple[Any, tuple[Tensor, ...]]:  # what a program returns
        """Do my part of a program; see `Walker.execute`."""
        plan, program = self.plan(name, rate=rate), self._program(name, rate)
        return self.walker.execute(plan, program, inputs=inputs, kept=kept)

    def _program(self, name: str, rate: float) -> Callable[[Any], Any]:
        if name == "start":
            choice = None if self.privacy is None else self.privacy.choice
            return partial(enter_starts, task=self.task, choice=choice)
        program: Callable[..., Any] = getattr(self.programs, name)
        return partial(program, rate=rate) if name == "step" else program


def plan_training(task: TrainPlan) -> TrainingWalk:
    """Walk through a task without anybody else: what will be sent, opened and promised.

    ``walker.runs`` is the same list as `Trained.runs` of a training that was not interrupted.

    Raises:
        RangeError: numbers do not fit.
    """
    walk = task.planned(TrainingWalk)
    task = walk.task
    walk.run("share")
    if walk.has_starts:
        walk.run("start")
    for action in actions(task):
        if not action.is_look:
            walk.run("step", rate=task.rate_at(action.step))
        elif task.looks:
            walk.run("watch")
    if task.spec.protocol.score_to:
        walk.run("score")
    if task.spec.protocol.give_to:
        walk.run("give")
    return walk
