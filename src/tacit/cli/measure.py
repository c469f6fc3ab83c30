"""``tacit bench``: list the benchmarks, or run one of them and show and write its rows."""

import ast
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from tacit.cli.bench import Progress, Report, find_directory, load_cases, run_benchmark
from tacit.cli.folder import write_text
from tacit.cli.screen import say

USUAL_REPEATS = 5
QUICK_REPEATS = 2


def list_benchmarks() -> list[tuple[str, str]]:
    """Return the name and the first sentence of every benchmark."""
    files = sorted(find_directory().glob("*.py"))
    return [(file.stem, _sentence(file)) for file in files if not file.stem.startswith("_")]


def run_named(
    name: str, *, peers: bool, quick: bool, repeats: int | None, out: Path | None, console: Console
) -> Report:
    """Run a benchmark and write its rows as JSON if a file is given."""
    directory = find_directory()
    cases = load_cases(name, directory, quick)
    count = repeats or (QUICK_REPEATS if quick else USUAL_REPEATS)
    with _bars(console) as bars:
        found = run_benchmark(
            name,
            cases,
            repeats=count,
            peers=peers,
            progress=_show_on(bars, console),
            directory=directory,
        )
    if out is not None:
        write_text(out, found.to_json())
    return found


def _sentence(file: Path) -> str:
    documentation = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return documentation.partition("\n")[0]


def _bars(console: Console) -> Bars:
    return Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )


def _show_on(bars: Bars, console: Console) -> Progress:
    task = bars.add_task("", total=None)
    last = ""

    def show(what: str, done: int, total: int) -> None:
        nonlocal last
        bars.update(task, description=what, completed=done, total=total)
        if bars.disable and what != last:
            say(console, f"{done}/{total} {what}")
        last = what

    return show
