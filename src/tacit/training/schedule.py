"""What is run, in which order: the steps and looks of a training, and the plans of all of them."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tacit.mpc import OpeningCache, Plan, find_protocol, make_plan
from tacit.mpc.share import Spec
from tacit.training.makers import NoisePlan
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
class Plans:
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
    def made(cls, task: TrainTask) -> "Plans":
        """Make all plans that will be run; RangeError if numbers do not fit."""
        plans = cls(task)
        plans.digest()
        return plans

    def get(self, name: str, *, rate: float = 0.0, counted: bool = True) -> Plan:
        """Return a plan; ``rate`` is that of a step."""
        key = name, rate, name == "step" and self._has_rows()
        if key not in self._made:
            program = partial(self.programs.step, rate=rate)
            if name == "start":
                program = partial(enter_starts, task=self.task, choice=self._choice)
            elif name != "step":
                program = getattr(self.programs, name)
            protocol = find_protocol(self.task.protocol)
            roles, frac_bits = self.task.roles, self.task.frac_bits
            self._made[key] = make_plan(
                program, protocol, roles, frac_bits=frac_bits, cache=self.cache
            )
            if key[2]:
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
        steps = range(1, self.task.epochs * self.task.steps_per_epoch + 1)
        rates = dict.fromkeys(self.task.rate_at(step) for step in steps)
        plans = [self.get("share", counted=False)]
        if self.has_starts:
            plans.append(self.get("start", counted=False))
        if self.task.looks:
            plans.append(self.get("watch", counted=False))
        plans += [self.get("step", rate=rate, counted=False) for rate in rates]
        if self.task.score_to:
            plans.append(self.get("score", counted=False))
        if self.task.give_to:
            plans.append(self.get("give", counted=False))
        return hashlib.sha256(b"".join(plan.digest() for plan in plans)).digest()

    @property
    def has_starts(self) -> bool:
        """Tell whether owners train alone before."""
        return self.task.privacy is not None and self.task.privacy.start != "public"

    @property
    def _choice(self) -> NoisePlan | None:
        return None if self.privacy is None else self.privacy.choice

    def was_agreed(self, plan: Plan) -> bool:
        """Tell whether everyone has compared a plan, which all do when it is first run.

        `digest` covers all but those that follow from what was opened in a session.
        """
        if id(plan) not in self._unheard:
            return True
        self._unheard.remove(id(plan))
        return False

    def _has_rows(self) -> bool:
        """Tell whether the rows to train on were opened under their masks before."""
        if self.privacy is None or self.task.is_sampled:
            return False
        task = self.task
        shape = (task.batch, *task.model.inputs)
        spec = Spec.of(shape=shape, frac_bits=task.frac_bits, bound=task.feature_bound)
        return self.cache.find("x", spec, None) is not None
