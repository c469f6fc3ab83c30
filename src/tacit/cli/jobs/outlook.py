"""What a job will send, take and reveal: what its kind says of it, and how that is laid out."""

from dataclasses import dataclass, replace

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tacit import report
from tacit.cli.jobs.kind import Network
from tacit.cli.screen import printable
from tacit.errors import ConfigError, InputError
from tacit.mpc.plan import NETWORKS
from tacit.party.cost import forecast_seconds
from tacit.report.words import state_privacy
from tacit.result import Claim, Forecast, Leak

NO_GUARANTEE = "no guarantee"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Sizes given with the command, for data that is not here."""

    rows: int | None = None
    features: int | None = None

    def refuse(self, *options: str) -> None:
        """Refuse sizes that would change nothing.

        Raises:
            ConfigError: one of these options was given.
        """
        for option in options:
            if getattr(self, option) is not None:
                raise ConfigError(f"--{option} changes nothing in the plan of this job: leave it")


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What is known of a job before anything is sent.

    Attributes:
        about: the protocol, or what else it is known by.
        lines: what will be done, a sentence each.
        forecast: traffic and rounds; None where there is nothing to forecast, which a line says.
        leaks: who will learn what.
        claims: what is promised.
    """

    about: str
    lines: tuple[str, ...]
    forecast: Forecast | None = None
    leaks: tuple[Leak, ...] = ()
    claims: tuple[Claim, ...] = ()


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


def timed(forecast: Forecast, network: Network | None) -> Forecast:
    """Add the seconds that a forecast takes on one network, or on a few usual ones."""
    if network is None and forecast.timings:
        return forecast
    networks = NETWORKS if network is None else (network,)
    seconds = [forecast_seconds(forecast.cost, rtt_ms=rtt, mbit_per_s=m) for rtt, m in networks]
    return replace(forecast, timings=tuple(seconds))


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


def unread(error: InputError, options: str) -> ConfigError:
    """Say what is wrong with the data here, and what can be given where it is elsewhere."""
    return ConfigError(f"{error} (for a plan where the data is not, give {options})")
