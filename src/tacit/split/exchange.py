"""What the parties of a split model say to each other: who has what, then packed bytes."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from tacit import ring
from tacit.errors import DisagreementError, FrameError, LinkError
from tacit.party import Fact, Session
from tacit.result import Leak
from tacit.ring import KEY_BYTES, Prg
from tacit.split.spec import SplitSpec

NO_STEP = -1
PART = Fact(
    tag="split",
    count=4,
    what="the rows, the width of the cut layer, the compression and the place of the cut of "
    "{owner}",
    why="needed to work together",
)
CHECKPOINTS = Fact(
    tag="checkpoints",
    count=2,
    what="after which steps {owner} has checkpoints",
    why="needed to go on where all can",
)
QUESTION = Fact(
    tag="serve/rows",
    count=2,
    what="how many rows {owner} asks about, and how many at once",
    why="answers are packed by it",
)
_ORDER = Fact(tag="order", count=2, what="")
"""Public coins."""
_NAMES = 64
"""Steps after which the names of parts begin again."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Returned:
    """One message with gradients, beside the values that it answers: for an audit of what it tells.

    Attributes:
        step: number of the batch.
        share: of the batch that is in this message; below 1 with micro-batches.
        rows: which rows it is about.
        cut: (rows, width) their values as they arrived at the label owner.
        gradient: (rows, width) as the feature owner unpacks it.
    """

    step: int
    share: float
    rows: Tensor
    cut: Tensor
    gradient: Tensor


OnReturned = Callable[[str, Returned], None]
"""Is shown every message with gradients, and to whom it goes."""


def introduce(session: Session, spec: SplitSpec, *, rows: int, width: int) -> dict[str, int]:
    """Tell everyone our numbers, hear theirs, and stop with words where they do not fit.

    Args:
        session: our end.
        spec: what we believe the job to be.
        rows: how many rows we hold.
        width: of our cut layer; for the label owner, 0.

    Returns:
        The width of every feature owner's cut layer.
    """
    layer = int.from_bytes(hashlib.sha256(spec.model.cut.encode()).digest()[:4], "little")
    mine = (rows, width, spec.split.compress.k or 0, layer)
    session.publish(PART, mine)
    widths = {session.me: width} if session.me in spec.feature_owners else {}
    for peer in session.peers:
        theirs = session.learn(peer, PART)
        _compare(peer, spec, mine, theirs)
        if peer in spec.feature_owners:
            widths[peer] = theirs[1]
    session.agree("split task", spec.digest())
    return {owner: widths[owner] for owner in spec.feature_owners}


def share_order(session: Session, spec: SplitSpec, key: bytes | None) -> Prg:
    """Return the generator of the order of rows, which the label owner chooses for all."""
    if session.me == spec.label_owner:
        if key is None:
            raise ValueError("the label owner chooses the order")
        first, second = (int.from_bytes(part, "little", signed=True) for part in (key[:8], key[8:]))
        session.publish(_ORDER, (first, second))
        return Prg(key)
    words = session.learn(spec.label_owner, _ORDER)
    return Prg(b"".join(word.to_bytes(KEY_BYTES // 2, "little", signed=True) for word in words))


def common_step(session: Session, mine: Iterable[int]) -> int:
    """Return the latest step that every party has a checkpoint of, or 0."""
    latest = sorted(mine, reverse=True)[:2]
    padded = (*latest, NO_STEP, NO_STEP)[:2]
    session.publish(CHECKPOINTS, padded)
    shared = set(padded)
    for peer in session.peers:
        shared &= set(session.learn(peer, CHECKPOINTS))
    return max(shared - {NO_STEP}, default=0)


def cut_leak(label_owner: str, owner: str, when: str, elements: int) -> Leak:
    """Say for the ledger that the label owner sees an owner's cut layer."""
    return Leak(
        to=label_owner,
        what=f"values of the cut layer of {owner}, while {when}",
        why="split learning sends them in the clear",
        kind="protocol",
        elements=elements,
    )


def gradient_leak(spec: SplitSpec, owner: str, elements: int) -> Leak:
    """Say for the ledger that an owner sees gradients."""
    what = f"gradients at the cut layer of {owner}"
    return Leak(to=owner, what=what, why=spec.why_gradients, kind="protocol", elements=elements)


def classes_leak(owner: str, elements: int) -> Leak:
    """Say for the ledger that an owner sees what it asked for."""
    why = "the declared result of the job"
    return Leak(to=owner, what="predicted classes", why=why, kind="output", elements=elements)


def name_part(step: int, number: int) -> str:
    """Name a micro-batch in tags, by its step and its number in it.

    A link remembers the heads of a few thousand tags, and frames of a channel cannot be lost or
    change places: names may come again after a while.
    """
    return f"{step % _NAMES}.{number}"


def send_bytes(session: Session, to: str, tag: str, data: Tensor) -> None:
    """Send packed bytes."""
    session.send(to, tag, data.contiguous())


def receive_bytes(
    session: Session, sender: str, tag: str, *, size: int | None, most: int
) -> Tensor:
    """Receive packed bytes: exactly `size`, or, where that depends on the values, up to `most`."""
    if size is not None:
        return session.recv(sender, tag, (size,), dtype=torch.uint8)
    frame = session.links[sender].recv(tag)
    if frame.dtype != "u8" or len(frame.shape) != 1 or prod(frame.shape) > most:
        raise FrameError(
            sender, f"{tag}: wanted u8 of up to {most}, got {frame.dtype}{frame.shape}"
        )
    return ring.from_bytes(frame.data, frame.dtype, frame.shape)


def refuse(sender: str, tag: str, error: Exception) -> LinkError:
    """Say that what a peer sent cannot be read; what it means is the peer's own business."""
    return FrameError(sender, f"{tag}: {error}")


def _compare(peer: str, spec: SplitSpec, mine: tuple[int, ...], theirs: tuple[int, ...]) -> None:
    rows, width, k, layer = theirs
    if rows != mine[0]:
        raise DisagreementError(
            peer, f"has {rows} rows, we have {mine[0]}; the same rows in the same order are needed"
        )
    if layer != mine[3]:
        raise DisagreementError(peer, f"cuts the model at another layer than {spec.model.cut!r}")
    if k != mine[2]:
        raise DisagreementError(
            peer, f"keeps k = {k} values of the cut layer, we keep {mine[2]}; 0 means all"
        )
    if (peer in spec.feature_owners) != (width > 0):
        raise DisagreementError(peer, f"announced a cut layer of {width} values for its role")
