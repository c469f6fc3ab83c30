"""The training itself: every party walks the same schedule of runs."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from tacit import __version__, ring
from tacit.errors import DisagreementError, RangeError
from tacit.learn.training.checkpoint import KEEP, Checkpoint, StateFolder
from tacit.learn.training.programs import Programs, initial_state, state_bounds
from tacit.learn.training.task import TrainTask
from tacit.mpc import Plan, Share, compute, find_protocol, make_plan, serve
from tacit.mpc.share import AnyShare, Spec
from tacit.party import Progress, Session

_LARGEST_ATTEMPT = (1 << 62) - 1


@dataclass(frozen=True)
class Action:
    """One run: a step on some rows, or a look at how it goes."""

    step: int
    rows: np.ndarray
    is_look: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Trained:
    """What a party has in the end.

    Attributes:
        halves: my half of every weight; empty for a party that does not compute.
        weights: the weights themselves, for those they were given to.
        shown: step, mean loss and share of right answers at every look, for those it is shown to.
        runs: the plans as they were run, and how often in a row.
        resumed_at: the step at which an earlier run was taken up; 0 for a fresh start.
        cap: where hidden values and gradients saturated; None for nowhere.
    """

    halves: Mapping[str, Tensor]
    weights: Mapping[str, Tensor]
    shown: tuple[tuple[int, float, float], ...]
    runs: tuple[tuple[Plan, int], ...]
    resumed_at: int
    cap: float | None = None


def train(
    session: Session,
    task: TrainTask,
    *,
    rows: Tensor | None = None,
    labels: Tensor | None = None,
    folder: StateFolder | None = None,
) -> Trained:
    """Train as one of the parties.

    Args:
        session: my end of the job.
        task: what everyone does.
        rows: my rows or columns, if I own any.
        labels: my labels, one-hot or a column of 0 and 1, if I own any.
        folder: where my checkpoints go; all parties have one, or none has.

    Guarantee: that of the protocol; beyond it, what `Programs` opens: at every look the loss and
        the number of right answers to ``task.show_to`` and one bit to both computing parties.
        A training that is taken up again has fresh masks and fresh halves of the same weights; the
        looks after its last checkpoint are opened again.
    """
    plans = task.planned(Plans.made)
    task = plans.task
    session.agree("plans", plans.digest())
    inputs = {f"rows of {session.me}": rows, f"labels of {session.me}": labels}
    mine = {name: value for name, value in inputs.items() if value is not None}
    work = "" if folder is None else _work(task, plans, mine)
    start = _resume(session, task, folder, work)
    worker = _Worker(session, task, plans, mine)
    worker.share()
    checkpoint = None
    if start and worker.is_computing and folder is not None:
        checkpoint = folder.load(start)
    worker.begin(checkpoint)
    _walk(worker, task, start, folder)
    weights = worker.give() if task.give_to else {}
    return Trained(
        halves=worker.weight_halves(),
        weights=weights,
        shown=tuple(worker.shown),
        runs=tuple(plans.runs),
        resumed_at=start,
        cap=task.cap,
    )


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


def _walk(
    worker: "_Worker",
    task: TrainTask,
    start: int,
    folder: StateFolder | None,
) -> None:
    total = task.epochs * task.steps_per_epoch
    with worker.progress.stage("train", total) as advance:
        for action in actions(task):
            if action.step <= start:
                continue
            if not action.is_look:
                worker.step(action)
                advance(action.step)
                continue
            worker.look(action)
            if worker.shown and worker.shown[-1][0] == action.step:
                step, loss, right = worker.shown[-1]
                text = f"step {step}: loss {loss:.3f}, accuracy {100 * right:.1f} %"
                worker.progress.tell(text, step, total)
            if folder is not None and worker.is_computing:
                folder.save(worker.checkpoint(action.step))


def _work(task: TrainTask, plans: "Plans", mine: Mapping[str, Tensor]) -> str:
    """Hash all that decides what is trained: halves of one training are of no use to another."""
    content = hashlib.sha256(f"tacit training {__version__}\n".encode() + plans.digest())
    for name, value in {**task.model.initial, **mine}.items():
        content.update(f"\n{name} {tuple(value.shape)}\n".encode())
        content.update(value.detach().double().contiguous().numpy().tobytes())
    for action in actions(task):
        content.update(action.rows.astype("<i8").tobytes())
    return content.hexdigest()


def _resume(session: Session, task: TrainTask, folder: StateFolder | None, work: str) -> int:
    """Find the last step of which both computing parties have halves that belong together."""
    has_begun = folder is not None and folder.is_begun(work)
    mine = folder.attempts() if has_begun and folder is not None else {}
    flat = [number for pair in sorted(mine.items())[-KEEP:] for number in pair]
    facts = (int(has_begun), *flat, *(0,) * (2 * KEEP - len(flat)))
    session.publish("training", facts)
    said = {peer: session.learn(peer, "training", len(facts)) for peer in session.peers}
    said[session.me] = facts
    kept = [_pairs(said[name][1:]) for name in task.roles.computing]
    without = [name for name in session.parties if not said[name][0]]
    if without and any(kept):
        raise DisagreementError(
            without[0],
            "has no checkpoints of this job while others have; give it its folder back, or remove "
            "the folders of all parties to start anew",
        )
    common = kept[0] & kept[1]
    # Nobody takes a second checkpoint before the other has the first.
    if not common and all(len(one) == KEEP for one in kept):
        raise DisagreementError(
            task.roles.first if session.me == task.roles.second else task.roles.second,
            "has checkpoints of another start of this job; remove the folders of all parties to "
            "start anew",
        )
    if folder is not None and not has_begun:
        folder.begin(work)
    return max((step for step, _ in common), default=0)


def _pairs(numbers: tuple[int, ...]) -> set[tuple[int, int]]:
    """Read steps and attempts; a step of zero fills up."""
    return {pair for pair in zip(numbers[::2], numbers[1::2], strict=True) if pair[0] > 0}


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
        if self.task.give_to:
            plans.append(self.get("give", counted=False))
        return hashlib.sha256(b"".join(plan.digest() for plan in plans)).digest()


class _Worker:
    """One party's part in every run."""

    def __init__(
        self, session: Session, task: TrainTask, plans: Plans, inputs: Mapping[str, Tensor]
    ) -> None:
        self.progress = session.progress
        # Thousands of runs are one stage to whoever watches.
        self._session = replace(session, progress=Progress())
        self._task = task
        self._plans = plans
        self._inputs = inputs
        self._data: dict[str, Share] = {}
        self._halves: dict[str, Share] = {}
        self._attempt = 0
        self.shown: list[tuple[int, float, float]] = []

    @property
    def is_computing(self) -> bool:
        """Tell whether I hold halves."""
        return self._session.me in self._task.roles.computing

    def share(self) -> None:
        """Bring the data in."""
        plan, programs = self._plans.get("share"), self._plans.programs
        if not self.is_computing:
            serve(self._session, plan, inputs=self._inputs, is_agreed=True)
            return
        shares = compute(self._session, plan, programs.share, inputs=self._inputs, is_agreed=True)
        self._data = _numbers(shares)

    def begin(self, checkpoint: Checkpoint | None) -> None:
        """Start from the public initial weights, or from a checkpoint, with fresh halves."""
        number = self._session.begin_run()  # of another training of this session: other masks
        if not self.is_computing:
            return
        first, second = self._task.roles.computing
        is_first = self._session.me == first
        common = self._session.shared(second if is_first else first).fork(f"training {number}")
        self._attempt = int(common.words((1,))) & _LARGEST_ATTEMPT
        starts = {**self._task.model.initial, **initial_state(self._task)}
        bounds = state_bounds(self._task)
        for name, value in starts.items():
            bound = bounds.get(name, self._task.weight_bound)
            spec = Spec.of(shape=tuple(value.shape), frac_bits=self._task.frac_bits, bound=bound)
            words = ring.encode(value.double(), frac_bits=self._task.frac_bits)
            if not is_first:
                words = torch.zeros_like(words)
            if checkpoint is not None:
                words = checkpoint.halves[name]
            mask = common.words(spec.shape)
            self._halves[name] = Share(words + mask if is_first else words - mask, spec)
        if checkpoint is not None:
            self.shown = list(checkpoint.shown)

    def step(self, action: Action) -> None:
        """Take one step."""
        rate = self._task.rate_at(action.step)
        plan = self._plans.get("step", rate=rate)
        if not self.is_computing:
            serve(self._session, plan, inputs={}, is_agreed=True)
            return
        program = partial(self._plans.programs.step, rate=rate)
        kept = {**self._kept(action.rows), **self._dials(action.step)}
        changed = compute(self._session, plan, program, inputs={}, kept=kept, is_agreed=True)
        self._halves = _numbers(changed)

    def look(self, action: Action) -> None:
        """Open how it goes.

        Raises:
            RangeError: a weight has grown too large to go on.
        """
        plan = self._plans.get("watch")
        if not self.is_computing:
            opened = serve(self._session, plan, inputs={}, is_agreed=True)
            if opened:
                self._note(action.step, opened[0], opened[1])
            return
        loss, right, grown = compute(
            self._session,
            plan,
            self._plans.programs.watch,
            inputs={},
            kept=self._kept(action.rows),
            is_agreed=True,
        )
        self._note(action.step, loss, right)
        if grown is not None and bool(grown.any()):
            raise RangeError(
                f"after step {action.step} a weight is beyond half of its bound of "
                f"{self._task.weight_bound:g}; raise model.bound, lower the learning rate, or clip "
                "gradients"
            )

    def give(self) -> dict[str, Tensor]:
        """Open the weights to those who may have them."""
        plan, programs = self._plans.get("give"), self._plans.programs
        names = list(self._task.model.initial)
        if not self.is_computing:
            opened = serve(self._session, plan, inputs={}, is_agreed=True)
            return dict(zip(names, opened, strict=True)) if opened else {}
        given = compute(
            self._session, plan, programs.give, inputs={}, kept=self._halves, is_agreed=True
        )
        return {name: value for name, value in given.items() if value is not None}

    def checkpoint(self, step: int) -> Checkpoint:
        """Return what is needed to go on from here."""
        halves = {name: share.words for name, share in self._halves.items()}
        return Checkpoint(step=step, attempt=self._attempt, halves=halves, shown=tuple(self.shown))

    def weight_halves(self) -> dict[str, Tensor]:
        """Return my half of every weight."""
        names = self._task.model.initial
        return {name: self._halves[name].words for name in names if name in self._halves}

    def _kept(self, rows: np.ndarray) -> dict[str, Share]:
        """Return my halves of weights, memory and the rows of a batch."""
        chosen = torch.from_numpy(rows)
        batch = {
            name: Share(
                share.words.index_select(0, chosen),
                replace(share.spec, shape=(len(rows), *share.spec.shape[1:])),
            )
            for name, share in self._data.items()
        }
        return {**self._halves, **batch}

    def _dials(self, step: int) -> dict[str, Share]:
        """Return the public numbers of a step, which each party computes for itself."""
        optimiser, frac_bits = self._task.optimiser, self._task.frac_bits
        bounds = optimiser.dial_bounds()
        return {
            name: Share(
                torch.tensor(round(number * 2**frac_bits)),
                Spec.of(shape=(), frac_bits=frac_bits, bound=bounds[name]),
            )
            for name, number in optimiser.dials(step).items()
        }

    def _note(self, step: int, loss: Tensor | None, right: Tensor | None) -> None:
        if loss is not None and right is not None:
            self.shown.append((step, float(loss), float(right) / self._task.test_rows))


def _numbers(shares: Mapping[str, AnyShare]) -> dict[str, Share]:
    """Keep halves of numbers; a training has no others."""
    return {name: share for name, share in shares.items() if isinstance(share, Share)}
