"""Predictions from a split model, and a party's whole part: train, then ask or answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from tacit.errors import DataError, DisagreementError, FrameError
from tacit.party import Session
from tacit.ring import Prg
from tacit.split.bottom import BottomTrainer
from tacit.split.codec import Codec
from tacit.split.defend import blur_activations
from tacit.split.exchange import QUESTION, OnReturned, classes_leak, cut_leak, send_bytes
from tacit.split.packing import bits_below, pack_numbers, packed_bytes, unpack_numbers
from tacit.split.rows import Divided
from tacit.split.spec import SplitSpec
from tacit.split.top import OwnFeatures, TopTrainer, receive_cut

LARGEST_QUESTION = 1 << 24
ANSWERS_AHEAD = 8
"""Batches that are asked about before the first answer is awaited."""
SERVE_ROWS = 256
"""Rows of a question that travel in one message, where parties of a job ask."""
HEAD_BYTES = 16
"""What announces a question: two numbers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Answered:
    """What the label owner has after one question: the cut layer that it saw, and the logits."""

    cut: Tensor
    logits: Tensor


def ask(
    session: Session,
    spec: SplitSpec,
    codec: Codec,
    bottom: nn.Module,
    features: Tensor,
    *,
    batch: int = SERVE_ROWS,
) -> Tensor:
    """Return the class of every row; several feature owners ask about the same rows at once.

    Up to eight batches are under way, so that the line's delay is paid once and not per batch.

    Guarantee: none: the label owner sees what the compressor keeps of the cut layer.
    Cost: `Codec.forward_bytes` per batch out, ⌈log2 classes⌉ bits per row in.
    """
    if len(features) < 1:
        raise DataError("wanted at least one row to ask about, got none")
    label_owner, classes = spec.label_owner, spec.classes
    session.send(label_owner, QUESTION.tag, torch.tensor([len(features), batch]))
    session.ledger.record(*QUESTION.leaks(session.me, (label_owner,)))
    bottom.eval()
    parts = torch.split(features, batch)
    answers: list[Tensor] = []
    prg = Prg.from_os()
    for number, part in enumerate(parts):
        with torch.no_grad():
            h = bottom(part)
        h = blur_activations(spec.defences, h, prg.fork(str(number)))
        data, kept = codec.pack(h, is_training=False)
        send_bytes(session, label_owner, f"serve/cut.{number}", data)
        if number >= ANSWERS_AHEAD:
            before = number - ANSWERS_AHEAD
            answers.append(_hear(session, label_owner, before, len(parts[before]), classes))
        sent = h if kept is None else kept
        count = int(sent.sum()) if sent.dtype == torch.bool else sent.numel()
        session.ledger.record(cut_leak(label_owner, session.me, "serving", count))
    for number in range(len(answers), len(parts)):
        answers.append(_hear(session, label_owner, number, len(parts[number]), classes))
    return torch.cat(answers)


def stop_asking(session: Session, label_owner: str) -> None:
    """Tell the label owner that no more questions come."""
    session.send(label_owner, QUESTION.tag, torch.tensor([0, 1]))


def answer(
    session: Session,
    spec: SplitSpec,
    codecs: Mapping[str, Codec],
    top: nn.Module,
    *,
    own: OwnFeatures | None = None,
) -> list[Answered]:
    """Answer questions until the feature owners stop; return what was seen and answered.

    Every feature owner learns the predicted classes and nothing else. `own` are the label owner's
    columns of the rows that are asked about, if the top takes any.
    """
    top.eval()
    if own is not None:
        own.bottom.eval()
    found: list[Answered] = []
    while sizes := _agree_on_rows(session, tuple(codecs)):
        rows, batch = sizes
        if own is not None and len(own.rows) != rows:
            asks = f"asks about {rows} rows, {session.me!r} has its own columns of {len(own.rows)}"
            raise DisagreementError(next(iter(codecs)), asks)
        batches = []
        for number, start in enumerate(range(0, rows, batch)):
            count = min(batch, rows - start)
            part = None if own is None else OwnFeatures(own.bottom, own.rows[start:][:count])
            batches.append(_answer_batch(session, codecs, top, number, count, spec.classes, part))
        found.append(
            Answered(
                cut=torch.cat([one.cut for one in batches]),
                logits=torch.cat([one.logits for one in batches]),
            )
        )
    return found


def _answer_batch(
    session: Session,
    codecs: Mapping[str, Codec],
    top: nn.Module,
    number: int,
    rows: int,
    classes: int,
    own: OwnFeatures | None,
) -> Answered:
    device = next((p.device for p in top.parameters()), torch.device("cpu"))
    cuts = [
        receive_cut(session, codec, owner, f"serve/cut.{number}", rows, is_training=False)[0]
        for owner, codec in codecs.items()
    ]
    with torch.no_grad():
        h = torch.cat(cuts, 1)
        stays = () if own is None else (own.cut(slice(None)).to(device),)
        logits: Tensor = top(torch.cat([h.to(device), *stays], 1)).cpu()
    packed = pack_numbers(logits.argmax(1), bits_below(classes))
    for owner in codecs:
        send_bytes(session, owner, f"answer/{number}", packed)
        session.ledger.record(classes_leak(owner, rows))
    return Answered(cut=h, logits=logits)


def _agree_on_rows(session: Session, owners: Sequence[str]) -> tuple[int, int] | None:
    """Hear from all owners how many rows the next question has; None at the end."""
    heard = {
        owner: tuple(int(n) for n in session.recv(owner, QUESTION.tag, (2,))) for owner in owners
    }
    first = heard[owners[0]]
    for owner, sizes in heard.items():
        if sizes != first:
            raise DisagreementError(
                owner, f"asks about {sizes[0]} rows, {owners[0]!r} about {first[0]}"
            )
    rows, batch = first
    if not 0 <= rows <= LARGEST_QUESTION or batch < 1:
        raise FrameError(owners[0], f"asked about {rows} rows in batches of {batch}")
    if not rows:
        return None
    session.ledger.record(*QUESTION.leaks_of_all(owners, (session.me,)))
    return rows, batch


def _hear(session: Session, label_owner: str, number: int, rows: int, classes: int) -> Tensor:
    bits = bits_below(classes)
    size = packed_bytes(rows, bits)
    data = session.recv(label_owner, f"answer/{number}", (size,), dtype=torch.uint8)
    found = unpack_numbers(data, rows, bits)
    if int(found.max()) >= classes:
        raise FrameError(label_owner, f"answered a class beyond {classes - 1}")
    return found


def train_features(
    session: Session,
    spec: SplitSpec,
    bottom: nn.Module,
    rows: Divided,
    *,
    folder: Path | None = None,
) -> tuple[BottomTrainer, Tensor]:
    """Do a feature owner's part: `bottom` is trained, and asked for the classes of the test rows.

    Guarantee, cost: as for `BottomTrainer` and `ask`.
    """
    trainer = BottomTrainer(session, spec, bottom, rows.train, folder=folder)
    trainer.run()
    return trainer, question(session, spec, trainer.codec, bottom, rows.test)


def train_labels(
    session: Session,
    spec: SplitSpec,
    top: nn.Module,
    labels: Tensor,
    *,
    widths: Mapping[str, int],
    own: tuple[nn.Module, Divided] | None = None,
    folder: Path | None = None,
    on_gradient: OnReturned | None = None,
) -> tuple[TopTrainer, Answered]:
    """Do the label owner's part: `top` is trained, and answers about the test rows.

    Args:
        session: our end.
        spec: the same for everyone.
        top: takes the owners' cut layers side by side, our own last.
        labels: of the rows to train on.
        widths: of the cut layers that travel, by owner.
        own: our own bottom and columns, if we have any.
        folder: where checkpoints are, if there are any.
        on_gradient: is shown every gradient that goes out, for an audit.

    Guarantee, cost: as for `TopTrainer` and `answer`.
    """
    mine = tested = None
    if own is not None:
        mine, tested = (OwnFeatures(own[0], rows) for rows in (own[1].train, own[1].test))
    trainer = TopTrainer(
        session,
        spec,
        top,
        labels,
        widths=widths,
        folder=folder,
        on_gradient=on_gradient,
        own=mine,
    )
    trainer.run()
    with session.progress.stage("serve"):
        (found,) = answer(session, spec, trainer.codecs, top, own=tested)
    return trainer, found


def question(
    session: Session, spec: SplitSpec, codec: Codec, bottom: nn.Module, rows: Tensor
) -> Tensor:
    """Ask one question about rows, and no more after it; return their classes."""
    with session.progress.stage("serve"):
        classes = ask(session, spec, codec, bottom, rows)
        stop_asking(session, spec.label_owner)
    return classes
