"""Taking a training up again: what must be the same, what may differ, and where it goes on."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from tacit import __version__
from tacit.errors import DisagreementError, InputError
from tacit.party import Fact, Session
from tacit.training.checkpoint import StateFolder
from tacit.training.schedule import TrainingWalk, actions
from tacit.vault import KEPT

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
