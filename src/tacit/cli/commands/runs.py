"""``tacit runs``: the results below a folder, newest first, a line each."""

from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tacit.cli.screen import printable
from tacit.cli.studio.index import Index, find_results, list_data, spent_on, summarise
from tacit.errors import InputError
from tacit.report.format import show_bound

_PATIENCE_S = 3600.0


def lay_runs(top: Path) -> Table:
    """Lay out every result below a folder, newest first; those that cannot be read come last.

    Raises:
        InputError: there is no such folder.
    """
    _check(top)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("when", "folder", "kind", "name", "first figure", "ε"):
        table.add_column(head, overflow="fold")
    runs = [summarise(top / name, name, stamp) for name, stamp in find_results(top)]
    for one in sorted(runs, key=lambda one: one.when, reverse=True):
        epsilon = "" if one.epsilon is None else f"{one.epsilon:.3g} (δ {one.delta:.2g})"
        cells = (one.when, str(top / one.name), one.kind, one.job, one.figure, epsilon)
        if one.problem:
            cells = ("cannot be read", str(top / one.name), "", "", one.problem, "")
        # What a result file says is input: no markup, nothing that a terminal would obey.
        table.add_row(*(Text(printable(cell)) for cell in cells))
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
