"""What the parties of a split job write down, whether they trained or only asked."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from tacit.cli.jobs.kind import Place
from tacit.cli.jobs.split_job import SplitJob
from tacit.learn.split import SplitTask, claims_of, forecast
from tacit.learn.vertical import claims_of_matching
from tacit.party import Session
from tacit.result import Curve, Leak, Metric, Result

SERVE_ROWS = 256
"""Rows of a question that travel in one message."""


def models_folder(out: Path) -> Path:
    """Return where the trained parts of a job are kept, beside its result."""
    return out.with_name(f"{out.name}-models")


def make_result(
    session: Session,
    job: SplitJob,
    place: Place,
    task: SplitTask,
    *,
    widths: Mapping[str, int],
    trained: tuple[int, int],
    asked: int,
    matched: Mapping[str, int],
    utility: tuple[Metric, ...] = (),
    curves: tuple[Curve, ...] = (),
    notes: tuple[str, ...] = (),
) -> Result:
    """Write down one party's view.

    Args:
        session: our end of the job.
        job: the job.
        place: where we did our part.
        task: what was trained.
        widths: of the feature owners' cut layers.
        trained: how many rows were trained on, and from which step on.
        asked: how many rows were asked about.
        matched: how many ids every owner had, if rows were matched.
        utility: what was measured.
        curves: what is drawn.
        notes: for the reader of the report.
    """
    for party in session.parties:
        session.ledger.record(
            Leak(
                to=party,
                what="the number of rows and the widths of the cut layers",
                why="needed to train together" if trained[0] else "needed to serve together",
                kind="size",
                elements=2,
            )
        )
    plan = forecast(
        task,
        widths=widths,
        rows=trained[0],
        start=trained[1],
        questions=(asked, SERVE_ROWS),
        matched=matched,
    )
    return Result(
        kind="split",
        name=job.job.name,
        protocol=f"split at {job.model.cut!r}, {job.split.compress.kind}",
        launched=place.launched,
        parties=(place.report(),),
        forecast=plan,
        metered=session.cost(),
        leakage=session.ledger.entries(),
        claims=(*claims_of_matching(matched), *claims_of(task.defences)),
        utility=utility,
        curves=curves,
        notes=notes,
    )


def to_csv(classes: Tensor, ids: Sequence[str]) -> str:
    """Write the predicted classes as a table, by id where there are ids."""
    names = ids or [str(row) for row in range(1, len(classes) + 1)]
    lines = [f"{name},{value}" for name, value in zip(names, classes.tolist(), strict=True)]
    return "\n".join([f"{'id' if ids else 'row'},prediction", *lines]) + "\n"
