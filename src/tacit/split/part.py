"""One party's part in a split model: train, then ask or answer about the rows kept to test on."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from tacit.party import Session
from tacit.split.bottom import BottomTrainer
from tacit.split.codec import Codec
from tacit.split.exchange import OnReturned
from tacit.split.rows import Divided
from tacit.split.serve import SERVE_ROWS, Answered, answer, ask, stop_asking
from tacit.split.task import SplitTask
from tacit.split.top import Epoch, OwnFeatures, TopTrainer


@dataclass(frozen=True, kw_only=True, eq=False)
class FeaturesDone:
    """What a feature owner has at the end: the classes of its test rows.

    `widths` are those of the cut layers, `start` is the step that training went on from.
    """

    classes: Tensor
    widths: dict[str, int]
    start: int


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelsDone:
    """What the label owner has at the end: every epoch, and what it saw and answered."""

    answered: Answered
    epochs: tuple[Epoch, ...]
    widths: dict[str, int]
    start: int


def train_features(
    session: Session,
    task: SplitTask,
    bottom: nn.Module,
    rows: Divided,
    *,
    folder: Path | None = None,
) -> FeaturesDone:
    """Do a feature owner's part: `bottom` is trained, and asked about the test rows.

    Guarantee, cost: as for `BottomTrainer` and `ask`.
    """
    trainer = BottomTrainer(session, task, bottom, rows.train, folder=folder)
    trainer.run()
    classes = question(session, task, trainer.codec, bottom, rows.test)
    return FeaturesDone(classes=classes, widths=trainer.widths, start=trainer.start)


def train_labels(
    session: Session,
    task: SplitTask,
    top: nn.Module,
    labels: Tensor,
    *,
    widths: Mapping[str, int],
    own: tuple[nn.Module, Divided] | None = None,
    folder: Path | None = None,
    on_gradient: OnReturned | None = None,
) -> LabelsDone:
    """Do the label owner's part: `top` is trained, and answers about the test rows.

    Args:
        session: our end.
        task: the same for everyone.
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
        task,
        top,
        labels,
        widths=widths,
        folder=folder,
        on_gradient=on_gradient,
        own=mine,
    )
    epochs = trainer.run()
    with session.progress.stage("serve"):
        (found,) = answer(session, trainer.codecs, top, classes=task.classes, own=tested)
    return LabelsDone(
        answered=found, epochs=tuple(epochs), widths=trainer.widths, start=trainer.start
    )


def question(
    session: Session, task: SplitTask, codec: Codec, bottom: nn.Module, rows: Tensor
) -> Tensor:
    """Ask one question about rows, and no more after it; return their classes."""
    with session.progress.stage("serve"):
        classes = ask(
            session,
            codec,
            bottom,
            rows,
            label_owner=task.label_owner,
            classes=task.classes,
            defences=task.defences,
            batch_rows=SERVE_ROWS,
        )
        stop_asking(session, task.label_owner)
    return classes
