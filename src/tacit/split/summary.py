"""What the parties of a split model write down, whether they trained or only asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tacit.matching import claims_of_matching
from tacit.party import Session
from tacit.result import Curve, Metric, PartyReport, Result
from tacit.split.forecast import forecast
from tacit.split.part import SERVE_ROWS
from tacit.split.task import SplitTask
from tacit.split.top import Epoch


@dataclass(frozen=True, kw_only=True)
class Done:
    """What was done.

    Attributes:
        widths: of the feature owners' cut layers.
        trained: how many rows were trained on; 0 if a model that was trained before served.
        start: from which step on.
        asked: how many rows were asked about.
        matched: how many ids every owner had, if rows were matched.
    """

    widths: Mapping[str, int]
    trained: int = 0
    start: int = 0
    asked: int = 0
    matched: Mapping[str, int] = field(default_factory=dict)


def summarise(
    session: Session,
    task: SplitTask,
    done: Done,
    *,
    name: str,
    launched: str,
    report: PartyReport,
    utility: tuple[Metric, ...] = (),
    curves: tuple[Curve, ...] = (),
    notes: tuple[str, ...] = (),
) -> Result:
    """Write down one party's view.

    Args:
        session: our end.
        task: what was trained.
        done: what was done.
        name: of the result.
        launched: how the parties were started.
        report: what we used.
        utility: what was measured.
        curves: what is drawn.
        notes: for the reader of the report.
    """
    plan = forecast(
        task,
        widths=done.widths,
        rows=done.trained,
        start=done.start,
        questions=(done.asked, SERVE_ROWS) if done.asked else None,
        matched=done.matched,
    )
    return Result(
        kind="split",
        name=name,
        protocol=task.about,
        launched=launched,
        parties=(report,),
        forecast=plan,
        metered=session.cost(),
        leakage=session.ledger.entries(),
        claims=(*claims_of_matching(done.matched), *task.claims()),
        utility=utility,
        curves=curves,
        notes=notes,
    )


def draw_epochs(epochs: Sequence[Epoch]) -> tuple[Curve, ...]:
    """Draw loss and accuracy while training, against the bytes that had travelled."""
    megabytes = [one.bytes_so_far / 1e6 for one in epochs]
    return (
        Curve(
            title="Accuracy against bytes",
            x_label="payload sent and received by the label owner (MB)",
            y_label="accuracy on the rows trained on",
            name="training",
            points=tuple(zip(megabytes, (one.accuracy for one in epochs), strict=True)),
        ),
        Curve(
            title="Loss",
            x_label="epoch",
            y_label="cross entropy",
            name="training",
            points=tuple((float(i), one.loss) for i, one in enumerate(epochs, start=1)),
        ),
    )
