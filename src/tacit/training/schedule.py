"""What is run, in which order, as programs of one walk; and one party's part in every run."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import nan
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit import ring
from tacit.errors import DisagreementError
from tacit.mpc import Plan, Share
from tacit.mpc.secret_ops import Given
from tacit.mpc.share import AnyShare, Spec
from tacit.mpc.walker import Walker
from tacit.party import Progress, Session
from tacit.ring.prg import KEY_BYTES
from tacit.training.checkpoint import ORDER, ShareCheckpoint, StateFolder
from tacit.training.gradients import answers_of, plan_noise
from tacit.training.noise import (
    KEPT,
    NoisePlan,
    coins_name,
    draw_coins,
    draw_noise,
    draw_rows,
    noise_name,
)
from tacit.training.plan import TrainPlan
from tacit.training.programs import (
    Programs,
    enter_starts,
    initial_state,
    start_name,
    state_bounds,
    train_alone,
)


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


_LARGEST_ATTEMPT = (1 << 62) - 1
"""It is told as a number of a `Fact`, which has a sign."""


class TrainingWorker:
    """One party's part in every run."""

    def __init__(
        self, walk: TrainingWalk, inputs: Mapping[str, Tensor], noise: ring.Prg, progress: Progress
    ) -> None:
        self._walk, self._task = walk, walk.task
        self._session = walk.walker.session
        self._inputs, self._prg, self.progress = inputs, noise, progress
        self._labels = inputs.get(f"labels of {self._session.me}")
        self._data: dict[str, Share] = {}
        self._batches: dict[str, dict[str, Share]] = {}
        self._shares: dict[str, Share] = {}
        self._attempt = 0
        self._order = ring.Prg(bytes(KEY_BYTES))  # drawn when the training begins
        self.near_at = 0
        self.saturated: tuple[int, int, int] | None = None
        self.shown: list[tuple[int, float, float]] = []

    @property
    def is_computing(self) -> bool:
        """Tell whether I hold shares."""
        return self._walk.walker.is_computing

    def share(self) -> None:
        """Bring the data in."""
        shares, _ = self._walk.run("share", inputs=self._inputs)
        self._data = _numbers(shares)

    def begin(self, checkpoint: ShareCheckpoint | None, folder: StateFolder | None = None) -> None:
        """Start from the public initial weights, or from a checkpoint, with fresh shares.

        The generator of the rows that are sampled lies in the folder: steps that are done again
        have the rows that they had.
        """
        number = self._session.begin_run()  # of another training of this session: other masks
        if not self.is_computing:
            return
        first, second = self._task.spec.roles.computing
        is_first = self._session.me == first
        common = self._session.shared(second if is_first else first).fork(f"training {number}")
        self._attempt = int(common.words((1,))) & _LARGEST_ATTEMPT
        if self._task.spec.is_sampled:
            self._order = self._agreed_order(common.fork("order"), folder, checkpoint is None)
        starts = {**self._task.model.initial, **initial_state(self._task)}
        bounds = state_bounds(self._task)
        for name, value in starts.items():
            bound = bounds.get(name, self._task.spec.weight_bound)
            spec = Spec.of(shape=tuple(value.shape), frac_bits=self._task.frac_bits, bound=bound)
            words = ring.encode(value.double(), frac_bits=self._task.frac_bits)
            if not is_first:
                words = torch.zeros_like(words)
            if checkpoint is not None:
                words = checkpoint.shares[name]
            # Masked anew, from a checkpoint as well: a step that is done again, perhaps with other
            # rows, shows words that have nothing to do with those of the first time.
            mask = common.words(spec.shape)
            self._shares[name] = Share(words + mask if is_first else words - mask, spec)
        if checkpoint is not None:
            self.shown = list(checkpoint.shown)

    def _agreed_order(self, common: ring.Prg, folder: StateFolder | None, is_new: bool) -> ring.Prg:
        """Return the generator of rows that both have, or say that the other's is another."""
        key = common.bytes(KEY_BYTES)
        if folder is not None:
            key = folder.keep_key(ORDER, key if is_new else None)
        first, second = self._task.spec.roles.computing
        other = second if self._session.me == first else first
        mine = ring.Prg(key).fork("check").words((4,))
        self._session.send(other, "setup/order", mine, phase="setup")
        if not torch.equal(self._session.recv(other, "setup/order", (4,)), mine):
            raise DisagreementError(
                other, "draws other rows for this training; start all parties with --fresh"
            )
        return ring.Prg(key)

    def start(self, mine: Mapping[str, Tensor]) -> None:
        """Train alone, if I have rows, and begin with what all owners' models make."""
        privacy, me = self._walk.privacy, self._session.me
        assert privacy is not None  # noqa: S101 - of a private task
        inputs = self._noise("choice", 0, privacy.choice)
        if f"rows of {me}" in mine:
            rows, labels = mine[f"rows of {me}"], mine[f"labels of {me}"]
            inputs[start_name(me)] = train_alone(
                self._task, privacy.steps, me, rows, labels, prg=self._prg
            )
        kept = {**self._shares, **self._chosen(self._task.train_indices(), "")}
        found, _ = self._walk.run("start", inputs=inputs, kept=kept)
        self._shares |= _numbers(found)

    def step(self, action: Action) -> None:
        """Take one step."""
        task, privacy = self._task, self._walk.privacy
        inputs: dict[str, Given] = {
            **self._noise("step", action.step, None if privacy is None else privacy.steps),
            **answers_of(task, self._session.me, self._labels, action.rows),
        }
        kept: Mapping[str, Share] = {}
        if self.is_computing:
            rows = self._sampled(action) if task.spec.is_sampled else self._kept(action.rows)
            kept = {**rows, **self._dials(action.step)}
        changed, _ = self._walk.run(
            "step", rate=task.rate_at(action.step), inputs=inputs, kept=kept
        )
        self._shares = _numbers(changed)

    def look(self, action: Action) -> bool:
        """Open how it goes, and tell whether a weight has grown too large to go on."""
        privacy = self._walk.privacy
        noise = None if privacy is None else privacy.looks
        inputs: dict[str, Given] = {
            **self._noise("look", action.step, noise),
            **answers_of(self._task, self._session.me, self._labels, action.rows),
        }
        kept = self._kept(action.rows, kind="held-out ") if self.is_computing else {}
        found, opened = self._walk.run("watch", inputs=inputs, kept=kept)
        if not self.is_computing:
            if opened and self._session.me in self._task.spec.protocol.show_to:
                # Hidden states of my own rows come first, where there are such.
                seen = [one for one in opened if one.numel() == 1]
                loss, right = (None, *seen) if noise is not None else seen[:2]
                self._note(action.step, loss, right, *seen[2:])
            return False
        loss, right, saturated, alarms = found
        self._note(action.step, loss, right, saturated)
        is_near, is_beyond = (False, False) if alarms is None else map(bool, alarms.tolist())
        if is_near and not is_beyond and not self.near_at:
            self.near_at = action.step
            self.progress.tell(
                f"step {action.step}: weights near half of their bound of "
                f"{self._task.spec.weight_bound:g}, where the training stops; it can go on with a "
                "larger model.bound",
                action.step,
                self._task.steps,
            )
        return is_beyond

    def wait(self, step: int) -> None:
        """Wait until everybody is here: nothing is opened that the other one has not kept."""
        self._session.agree(f"step {step}", hashlib.sha256(b"kept").digest())

    def score(self) -> Tensor | None:
        """Open the scores of the rows kept for measuring to those who may have them."""
        rows = self._task.test_indices()
        kept = self._kept(rows, kind="held-out ") if self.is_computing else {}
        _, opened = self._walk.run("score", kept=kept)
        return opened[0] if opened else None

    def give(self) -> dict[str, Tensor]:
        """Open the weights to those who may have them."""
        _, opened = self._walk.run("give", kept=self._shares)
        return dict(zip(self._task.model.initial, opened, strict=True)) if opened else {}

    def checkpoint(self, step: int) -> ShareCheckpoint:
        """Return what is needed to go on from here."""
        shares = {name: share.words for name, share in self._shares.items()}
        return ShareCheckpoint(
            step=step, attempt=self._attempt, shares=shares, shown=tuple(self.shown)
        )

    def weight_shares(self) -> dict[str, Tensor]:
        """Return my share of every weight; of one that is public, all of it or zero.

        So the model can be served from shares. A public number beyond the bound is left out: then
        whoever serves the shares misses it, and says so.
        """
        if not self.is_computing:
            return {}
        task, is_first = self._task, self._session.me == self._task.spec.roles.first
        found = {name: self._shares[name].words for name in task.model.initial}
        for name, value in task.model.imported.public.items():
            if float(value.abs().max()) <= task.spec.weight_bound:
                words = ring.encode(value, frac_bits=task.frac_bits)
                found[name] = words if is_first else torch.zeros_like(words)
        return found

    def _kept(self, rows: np.ndarray, *, kind: str = "") -> dict[str, Share]:
        """Return my shares of weights, memory and the rows of a batch."""
        if self._task.spec.privacy is None:
            return {**self._shares, **self._chosen(rows, kind)}
        if kind not in self._batches:  # every step has the same rows
            self._batches[kind] = self._chosen(rows, kind)
        return {**self._shares, **self._batches[kind]}

    def _sampled(self, action: Action) -> dict[str, Share]:
        """Draw the rows of a step with the other computing party, and fill it up with zeros."""
        task, room = self._task, self._task.step_rows
        prg = self._order.fork(f"rows of step {action.step}")
        chosen = action.rows[draw_rows(prg, task.batch, task.train_rows)]
        found = {}
        for name, one in self._chosen(chosen, "").items():
            shape = one.spec.shape[1:]
            zeros = one.words.new_zeros(room - len(one.words), *shape)
            words = torch.cat([one.words, zeros])
            found[name] = Share(words, replace(one.spec, shape=(room, *shape)))
        # Both have these in the clear: rows that only fill up are multiplied by zero.
        counts = (torch.arange(room) < len(chosen)).long()[:, None]
        found[KEPT] = Share(counts, Spec.of(shape=(room, 1), frac_bits=0, bound=1.0))
        return {**self._shares, **found}

    def _chosen(self, rows: np.ndarray, kind: str) -> dict[str, Share]:
        chosen = torch.from_numpy(rows)
        return {
            kind + name: Share(
                share.words.index_select(0, chosen),
                replace(share.spec, shape=(len(rows), *share.spec.shape[1:])),
            )
            for name, share in self._data.items()
        }

    def _noise(self, what: str, step: int, plan: NoisePlan | None) -> dict[str, Tensor]:
        """Draw my part of the noise of a run: every step and every look has words of its own."""
        me = self._session.me
        if plan is None or me not in plan.makers:
            return {}
        mine = self._prg.fork(f"{what} {step}")
        found = {noise_name(me): draw_noise(plan, mine)}
        if plan.step:
            coins = draw_coins(plan.shape, mine.fork("coins"))
            found[coins_name(me)] = coins.double() * 2.0**-plan.frac_bits
        return found

    def _dials(self, step: int) -> dict[str, Share]:
        """Return the public numbers of a step, which each party computes for itself."""
        optimiser, frac_bits = self._task.spec.training, self._task.frac_bits
        bounds = optimiser.dial_bounds()
        return {
            name: Share(
                torch.tensor(round(number * 2**frac_bits)),
                Spec.of(shape=(), frac_bits=frac_bits, bound=bounds[name]),
            )
            for name, number in optimiser.dials(step).items()
        }

    def _note(
        self,
        step: int,
        loss: Tensor | None,
        right: Tensor | None,
        saturated: Tensor | None = None,
    ) -> None:
        if right is not None:
            seen = nan if loss is None else float(loss)
            self.shown.append((step, seen, float(right) / self._task.answers))
        if saturated is not None:
            self.saturated = (step, round(float(saturated)), self._walk.programs.capped[0])


def _numbers(shares: Mapping[str, AnyShare] | None) -> dict[str, Share]:
    """Keep shares of numbers, where I hold some; a training has no others."""
    return {name: one for name, one in (shares or {}).items() if isinstance(one, Share)}
