"""What a prediction will send, take and reveal, worked out from sizes alone."""

from collections import Counter

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tacit import report
from tacit.cli.environment import data_folders
from tacit.cli.kind import Network
from tacit.cli.predict import load_data
from tacit.cli.predict_job import PredictJob
from tacit.cli.screen import printable
from tacit.errors import ConfigError, InputError
from tacit.learn.private import Sizes, claims_of, plan_prediction
from tacit.mpc import Plan
from tacit.mpc.pace import add_computing

NO_GUARANTEE = "no guarantee"


def forecast_prediction(
    job: PredictJob, *, rows: int | None, features: int | None, network: Network | None
) -> RenderableType:
    """Lay out the forecast of a prediction, without connecting to anyone."""
    sizes = _sizes(job, rows, features)
    plan = plan_prediction(job.task(), sizes)
    forecast = plan.forecast((network,)) if network else plan.forecast()
    return Group(
        _head(job, sizes, plan),
        *_part("Who sends what to whom", _directions(plan)),
        report.preview(add_computing(forecast, [(plan, 1)])),
        *_part("What will be learned", _revealed(job, plan)),
        *_part("What is promised", _promises(job)),
    )


def _sizes(job: PredictJob, rows: int | None, features: int | None) -> Sizes:
    if rows is not None and features is not None:
        return Sizes(rows=rows, features=features)
    try:
        found = load_data(job, data_folders()).features.shape
    except InputError as error:
        raise ConfigError(
            f"the sizes cannot be read from the data here ({error}); give --rows and --features"
        ) from error
    return Sizes(rows=rows or found[0], features=features or found[1])


def _head(job: PredictJob, sizes: Sizes, plan: Plan) -> RenderableType:
    kernels = Counter(type(step.kernel).__name__ for step in plan.steps)
    steps = ", ".join(f"{count} × {name}" for name, count in sorted(kernels.items()))
    return Group(
        Text.assemble(
            ("tacit", "bold cyan"),
            " plan · ",
            (job.job.name, "bold"),
            (f" · {plan.protocol}", "dim"),
        ),
        *(Text(f"{name}: {job.role(name)}") for name in job.parties),
        Text(f"{sizes.rows} rows of {sizes.features} features; {len(plan.steps)} steps: {steps}"),
    )


def _directions(plan: Plan) -> Table:
    table = _table("phase", "from", "to", "#messages", "#payload")
    for one in sorted(plan.cost.traffic, key=lambda one: (one.phase, one.sender, one.receiver)):
        table.add_row(
            *(Text(word) for word in (one.phase, one.sender, one.receiver)),
            f"{one.messages:,}",
            f"{one.payload_bytes:,} B",
        )
    return table


def _revealed(job: PredictJob, plan: Plan) -> RenderableType:
    lines = [f"{leak.to}: {leak.what} ({leak.elements:,}) — {leak.why}" for leak in plan.leaks]
    lines.append(f"{', '.join(job.parties)}: how many rows and features there are")
    return Group(*(Text(printable(line)) for line in lines))


def _promises(job: PredictJob) -> RenderableType:
    lines: list[RenderableType] = []
    for claim in claims_of(job.task()):
        style = "bold yellow" if claim.guarantee == NO_GUARANTEE else "green"
        lines.append(Text.assemble((claim.subject, "bold"), ": ", (claim.guarantee, style)))
        grid = Table.grid(padding=(0, 1))
        for assumption in claim.assumptions:
            grid.add_row(" ·", Text(assumption, style="dim"))
        lines.append(grid)
    return Group(*lines)


def _part(title: str, body: RenderableType) -> list[RenderableType]:
    return [Text(), Text(title, style="bold cyan"), body]


def _table(*heads: str) -> Table:
    """Make a table; a column whose head starts with # holds numbers."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for head in heads:
        table.add_column(head.lstrip("#"), justify="right" if head[0] == "#" else "left")
    return table
