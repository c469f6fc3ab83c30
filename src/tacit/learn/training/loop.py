"""The training itself: every party walks the same schedule of runs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import exp, isfinite, nan

import numpy as np
import torch
from torch import Tensor

from tacit import ring
from tacit.errors import DataError, RangeError
from tacit.learn.training.checkpoint import Checkpoint, StateFolder
from tacit.learn.training.clipping import shorten_rows, square_norms
from tacit.learn.training.holder import answers_of
from tacit.learn.training.makers import NoisePlan, draw_noise
from tacit.learn.training.privacy import PrivacyPlan
from tacit.learn.training.programs import initial_state, noise_name, state_bounds
from tacit.learn.training.resume import hash_work, resume
from tacit.learn.training.schedule import Action, Plans, actions
from tacit.learn.training.spending import Book
from tacit.learn.training.start import enter_starts, start_name, train_alone
from tacit.learn.training.task import TrainTask
from tacit.mpc import Plan, Share, compute, serve
from tacit.mpc.run import Given
from tacit.mpc.share import AnyShare, Spec
from tacit.party import Progress, Session

_LARGEST_ATTEMPT = (1 << 62) - 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Trained:
    """What a party has in the end.

    Attributes:
        shares: my share of every weight; empty for a party that does not compute.
        weights: the weights themselves, for those they were given to.
        shown: step, mean loss and share of right answers at every look, for those it is shown to.
        runs: the plans as they were run, and how often in a row.
        resumed_at: the step at which an earlier run was taken up; 0 for a fresh start.
        cap: where hidden values and gradients saturated; None for nowhere.
        scores: of the rows kept for measuring, in their order, for those they are opened to.
        near_at: the step after which weights were first near their bound; 0 for never, and for
            a party that does not compute.
        privacy: the noise and the claim of a private training.
    """

    shares: Mapping[str, Tensor]
    weights: Mapping[str, Tensor]
    shown: tuple[tuple[int, float, float], ...]
    runs: tuple[tuple[Plan, int], ...]
    resumed_at: int
    cap: float | None = None
    scores: Tensor | None = None
    near_at: int = 0
    privacy: PrivacyPlan | None = None


def train(
    session: Session,
    task: TrainTask,
    *,
    rows: Tensor | None = None,
    labels: Tensor | None = None,
    folder: StateFolder | None = None,
    is_fresh: bool = False,
    book: Book | None = None,
) -> Trained:
    """Train as one of the parties.

    Args:
        session: my end of the job.
        task: what everyone does.
        rows: my rows or columns, if I own any.
        labels: my labels, one-hot or a column of 0 and 1, if I own any.
        folder: where my checkpoints go; all parties have one, or none has. A training goes on
            from them with the same task; only ``weight_bound`` may have been raised.
        is_fresh: discard the checkpoints there, once it is known that all parties do.
        book: where I count what private trainings spend on my rows; asked before one is shared.

    Guarantee: that of the protocol; beyond it, what `Programs` opens: at every look the loss and
        the number of right answers to ``task.show_to`` and two bits to both computing parties.
        A training that is taken up again has fresh masks and fresh shares of the same weights; the
        looks after its last checkpoint are opened again.

    Raises:
        RangeError: a weight is beyond half of its bound; what was kept before stays.
    """
    plans = task.planned(Plans.made)
    task = plans.task
    session.agree("plans", plans.digest())
    if plans.privacy is not None:
        session.progress.tell(plans.privacy.sentence(), 0, task.epochs)
    inputs = {f"labels of {session.me}": labels, **_rows_of(session.me, task, rows)}
    mine = {name: value for name, value in inputs.items() if value is not None and value.numel()}
    start = resume(session, task, folder, is_fresh=is_fresh, plans=plans, mine=mine)
    noise = ring.Prg.from_os()
    if folder is not None and task.privacy is not None:
        noise = folder.noise(is_new=not start).fork(hash_work(task, plans, mine))
    if book is not None and task.privacy is not None and plans.privacy is not None:
        book.enter(noise.fork("book").bytes(16), task.privacy, plans.privacy)
    worker = _Worker(session, task, plans, mine, noise)
    worker.share()
    checkpoint = None
    if start and worker.is_computing and folder is not None:
        checkpoint = folder.load(start)
    worker.begin(checkpoint)
    if plans.has_starts and not start:
        worker.start(mine)
    _walk(worker, task, start, folder)
    if task.privacy is not None and folder is not None and worker.is_computing:
        folder.note_opening(task.epochs * task.steps_per_epoch)
    scores = worker.score() if task.score_to else None
    weights = worker.give() if task.give_to else {}
    return Trained(
        shares=worker.weight_shares(),
        weights=weights,
        shown=tuple(worker.shown),
        runs=tuple(plans.runs),
        resumed_at=start,
        cap=task.cap,
        scores=scores,
        near_at=worker.near_at,
        privacy=plans.privacy,
    )


def _rows_of(me: str, task: TrainTask, rows: Tensor | None) -> dict[str, Tensor | None]:
    """Return my rows as they are shared: with privacy, of norm 1 at most, and with their norms."""
    if task.privacy is None or rows is None:
        return {f"rows of {me}": rows}
    short = shorten_rows(rows, frac_bits=task.frac_bits)
    if not bool(short.flatten(1).any(dim=1).all()):
        raise DataError("a row of yours is all zeros: nothing can be learned from it; leave it out")
    norms = square_norms(short, frac_bits=task.frac_bits)
    return {f"rows of {me}": short, f"norms of {me}": norms}


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
            if task.privacy is not None and folder is not None and worker.is_computing:
                # Kept before it is looked at: whoever goes on from here does not look again.
                folder.save(worker.checkpoint(action.step))
                if task.looks:
                    folder.note_opening(action.step)
            is_beyond = worker.look(action) if task.looks else False
            if worker.shown and worker.shown[-1][0] == action.step:
                step, loss, right = worker.shown[-1]
                text = f"step {step}: " + (isfinite(loss) * f"loss {loss:.3f}, ")
                text += f"accuracy {100 * right:.1f} %"
                if task.model.tokens and isfinite(loss):
                    text += f", perplexity {exp(loss):.2f}"
                worker.progress.tell(text, step, total)
            if is_beyond:
                raise RangeError(_explain_beyond(task, action.step, folder))
            if task.privacy is None and folder is not None and worker.is_computing:
                folder.save(worker.checkpoint(action.step))


def _explain_beyond(task: TrainTask, step: int, folder: StateFolder | None) -> str:
    """Say what to do about weights that have grown.

    What was computed since the last look may be wrong already, so it is not kept.
    """
    kept = max(folder.steps(), default=0) if folder is not None else 0
    on = f"goes on from the checkpoint after step {kept}" if kept else "starts from its beginning"
    return (
        f"after step {step} a weight is beyond half of its bound of {task.weight_bound:g}; raise "
        f"model.bound (weight_bound) for all parties and start again: it {on}; or lower the rate "
        "or clip gradients, and start all parties with --fresh"
    )


class _Worker:
    """One party's part in every run."""

    def __init__(
        self,
        session: Session,
        task: TrainTask,
        plans: Plans,
        inputs: Mapping[str, Tensor],
        noise: ring.Prg,
    ) -> None:
        self._prg = noise
        self.progress = session.progress
        # Thousands of runs are one stage to whoever watches.
        self._session = replace(session, progress=Progress())
        self._task = task
        self._plans = plans
        self._inputs = inputs
        self._labels = inputs.get(f"labels of {session.me}")
        self._data: dict[str, Share] = {}
        self._batches: dict[str, dict[str, Share]] = {}
        self._shares: dict[str, Share] = {}
        self._attempt = 0
        self.near_at = 0
        self.shown: list[tuple[int, float, float]] = []

    @property
    def is_computing(self) -> bool:
        """Tell whether I hold shares."""
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
        """Start from the public initial weights, or from a checkpoint, with fresh shares."""
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
                words = checkpoint.shares[name]
            mask = common.words(spec.shape)
            self._shares[name] = Share(words + mask if is_first else words - mask, spec)
        if checkpoint is not None:
            self.shown = list(checkpoint.shown)

    def start(self, mine: Mapping[str, Tensor]) -> None:
        """Train alone, if I have rows, and begin with what all owners' models make."""
        plan, privacy, me = self._plans.get("start"), self._plans.privacy, self._session.me
        assert privacy is not None  # noqa: S101 - of a private task
        inputs = self._noise("choice", 0, privacy.choice)
        if f"rows of {me}" in mine:
            rows, labels = mine[f"rows of {me}"], mine[f"labels of {me}"]
            inputs[start_name(me)] = train_alone(
                self._task, privacy.steps, me, rows, labels, prg=self._prg
            )
        if not self.is_computing:
            serve(self._session, plan, inputs=inputs, is_agreed=True)
            return
        program = partial(enter_starts, task=self._task, choice=privacy.choice)
        kept = self._kept(next(self._task.batches(0)))
        found = compute(self._session, plan, program, inputs=inputs, kept=kept, is_agreed=True)
        self._shares |= _numbers(found)

    def step(self, action: Action) -> None:
        """Take one step."""
        rate = self._task.rate_at(action.step)
        plan, cache = self._plans.get("step", rate=rate), self._plans.cache
        is_agreed = self._plans.was_agreed(plan)
        privacy = self._plans.privacy
        inputs: dict[str, Given] = {
            **self._noise("step", action.step, None if privacy is None else privacy.steps),
            **answers_of(self._task, self._session.me, self._labels, action.rows),
        }
        if not self.is_computing:
            serve(self._session, plan, inputs=inputs, cache=cache, is_agreed=is_agreed)
            return
        program = partial(self._plans.programs.step, rate=rate)
        kept = {**self._kept(action.rows), **self._dials(action.step)}
        changed = compute(
            self._session,
            plan,
            program,
            inputs=inputs,
            kept=kept,
            cache=cache,
            is_agreed=is_agreed,
        )
        self._shares = _numbers(changed)

    def look(self, action: Action) -> bool:
        """Open how it goes, and tell whether a weight has grown too large to go on."""
        plan, privacy = self._plans.get("watch"), self._plans.privacy
        noise = None if privacy is None else privacy.looks
        inputs: dict[str, Given] = {
            **self._noise("look", action.step, noise),
            **answers_of(self._task, self._session.me, self._labels, action.rows),
        }
        if not self.is_computing:
            opened = serve(self._session, plan, inputs=inputs, is_agreed=True)
            if opened and self._session.me in self._task.show_to:
                # Hidden states of my own rows come first, where there are such.
                seen = [one for one in opened if one.numel() == 1]
                loss, right = (None, *seen) if noise is not None else seen[:2]
                self._note(action.step, loss, right)
            return False
        loss, right, alarms = compute(
            self._session,
            plan,
            self._plans.programs.watch,
            inputs=inputs,
            kept=self._kept(action.rows, kind="held-out "),
            is_agreed=True,
        )
        self._note(action.step, loss, right)
        is_near, is_beyond = (False, False) if alarms is None else map(bool, alarms.tolist())
        if is_near and not is_beyond and not self.near_at:
            self.near_at = action.step
            self.progress.tell(
                f"step {action.step}: weights near half of their bound of "
                f"{self._task.weight_bound:g}, where the training stops; it can go on with a "
                "larger model.bound",
                action.step,
                self._task.epochs * self._task.steps_per_epoch,
            )
        return is_beyond

    def score(self) -> Tensor | None:
        """Open the scores of the rows kept for measuring to those who may have them."""
        plan, programs = self._plans.get("score"), self._plans.programs
        if not self.is_computing:
            opened = serve(self._session, plan, inputs={}, is_agreed=True)
            return opened[0] if opened else None
        kept = self._kept(self._task.test_indices(), kind="held-out ")
        (scores,) = compute(
            self._session, plan, programs.score, inputs={}, kept=kept, is_agreed=True
        )
        return scores

    def give(self) -> dict[str, Tensor]:
        """Open the weights to those who may have them."""
        plan, programs = self._plans.get("give"), self._plans.programs
        names = list(self._task.model.initial)
        if not self.is_computing:
            opened = serve(self._session, plan, inputs={}, is_agreed=True)
            return dict(zip(names, opened, strict=True)) if opened else {}
        given = compute(
            self._session, plan, programs.give, inputs={}, kept=self._shares, is_agreed=True
        )
        return {name: value for name, value in given.items() if value is not None}

    def checkpoint(self, step: int) -> Checkpoint:
        """Return what is needed to go on from here."""
        shares = {name: share.words for name, share in self._shares.items()}
        return Checkpoint(step=step, attempt=self._attempt, shares=shares, shown=tuple(self.shown))

    def weight_shares(self) -> dict[str, Tensor]:
        """Return my share of every weight; of one that is public, all of it or zero.

        So the model can be served from shares. A public number beyond the bound is left out: then
        whoever serves the shares misses it, and says so.
        """
        if not self.is_computing:
            return {}
        task, is_first = self._task, self._session.me == self._task.roles.first
        found = {name: self._shares[name].words for name in task.model.initial}
        for name, value in task.model.imported.public.items():
            if float(value.abs().max()) <= task.weight_bound:
                words = ring.encode(value, frac_bits=task.frac_bits)
                found[name] = words if is_first else torch.zeros_like(words)
        return found

    def _kept(self, rows: np.ndarray, *, kind: str = "") -> dict[str, Share]:
        """Return my shares of weights, memory and the rows of a batch."""
        if self._task.privacy is None:
            return {**self._shares, **self._chosen(rows, kind)}
        if kind not in self._batches:  # every step has the same rows
            self._batches[kind] = self._chosen(rows, kind)
        return {**self._shares, **self._batches[kind]}

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
        return {noise_name(me): draw_noise(plan, self._prg.fork(f"{what} {step}"))}

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
        if right is not None:
            seen = nan if loss is None else float(loss)
            self.shown.append((step, seen, float(right) / self._task.answers))


def _numbers(shares: Mapping[str, AnyShare]) -> dict[str, Share]:
    """Keep shares of numbers; a training has no others."""
    return {name: share for name, share in shares.items() if isinstance(share, Share)}
