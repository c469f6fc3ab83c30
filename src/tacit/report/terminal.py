"""A view of a result for the terminal."""

from collections.abc import Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tacit.report.format import (
    clean,
    show_count,
    show_exact_bytes,
    show_interval,
    show_quantity,
)
from tacit.report.headline import state_headline
from tacit.report.tally import (
    ORDER,
    compare_costs,
    group_leaks,
    is_alone,
)
from tacit.report.words import (
    MARKS,
    Mood,
    compare_figures,
    cost_figures,
    list_checks,
    mood_of,
    name_sides,
    party_figures,
    state_computing,
    state_coverage,
    state_learned,
    state_privacy,
    timing_figures,
)
from tacit.result import Claim, Forecast, Leak, Result, Sheet

_STYLES: dict[Mood, str] = {"good": "green", "warn": "yellow", "bad": "bold red", "quiet": "dim"}
_KINDS = {
    "output": ("result", "green"),
    "protocol": ("on the way", "bold yellow"),
    "size": ("size", "dim"),
}


def summarise(result: Result) -> RenderableType:
    """Lay out a result for a console of any width: verdict, utility, cost, parties, ledgers."""
    return Group(
        *_head(result),
        *part("Utility", _utility(result)),
        *part("Cost", None if is_alone(result) else _cost(result)),
        *part("Parties", _parties(result)),
        *part("What each party learned", _leaks(result)),
        *part("What was promised", lay_claims(result.claims)),
        *(line for sheet in result.sheets for line in part(clean(sheet.title), _sheet(sheet))),
        *part("Notes", _list(result.notes) if result.notes else None),
    )


def preview(forecast: Forecast) -> RenderableType:
    """Lay out a forecast before anything is sent: traffic per phase, rounds, seconds."""
    table = make_table("phase", "#payload", "#messages", "#rounds")
    rounds = {"offline": forecast.cost.offline_rounds, "online": forecast.cost.online_rounds}
    for phase in ORDER:
        here = [traffic for traffic in forecast.cost.traffic if traffic.phase == phase]
        if not here and phase == "setup":
            continue
        payload = sum(traffic.payload_bytes for traffic in here)
        messages = sum(traffic.messages for traffic in here)
        chain = show_count(rounds[phase]) if phase in rounds else ""
        _add(table, phase, show_exact_bytes(payload), show_count(messages), chain)
    return Group(
        *part("Forecast", table),
        *part("Seconds by network", _timings(forecast) if forecast.timings else None),
        *([Text(state_computing(forecast))] if forecast.timings else []),
        *(Text(clean(note)) for note in forecast.notes),
        Text(f"Plan {clean(forecast.plan_hash)}", style="dim", overflow="fold"),
    )


def _head(result: Result) -> list[RenderableType]:
    lines: list[RenderableType] = [
        Text.assemble(
            ("tacit", "bold cyan"),
            f" {clean(result.kind)} · ",
            (clean(result.name), "bold"),
            (f" · {clean(result.protocol)} · {clean(result.launched)}", "dim"),
        ),
        Text(f"{state_headline(result)}.", style="bold"),
    ]
    if coverage := state_coverage(result):
        lines.append(Text(coverage, style="yellow"))
    checks = Table.grid(padding=(0, 2, 0, 0))
    for check in list_checks(result):
        style = _STYLES[check.mood]
        _add(checks, Text(MARKS[check.mood], style), check.title, Text(check.text, style))
    return [*lines, Text(), checks]


def part(title: str, body: RenderableType | None) -> list[RenderableType]:
    """Put a title above something, and nothing above nothing."""
    return [] if body is None else [Text(), Text(title, style="bold cyan"), body]


def make_table(*heads: str) -> Table:
    """Make a table; a column whose head starts with # holds numbers."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for head in heads:
        is_number = head.startswith("#")
        table.add_column(
            head.lstrip("#"), justify="right" if is_number else "left", overflow="fold"
        )
    return table


class _Words:
    """A table in which words are broken only where the console is too narrow for whole ones."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = self._table.columns
        cells = [[str(cell) for cell in (one.header, *one.cells)] for one in columns]
        whole = [max(map(cell_len, column)) for column in cells]
        words = [
            max(cell_len(w) for one in c for w in (one.split() if len(one) > 7 else [one]))
            for c in cells
        ]
        figures = [
            max(word, *map(cell_len, column[1:])) if one.justify == "right" and column[1:] else word
            for one, column, word in zip(columns, cells, words, strict=True)
        ]
        room = options.max_width - 2 * len(columns)  # a space within each, and one between
        widths = figures if sum(figures) <= room else words  # figures in one piece, if they fit
        while sum(widths) > max(room, len(columns)):
            widths[widths.index(max(widths))] -= 1
        while sum(widths) < min(room, sum(whole)):  # to where most lines are broken
            lines = [full / width for full, width in zip(whole, widths, strict=True)]
            widths[lines.index(max(lines))] += 1
        for column, width in zip(columns, widths, strict=True):
            column.width = width
        yield self._table


def _add(table: Table, *cells: str | Text, ends_section: bool = False) -> None:
    """Add a row of plain text: rich would read a bare string as its own markup."""
    texts = (cell if isinstance(cell, Text) else Text(cell) for cell in cells)
    table.add_row(*texts, end_section=ends_section)


def _sheet(sheet: Sheet) -> RenderableType:
    table = make_table(*map(clean, sheet.heads))
    for row in sheet.rows:
        _add(table, *map(clean, row[: len(sheet.heads)]))
    return _Words(table)


def _utility(result: Result) -> RenderableType:
    if not result.utility:
        return Text("not measured", style="dim")
    ours, theirs = name_sides(result)
    has_reference = any(metric.reference is not None for metric in result.utility)
    compared = (f"#{theirs}", "#difference") if has_reference else ()
    table = make_table("metric", f"#{ours}", *compared, "#n", "#95 % interval")
    for metric in result.utility:
        _add(
            table,
            clean(metric.name),
            Text(show_quantity(metric.value, metric.unit), style="bold"),
            *(compare_figures(metric) if has_reference else ()),
            "–" if metric.samples is None else show_count(metric.samples),
            "–" if metric.low is None else show_interval(metric.low, metric.high, metric.unit),
        )
    return _Words(table)


def _cost(result: Result) -> RenderableType:
    table = make_table("phase", "quantity", "#forecast", "#metered", "")
    for row in compare_costs(result):
        cells = (row.phase, row.quantity, *cost_figures(row), _mark(row.agrees))
        _add(table, *cells, ends_section=row.quantity == "rounds")
    return table


def _mark(agrees: bool | None) -> Text:
    if agrees is None:
        return Text("–", style="dim")
    return Text("✓", style="green") if agrees else Text("✗ differs", style="bold red")


def _parties(result: Result) -> RenderableType:
    if not result.parties:
        return Text("no party reported", style="dim")
    table = make_table(
        "party", "role", "#at work", "#wall", "#cpu", "#memory", "#sent", "#received"
    )
    for party in result.parties:
        role = Text(clean(party.role), style="dim")
        _add(table, clean(party.name), role, *party_figures(result, party))
    return table


def _leaks(result: Result) -> RenderableType:
    blocks: list[RenderableType] = []
    for party, leaks in group_leaks(result).items():
        sentence, mood = state_learned(result, party, leaks)
        blocks.append(Text.assemble((clean(party), "bold"), ": ", (sentence, _STYLES[mood])))
        if leaks:
            blocks.append(Padding(_leak_grid(leaks), (0, 0, 0, 2)))
    return Group(*blocks) if blocks else Text("the ledger is empty", style="dim")


def _leak_grid(leaks: Sequence[Leak]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(min_width=10)
    for leak in leaks:
        name, style = _KINDS[leak.kind]
        count = f" ({show_count(leak.elements)})" if leak.kind != "size" else ""
        text = Text.assemble(f"{clean(leak.what)}{count}", (f" — {clean(leak.why)}", "dim"))
        _add(grid, Text(name, style=style), text)
    return grid


def lay_claims(claims: Sequence[Claim]) -> RenderableType:
    """Lay out what is promised."""
    if not claims:
        return Text("nothing: no guarantee was stated", style="yellow")
    return Group(*(block for claim in claims for block in _claim(claim)))


def _claim(claim: Claim) -> list[RenderableType]:
    style = "bold yellow" if mood_of(claim) == "warn" else "green"
    subject = (clean(claim.subject), "bold")
    lines: list[RenderableType] = [Text.assemble(subject, ": ", (clean(claim.guarantee), style))]
    if privacy := state_privacy(claim):
        lines.append(Padding(Text(privacy), (0, 0, 0, 2)))
    if claim.assumptions:
        lines.append(Padding(_list(claim.assumptions, style="dim"), (0, 0, 0, 2)))
    return lines


def _list(items: Sequence[str], *, style: str = "") -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    for item in items:
        _add(grid, Text("·", style="dim"), Text(clean(item), style=style))
    return grid


def _timings(forecast: Forecast) -> Table:
    table = make_table("#round trip", "#bandwidth", "#offline", "#online")
    for timing in forecast.timings:
        _add(table, *timing_figures(timing))
    return table
