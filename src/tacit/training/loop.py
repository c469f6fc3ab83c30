"""The training itself: every party walks the same schedule of runs."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp, isfinite
from pathlib import Path

from torch import Tensor

from tacit import ring
from tacit.dp import Book
from tacit.dp.book import as_drawn, open_book
from tacit.errors import ConfigError, DataError, RangeError
from tacit.mpc import Plan
from tacit.party import Progress, Session
from tacit.training.checkpoint import StateFolder
from tacit.training.clipping import shorten_rows, square_norms
from tacit.training.plan import TrainPlan
from tacit.training.privacy import PrivacyPlan
from tacit.training.resume import hash_work, resume
from tacit.training.schedule import TrainingWalk, actions
from tacit.training.spec import TrainSpec
from tacit.training.worker import TrainingWorker


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
