"""One party's part in a split model: train, then ask or answer about the rows kept to test on."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from tacit.party import Session
from tacit.split.bottom import BottomTrainer
from tacit.split.codec import Codec
from tacit.split.exchange import OnReturned
from tacit.split.rows import Divided
from tacit.split.serve import Answered, answer, ask, stop_asking
from tacit.split.spec import SplitSpec
from tacit.split.top import OwnFeatures, TopTrainer


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
