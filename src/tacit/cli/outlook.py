"""How the outlook of a job is laid out on a terminal."""

from dataclasses import replace

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tacit import report
from tacit.cli.screen import printable
from tacit.jobs.kind import NO_GUARANTEE, Network, Outlook, timed
from tacit.report.words import state_privacy
from tacit.result import Claim, Forecast, Leak


def lay_out(
    name: str, roles: dict[str, str], outlook: Outlook, network: Network | None
) -> RenderableType:
    """Lay out what will be done; seconds are for one network, or for a few usual ones."""
    parts: list[RenderableType] = [
        Text.assemble(
            ("tacit", "bold cyan"), " plan · ", (name, "bold"), (f" · {outlook.about}", "dim")
        ),
        *(Text(f"{party}: {role}") for party, role in roles.items()),
        *(Text(printable(line)) for line in outlook.lines),
    ]
    if outlook.forecast is not None:
        whole = timed(outlook.forecast, network)
        parts += [*_part("Who sends what to whom", _directions(whole)), report.preview(whole)]
    if outlook.leaks:
        parts += _part("What will be learned", _revealed(outlook.leaks))
    if outlook.claims:
        parts += _part("What is promised", _promises(outlook.claims))
    return Group(*parts)


def _directions(forecast: Forecast) -> Table:
    table = _table("phase", "from", "to", "#messages", "#payload")
    for one in sorted(forecast.cost.traffic, key=lambda one: (one.phase, one.sender, one.receiver)):
        table.add_row(
            *(Text(word) for word in (one.phase, one.sender, one.receiver)),
            f"{one.messages:,}",
            f"{one.payload_bytes:,} B",
        )
    return table


def _revealed(leaks: tuple[Leak, ...]) -> RenderableType:
    told = dict[Leak, list[str]]()  # what several parties learn alike is said once
    for leak in leaks:
        told.setdefault(replace(leak, to=""), []).append(leak.to)
    lines = [
        f"{', '.join(to)}: {leak.what} ({leak.elements:,}) — {leak.why}"
        for leak, to in told.items()
    ]
    return Group(*(Text(printable(line)) for line in lines))


def _promises(claims: tuple[Claim, ...]) -> RenderableType:
    lines: list[RenderableType] = []
    for claim in claims:
        style = "bold yellow" if claim.guarantee == NO_GUARANTEE else "green"
        lines.append(Text.assemble((claim.subject, "bold"), ": ", (claim.guarantee, style)))
        if (privacy := state_privacy(claim)) is not None:
            lines.append(Text(f"  {privacy}"))
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
