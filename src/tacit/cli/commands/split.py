"""``tacit split``: commands beside the running of split jobs."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tacit.cli.screen import say, working
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.cli.commands.group import Edge

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20}


def parse_bytes(text: str) -> int:
    """Read an amount of bytes such as 2MB, 500kB, 1.5 MiB or 4096.

    Raises:
        ConfigError: it is none.
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].upper() not in _UNITS or float(match[1]) <= 0:
        raise ConfigError(f"wanted an amount of bytes such as 2MB or 500kB, got {text!r}")
    return int(float(match[1]) * _UNITS[match[2].upper()])


_EXAMPLE = "\n".join(
    ["\b", "Examples:", "  tacit split advise examples/jobs/split.toml --budget 2MB"]
)


@click.group(epilog=_EXAMPLE)
def split() -> None:
    """Commands for split models."""


@split.command(epilog=_EXAMPLE)
@click.argument("job", type=click.Path(path_type=Path))
@click.option("--budget", required=True, help="Bytes that training may send, e.g. 2MB.")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Pilots each.")
@click.pass_obj
def advise(edge: "Edge", job: Path, budget: str, seeds: int) -> None:
    """Try compressors that keep JOB's training within a budget, and recommend one.

    Of every kind the mildest setting that fits is tried, on at most 4,000 rows of the job's data
    set, all on this machine.
    """
    with working(edge.err, "starting"):
        from tacit.cli.commands.advise import advise_job, show_trials

        trials, chosen = advise_job(job, parse_bytes(budget), seeds=seeds, console=edge.err)
    edge.out.print(show_trials(trials, chosen))
    say(edge.out, f"\n{chosen.line}")
