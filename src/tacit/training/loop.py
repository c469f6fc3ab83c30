"""The training itself: every party walks the same schedule of runs, from its start or a checkpoint.

At the end the same in the clear: the same start, the same batches, the same steps.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, isfinite
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tacit import __version__, ring
from tacit.dp import Book
from tacit.dp.book import as_drawn, open_book
from tacit.errors import ConfigError, DataError, DisagreementError, InputError, RangeError
from tacit.mpc import Plan
from tacit.party import Fact, Progress, Session
from tacit.ring import Prg
from tacit.training.checkpoint import StateFolder
from tacit.training.gradients import measure, plan_noise, private_step, shorten_rows, square_norms
from tacit.training.noise import draw_rows, draw_whole
from tacit.training.ops import PlainStepOps
from tacit.training.plan import TrainPlan
from tacit.training.privacy import PrivacyPlan
from tacit.training.programs import initial_state, start_in_clear, train_step
from tacit.training.schedule import TrainingWalk, TrainingWorker, actions
from tacit.training.spec import TrainSpec
from tacit.vault import KEPT


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
        saturated: at the last look, the step, and how many of how many hidden values and gradients
            of held-out rows were cut off, for those it is shown to; None where none could be.
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
    saturated: tuple[int, int, int] | None = None
    privacy: PrivacyPlan | None = None


def train(
    session: Session,
    task: TrainPlan,
    *,
    rows: Tensor | None = None,
    labels: Tensor | None = None,
    folder: StateFolder | None = None,
    is_fresh: bool = False,
    book: Book | Path | None = None,
) -> Trained:
    """Train as one of the parties.

    Args:
        session: my end of the job.
        task: what everyone does.
        rows: my rows or columns, if I own any.
        labels: my labels, one-hot or a column of 0 and 1, if I own any.
        folder: where my checkpoints go; all parties have one, or none has. A training goes on
            from them with the same task; only ``model.bound`` may have been raised.
        is_fresh: discard the checkpoints there, once it is known that all parties do.
        book: where I count what private trainings spend on my rows, a book or its file; asked
            before one is shared.

    Guarantee: that of the protocol; beyond it, what `Programs` opens: at every look the loss and
        the number of right answers to ``show_to`` and two bits to both computing parties.
        A training that is taken up again has fresh masks and fresh shares of the same weights; the
        looks after its last checkpoint are opened again.

    Raises:
        ConfigError: my book has no room for this training.
        RangeError: a weight is beyond half of its bound; what was kept before stays.
    """
    book = None if book is None else open_book(book)
    if book is not None and task.spec.privacy is None:
        raise ConfigError(
            f"{book.path}: a training without [privacy] spends without a bound, and "
            f"{book.most:g} is allowed; nothing was shared"
        )
    # Thousands of runs are one stage to whoever watches.
    quiet = replace(session, progress=Progress())
    walk = task.planned(lambda one: TrainingWalk(one, quiet))
    task = walk.task
    walk.walker.agree()
    if walk.privacy is not None:
        session.progress.tell(walk.privacy.sentence(), 0, task.spec.training.epochs)
    inputs = {f"labels of {session.me}": labels, f"rows of {session.me}": rows}
    if task.spec.privacy is not None and rows is not None:
        inputs |= _bounded_rows(session.me, rows, frac_bits=task.frac_bits)
    mine = {name: value for name, value in inputs.items() if value is not None and value.numel()}
    start, goes_on = resume(session, folder, is_fresh=is_fresh, walk=walk, mine=mine)
    noise = ring.Prg.from_os()
    if folder is not None and task.spec.privacy is not None:
        noise = folder.noise(is_new=not goes_on).fork(hash_work(walk, mine))
    if book is not None and task.spec.privacy is not None and walk.privacy is not None:
        name = hashlib.sha256(b"book\n" + noise.fork("book").bytes(16)).hexdigest()
        events = as_drawn(walk.privacy.events)
        book.enter(name, events, task.spec.privacy.delta, kind="train")
    worker = TrainingWorker(walk, mine, noise, session.progress)
    worker.share()
    checkpoint = None
    if start and worker.is_computing and folder is not None:
        checkpoint = folder.load(start)
    worker.begin(checkpoint, folder)
    if walk.has_starts and not start:
        worker.start(mine)
    _walk(worker, task, start, folder)
    if task.spec.privacy is not None and folder is not None and worker.is_computing:
        folder.note_opening(task.steps)
    scores = worker.score() if task.spec.protocol.score_to else None
    weights = worker.give() if task.spec.protocol.give_to else {}
    return Trained(
        shares=worker.weight_shares(),
        weights=weights,
        shown=tuple(worker.shown),
        runs=tuple(walk.walker.runs),
        resumed_at=start,
        cap=task.cap,
        scores=scores,
        near_at=worker.near_at,
        saturated=worker.saturated,
        privacy=walk.privacy,
    )


def _bounded_rows(me: str, rows: Tensor, *, frac_bits: int) -> dict[str, Tensor | None]:
    """Return my rows as a private training shares them: of norm 1 at most, and with their norms."""
    short = shorten_rows(rows, frac_bits=frac_bits)
    if not bool(short.flatten(1).any(dim=1).all()):
        raise DataError("a row of yours is all zeros: nothing can be learned from it; leave it out")
    norms = square_norms(short, frac_bits=frac_bits)
    return {f"rows of {me}": short, f"norms of {me}": norms}


def _walk(worker: TrainingWorker, task: TrainPlan, start: int, folder: StateFolder | None) -> None:
    """Take all steps and looks after a step, and keep what is needed to go on from there."""
    total = task.steps
    kept = folder if worker.is_computing else None
    with worker.progress.stage("train", total) as advance:
        for action in actions(task):
            if action.step <= start:
                continue
            if not action.is_look:
                worker.step(action)
                advance(action.step)
                continue
            if task.spec.privacy is not None:
                # Kept before it is looked at: whoever goes on from here does not look again, under
                # the noise of the first time and perhaps at other weights.
                if kept is not None:
                    kept.save(worker.checkpoint(action.step))
                elif folder is not None:
                    folder.note_opening(action.step)  # others may open once I have waited
                worker.wait(action.step)
                if kept is not None and task.looks:
                    kept.note_opening(action.step)
            is_beyond = worker.look(action) if task.looks else False
            _tell(worker, task, action.step, total)
            if is_beyond:
                raise RangeError(_explain_beyond(task, action.step, folder))
            if task.spec.privacy is None and kept is not None:
                kept.save(worker.checkpoint(action.step))


def book_of(spec: TrainSpec, me: str) -> Book | None:
    """Return where an owner counts what private trainings spend on its rows."""
    owner = spec.data.owners.get(me)
    if owner is None or owner.book is None or owner.most_epsilon is None:
        return None
    return Book(owner.book, owner.most_epsilon)


def _tell(worker: TrainingWorker, task: TrainPlan, at: int, total: int) -> None:
    """Say how it goes, where I was shown it."""
    if not worker.shown or worker.shown[-1][0] != at:
        return
    step, loss, right = worker.shown[-1]
    text = f"step {step}: " + (isfinite(loss) * f"loss {loss:.3f}, ")
    text += f"accuracy {100 * right:.1f} %"
    if task.model.tokens and isfinite(loss):
        text += f", perplexity {exp(loss):.2f}"
    if worker.saturated is not None:
        text += f", saturated {100 * worker.saturated[1] / worker.saturated[2]:.2g} %"
    worker.progress.tell(text, step, total)


def _explain_beyond(task: TrainPlan, step: int, folder: StateFolder | None) -> str:
    """Say what to do about weights that have grown.

    What was computed since the last look may be wrong already, so it is not kept.
    """
    kept = max(folder.steps(), default=0) if folder is not None else 0
    on = f"goes on from the checkpoint after step {kept}" if kept else "starts from its beginning"
    return (
        f"after step {step} a weight is beyond half of its bound of {task.spec.weight_bound:g}; "
        f"raise model.bound for all parties and start again: it {on}; or lower the rate "
        "or clip gradients, and start all parties with --fresh"
    )


BEGUN = Fact(
    tag="training",
    count=1 + 2 * KEPT,
    what="whether {owner} has begun this before, and after which steps it has checkpoints",
    why="needed to go on where all can",
)


def resume(
    session: Session,
    folder: StateFolder | None,
    *,
    is_fresh: bool,
    walk: TrainingWalk,
    mine: Mapping[str, Tensor],
) -> tuple[int, bool]:
    """Find the last step of which both computing parties have shares that belong together.

    Also tell whether my noise goes on: after a step, or from the beginning if this very training
    was begun here and nothing of it was opened. Noise under which something was opened is used
    again for the same steps alone.
    """
    task = walk.task
    has_begun = folder is not None and not is_fresh and _has_begun(walk, folder, mine)
    attempts = folder.attempts() if has_begun and folder is not None else {}
    start = agree_on_start(session, task.spec.roles.computing, attempts, has_begun=has_begun)
    opened = folder.opened() if has_begun and folder is not None else 0
    if opened > start and session.me in task.spec.roles.computing:
        raise InputError(
            f"something of this training was opened after step {opened}, but it could go "
            f"on from step {start} alone: to open it again would tell more than was promised; give "
            "both computing parties their folders back, or start all parties with --fresh, which "
            "is another training and spends its ε anew"
        )
    if folder is not None:
        before, total = folder.bound(), task.steps
        if is_fresh:
            folder.remove()
        folder.begin(hash_work(walk, mine), bound=task.spec.weight_bound)
        if start:
            text = f"resumed at step {start} of {total}"
            if before is not None and before != task.spec.weight_bound:
                bound = task.spec.weight_bound
                text += f", weights may grow to {bound:g} now, before to {before:g}"
            session.progress.tell(text, start, total)
    return start, bool(start) or (has_begun and not opened)


def agree_on_start(
    session: Session,
    computing: Sequence[str],
    attempts: Mapping[int, int],
    *,
    has_begun: bool,
) -> int:
    """Return the last step of which all who keep checkpoints have those that belong together.

    Args:
        session: my end of the job; every party calls this.
        computing: who keeps them.
        attempts: the steps after which I have a checkpoint, and the start that wrote each.
        has_begun: whether this very work was begun here.
    """
    flat = [number for pair in sorted(attempts.items())[-KEPT:] for number in pair]
    facts = (int(has_begun), *flat, *(0,) * (2 * KEPT - len(flat)))
    session.publish(BEGUN, facts)
    said = {peer: session.learn(peer, BEGUN) for peer in session.peers}
    said[session.me] = facts
    kept = []
    for name in computing:
        told = said[name][1:]  # steps and attempts; a step of zero fills up
        kept.append({pair for pair in zip(told[::2], told[1::2], strict=True) if pair[0] > 0})
    without = [name for name in session.parties if not said[name][0]]
    if without and any(kept):
        raise DisagreementError(
            without[0],
            "has no checkpoints of this training while others have: its folder is gone, its data "
            "are others, or it starts afresh; start all parties with --fresh, or give its folder "
            "back",
        )
    common = set.intersection(*kept)
    # Nobody takes a second checkpoint before the other has the first.
    if not common and all(len(one) == KEPT for one in kept):
        raise DisagreementError(
            next(name for name in computing if name != session.me),
            "has checkpoints of another start of this job; start all parties with --fresh",
        )
    return max((step for step, _ in common), default=0)


def hash_work(walk: TrainingWalk, mine: Mapping[str, Tensor]) -> str:
    """Hash all that decides what is trained: shares of one training are of no use to another."""
    task, privacy = walk.task, walk.privacy
    content = hashlib.sha256(f"tacit training {__version__}\n".encode() + walk.walker.digest())
    if task.head is not None:
        content.update(task.head.detach().double().contiguous().numpy().tobytes())
    if privacy is not None:
        content.update(repr((privacy.steps, privacy.looks)).encode())
    for name, value in {**task.model.initial, **mine}.items():
        content.update(f"\n{name} {tuple(value.shape)}\n".encode())
        content.update(value.detach().double().contiguous().numpy().tobytes())
    for action in actions(task):
        content.update(action.rows.astype("<i8").tobytes())
    return content.hexdigest()


def _has_begun(walk: TrainingWalk, folder: StateFolder, mine: Mapping[str, Tensor]) -> bool:
    """Tell whether this very training was begun here, if perhaps with a smaller bound.

    Bounds are in every plan, so work of another bound is recognised by the plans of that bound.
    All parties agree on the plans of the new one before anything else, whatever they began with.
    """
    task, bound = walk.task, folder.bound()
    if bound is None:
        return False
    if bound > task.spec.weight_bound and folder.steps():
        raise InputError(
            f"{folder.path} holds weights of up to {bound:g}: model.bound can be raised, not "
            f"lowered to {task.spec.weight_bound:g}; start all parties with --fresh to discard them"
        )
    if bound == task.spec.weight_bound:
        return folder.is_begun(hash_work(walk, mine))
    before = TrainingWalk(replace(task, spec=task.spec.with_bound(bound)))
    return folder.is_begun(hash_work(before, mine))


Weights = dict[str, Tensor]


def train_plain(task: TrainPlan, rows: Tensor, labels: Tensor) -> list[tuple[int, float, float]]:
    """Train in floating point, and return step, loss and accuracy at every look."""
    return walk_plain(task, rows, labels)[1]


def walk_plain(
    task: TrainPlan,
    rows: Tensor,
    labels: Tensor,
    *,
    noise: Iterator[Tensor] | None = None,
    drawn: Iterator[np.ndarray] | None = None,
) -> tuple[Weights, list[tuple[int, float, float]]]:
    """Train in floating point: the weights, and step, loss and accuracy at every look.

    Guarantee: none; whoever calls this holds all rows and the noise.

    Args:
        task: what is trained; with privacy, clipped alike and with noise of the same distribution.
        rows: of all owners, one after the other.
        labels: of these rows.
        noise: the whole noise of every step, where it is given.
        drawn: which of the rows to train on are in every step, where they are sampled.
    """
    weights = {name: value.double() for name, value in task.model.initial.items()}
    state = {name: value.double() for name, value in initial_state(task).items()}
    privacy, norms = plan_noise(task), torch.zeros(0)
    if privacy is not None:
        rows = shorten_rows(rows, frac_bits=task.frac_bits)
        norms = square_norms(rows, frac_bits=task.frac_bits)
        if task.spec.privacy is not None and task.spec.privacy.start != "public":
            weights = start_in_clear(task, privacy, rows, labels)
    shown = []
    for action in actions(task):
        x, y = rows[action.rows], labels[action.rows]
        ops = PlainStepOps(task.spec.training.dials(action.step))
        if action.is_look:
            if task.test_rows:
                loss, right = measure(ops, task, task.model(ops, weights, x), y)
                shown.append((action.step, float(loss), float(right) / task.answers))
            continue
        rate = task.rate_at(action.step)
        if privacy is None:
            weights, state = train_step(ops, task, weights, state, x, y, rate=rate)
            continue
        words = next(noise) if noise else draw_whole(privacy.steps)
        near = norms[action.rows]
        if task.spec.is_sampled:
            some = next(drawn) if drawn else draw_rows(Prg.from_os(), task.batch, len(x))
            x, y, near = x[some], y[some], near[some]
        weights, state = private_step(
            ops, task, weights, state, x, y, norms=near, noise=words, rate=rate
        )
    return weights, shown
