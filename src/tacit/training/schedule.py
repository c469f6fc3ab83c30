"""What is run, in which order: the steps and looks of a training, and the plans of all of them."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tacit.mpc import OpeningCache, Plan, find_protocol, make_plan
from tacit.mpc.share import Spec
from tacit.training.private import plan_noise
from tacit.training.programs import Programs
from tacit.training.start import enter_starts
from tacit.training.task import TrainTask


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
class TrainingPlans:
    """The plans of a task, made when first asked for, and how often each was run.

    ``cache`` is that of a session in which they are run. A private training opens its rows under
    their masks in its first step of a session, and never again.
    """

    task: TrainTask
    runs: list[tuple[Plan, int]] = field(default_factory=list)
    cache: OpeningCache = field(default_factory=OpeningCache)

    def __post_init__(self) -> None:
        self.privacy = plan_noise(self.task)
        self.programs = Programs(self.task, self.privacy)
        self._made: dict[tuple[str, float, bool], Plan] = {}
        self._unheard: set[int] = set()

    @classmethod
    def made(cls, task: TrainTask) -> "TrainingPlans":
        """Make all plans that will be run; RangeError if numbers do not fit."""
        plans = cls(task)
        plans.digest()
        return plans

    def get(self, name: str, *, rate: float = 0.0, counted: bool = True) -> Plan:
        """Return a plan; ``rate`` is that of a step."""
        task, was_opened = self.task, False
        if name == "step" and self.privacy is not None and not task.is_sampled:
            # A private step takes all rows: after the first they are known under their masks.
            shape = (task.batch, *task.model.inputs)
            spec = Spec.of(shape=shape, frac_bits=task.frac_bits, bound=task.feature_bound)
            was_opened = self.cache.find("x", spec, None) is not None
        key = name, rate, was_opened
        if key not in self._made:
            program = partial(self.programs.step, rate=rate)
            if name == "start":
                choice = None if self.privacy is None else self.privacy.choice
                program = partial(enter_starts, task=task, choice=choice)
            elif name != "step":
                program = getattr(self.programs, name)
            protocol = find_protocol(task.protocol)
            self._made[key] = make_plan(
                program, protocol, task.roles, frac_bits=task.frac_bits, cache=self.cache
            )
            if was_opened:
                self._unheard.add(id(self._made[key]))
        plan = self._made[key]
        if counted:
            times = 1
            if self.runs and self.runs[-1][0] is plan:
                times += self.runs.pop()[1]
            self.runs.append((plan, times))
        return plan

    def digest(self) -> bytes:
        """Return a hash of every plan that will be run, but for what was opened before."""
        task = self.task
        steps = range(1, task.epochs * task.steps_per_epoch + 1)
        rates = dict.fromkeys(task.rate_at(step) for step in steps)
        before = {"share": True, "start": self.has_starts, "watch": bool(task.looks)}
        after = {"score": bool(task.score_to), "give": bool(task.give_to)}
        plans = [self.get(name, counted=False) for name, is_run in before.items() if is_run]
        plans += [self.get("step", rate=rate, counted=False) for rate in rates]
        plans += [self.get(name, counted=False) for name, is_run in after.items() if is_run]
        return hashlib.sha256(b"".join(plan.digest() for plan in plans)).digest()

    @property
    def has_starts(self) -> bool:
        """Tell whether owners train alone before."""
        return self.task.privacy is not None and self.task.privacy.start != "public"

    def was_agreed(self, plan: Plan) -> bool:
        """Tell whether everyone has compared a plan, which all do when it is first run.

        `digest` covers all but those that follow from what was opened in a session.
        """
        if id(plan) not in self._unheard:
            return True
        self._unheard.remove(id(plan))
        return False


def plan_training(task: TrainTask) -> TrainingPlans:
    """Return the plans of a task as it will be trained, with how often each is run in a row.

    ``runs`` is the same list as `Trained.runs` of a training that was not interrupted.

    Raises:
        RangeError: numbers do not fit.
    """
    plans = task.planned(TrainingPlans.made)
    task = plans.task
    plans.get("share")
    if plans.has_starts:
        plans.get("start")
    for action in actions(task):
        if action.is_look:
            if task.looks:
                plans.get("watch")
        else:
            plan = plans.get("step", rate=task.rate_at(action.step))
            plans.cache.keep(0, plan.kept_openings, {}, {})
    if task.score_to:
        plans.get("score")
    if task.give_to:
        plans.get("give")
    return plans
