"""``tacit runs``: the results below a folder, newest first, a line each."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tacit import report
from tacit.cli.screen import printable
from tacit.cli.studio.index import Index
from tacit.cli.studio.spent import list_data, spent_on
from tacit.errors import InputError
from tacit.jobs.folder import RESULT
from tacit.report.format import show_bound, show_quantity
from tacit.report.headline import pick_headline_metric
from tacit.result import Result

_PATIENCE_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """A folder with a result, or why it cannot be read."""

    folder: Path
    result: Result | None
    problem: str = ""


def find_runs(top: Path) -> list[Run]:
    """Find every result below a folder, newest first; those that cannot be read come last.

    Raises:
        InputError: there is no such folder.
    """
    _check(top)
    runs = [_read(folder) for folder in _folders(top)]
    return sorted(runs, key=lambda run: run.result.created if run.result else "", reverse=True)


def lay_runs(runs: list[Run]) -> RenderableType:
    """Lay out results as a table."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("when", "folder", "kind", "name", "first figure", "ε"):
        table.add_column(head, overflow="fold")
    for run in runs:
        # What a result file says is input: no markup, nothing that a terminal would obey.
        table.add_row(*(Text(printable(cell)) for cell in _cells(run)))
    return table


def lay_ledger(top: Path) -> RenderableType:
    """Lay out what runs below a folder have spent, by the data that their job files name."""
    _check(top)
    found, _ = Index(top, top / ".studio" / "index.json").refresh(_PATIENCE_S)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("data", "relation", "runs", "ε, at most", "δ, at most"):
        table.add_column(head, overflow="fold")
    for name, runs in list_data(found).items():
        for spent in spent_on(runs):
            figures = (show_bound(spent.epsilon), show_bound(spent.delta))
            cells = (name, spent.relation or "not stated", str(len(spent.runs)), *figures)
            table.add_row(*(Text(printable(cell)) for cell in cells))
        bare = sum(one.epsilon is None for one in runs)
        if bare:
            cells = (name, "no ε claimed", str(bare), "no sum bounds these", "")
            table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def _check(top: Path) -> None:
    if not top.is_dir():
        raise InputError(f"no such folder: {top}; results lie where a job's `out` says")


def _folders(top: Path) -> Iterator[Path]:
    for folder, below, files in os.walk(top):
        # Hidden folders are results that are being written, checkpoints and journals.
        below[:] = sorted(name for name in below if not name.startswith("."))
        if RESULT in files:
            yield Path(folder)


def _read(folder: Path) -> Run:
    try:
        return Run(folder=folder, result=report.load(folder / RESULT))
    except InputError as error:
        return Run(folder=folder, result=None, problem=str(error))


def _cells(run: Run) -> tuple[str, ...]:
    result = run.result
    if result is None:
        return ("cannot be read", str(run.folder), "", "", run.problem, "")
    first = pick_headline_metric(result)
    figure = "" if first is None else f"{first.name} {show_quantity(first.value, first.unit)}"
    spent = next((one for one in result.claims if one.epsilon is not None), None)
    epsilon = "" if spent is None else f"{spent.epsilon:.3g} (δ {spent.delta:.2g})"
    when = result.created.replace("T", " ").removesuffix("+00:00")
    return (when, str(run.folder), result.kind, result.name, figure, epsilon)
