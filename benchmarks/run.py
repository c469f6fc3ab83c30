"""List the benchmarks, or run one of them: ROOM/NAME is the file of that name beside this one.

A benchmark that defines ``cases`` is measured by the harness, in turns with its peers. One that
does not is a program with options of its own: what follows its name is handed to it. ``--program``
runs that of a file that has both.
"""

import runpy
import sys
from pathlib import Path

import click
from bench import (
    Progress,
    Report,
    find_benchmark,
    has_cases,
    list_benchmarks,
    load_cases,
    render,
    run_benchmark,
)
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from tacit.cli.memory import keep_freed_memory
from tacit.errors import TacitError

HERE = Path(__file__).parent
USUAL_REPEATS = 5
QUICK_REPEATS = 2


@click.command()
@click.argument("name", required=False)
@click.option("--list", "is_list", is_flag=True, help="List the benchmarks.")
@click.option("--peers", is_flag=True, help="Install and run other projects beside us.")
@click.option("--quick", is_flag=True, help="Fewer cases and repeats.")
@click.option("--repeats", type=click.IntRange(1), help="Measurements of each case.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the rows to this JSON file.")
def main(
    *,
    name: str | None,
    is_list: bool,
    peers: bool,
    quick: bool,
    repeats: int | None,
    out: Path | None,
) -> None:
    """Run the benchmark NAME."""
    if is_list:
        for known, sentence in list_benchmarks(HERE).items():
            click.echo(f"{known:24} {sentence}")
        return
    if name is None:
        raise click.UsageError("Give the NAME of a benchmark, or --list.")
    count = repeats or (QUICK_REPEATS if quick else USUAL_REPEATS)
    try:
        found = _run(name, quick=quick, repeats=count, peers=peers)
    except TacitError as error:
        raise click.UsageError(str(error)) from error
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(found.to_json(), encoding="utf-8")
    Console().print(render(found))


def _run(name: str, *, quick: bool, repeats: int, peers: bool) -> Report:
    console = Console(stderr=True)
    cases = load_cases(name, HERE, quick)
    with _bars(console) as bars:
        return run_benchmark(
            name,
            cases,
            repeats=repeats,
            peers=peers,
            progress=_show_on(bars, console),
            directory=HERE,
        )


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
            console.print(f"{done}/{total} {what}", markup=False, highlight=False)
        last = what

    return show


def _run_program(name: str, arguments: list[str]) -> None:
    """Run a file as if Python had been started with it; what it starts finds this folder, too."""
    file = find_benchmark(name, HERE)
    sys.argv = [str(file), *arguments]
    runpy.run_path(str(file), run_name="__main__")


if __name__ == "__main__":
    keep_freed_memory()
    asked = sys.argv[1:]
    if asked[1:2] == ["--program"]:
        _run_program(asked[0], asked[2:])
    elif asked and (HERE / f"{asked[0]}.py").is_file() and not has_cases(HERE / f"{asked[0]}.py"):
        _run_program(asked[0], asked[1:])
    else:
        main()
