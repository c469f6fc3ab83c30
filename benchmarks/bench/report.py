"""The result of a benchmark: rows, the machine they were measured on, JSON and a terminal table."""

import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch
from rich import box
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where the numbers come from; None is what could not be found out."""

    cpu: str
    cores: int
    memory_bytes: int | None
    python: str
    torch: str
    gpu: str | None


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The median of all repeats with the smallest and the largest of them."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """One case: our spread, the peers' spreads, and how they compare.

    ``ratio`` is ours over the best measured peer's, turned over where higher is better, so that
    less is better always. ``why_not`` holds the reason for every contender that was not measured.
    """

    case: str
    metric: str
    unit: str
    higher_is_better: bool
    tacit: Spread | None
    peers: dict[str, Spread | None]
    ratio: float | None
    goal: float | None
    goal_on: Literal["ratio", "value"]
    met: bool | None
    why_not: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Report:
    """All rows of one benchmark."""

    name: str
    machine: Machine
    repeats: int
    rows: tuple[Row, ...]

    def to_json(self) -> str:
        """Write the report as JSON text."""
        content = {
            "name": self.name,
            "machine": asdict(self.machine),
            "rows": [{**_row_fields(row), "repeats": self.repeats} for row in self.rows],
        }
        return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def describe_machine() -> Machine:
    """Find out what this machine is."""
    return Machine(
        cpu=_cpu_model(),
        cores=_usable_cores(),
        memory_bytes=_memory_bytes(),
        python=platform.python_version(),
        torch=torch.__version__,
        gpu=torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
    )


def render(report: Report) -> Table:
    """Draw the report as a table for the terminal."""
    machine = report.machine
    where = [machine.cpu, f"{machine.cores} cores", machine.gpu or "no GPU"]
    title = f"{report.name}: medians of {report.repeats} (lowest–highest)"
    table = Table(title=Text(title), caption=Text(" · ".join(where)), box=box.SIMPLE_HEAD)
    for heading in ("case", "tacit", "peers"):
        table.add_column(heading, overflow="fold")
    for heading in ("ratio", "goal", "met"):
        table.add_column(heading, justify="right", overflow="fold")
    for row in report.rows:
        table.add_row(*_cells(row))
    return table


def _row_fields(row: Row) -> dict[str, object]:
    ours = row.tacit
    return {
        "case": row.case,
        "metric": row.metric,
        "unit": row.unit,
        "tacit": ours and ours.median,
        "low": ours and ours.low,
        "high": ours and ours.high,
        "peers": {name: spread and spread.median for name, spread in row.peers.items()},
        "peer_spreads": {
            name: [spread.low, spread.high] for name, spread in row.peers.items() if spread
        },
        "higher_is_better": row.higher_is_better,
        "ratio": row.ratio,
        "goal": row.goal,
        "goal_on": row.goal_on,
        "met": row.met,
        "why_not": row.why_not,
    }


def _cells(row: Row) -> tuple[Text, ...]:
    peers = [f"{name} {_shown(row, name, spread)}" for name, spread in row.peers.items()]
    mark = {True: ("✓ met", "green"), False: ("✗ missed", "bold red"), None: ("–", "dim")}[row.met]
    return (
        Text.assemble(row.case, "\n", (f"{row.metric} [{row.unit}]", "dim")),
        Text(_shown(row, "tacit", row.tacit)),
        Text("\n".join(peers) or "–"),
        Text("–" if row.ratio is None else f"{row.ratio:.3g}"),
        Text(_goal(row)),
        Text(*mark),
    )


def _shown(row: Row, name: str, spread: Spread | None) -> str:
    if spread is None:
        return f"not measured: {row.why_not.get(name, 'unknown')}"
    return f"{spread.median:.4g} ({spread.low:.4g}–{spread.high:.4g})"


def _goal(row: Row) -> str:
    if row.goal is None:
        return "–"
    sign = "≥" if row.goal_on == "value" and row.higher_is_better else "≤"
    unit = row.unit if row.goal_on == "value" else "×"
    return f"{sign} {row.goal:g} {unit}"


def _cpu_model() -> str:
    source = Path("/proc/cpuinfo")
    if source.is_file():
        for line in source.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_bytes() -> int | None:
    if not {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= os.sysconf_names.keys():
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
