"""``tacit verify``: how many rows keep their class, proved, within a distance."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console, Group, RenderableType
from rich.progress import track
from rich.table import Table
from rich.text import Text

from tacit.cli.folder import write_text
from tacit.errors import ClaimError, ConfigError, DataError
from tacit.learn import load_file
from tacit.verify import (
    Budget,
    Certificate,
    Counterexample,
    Ensemble,
    Verdict,
    load_ensemble,
    verify,
)


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of a model about the rows of a file."""

    model: Path
    data: Path
    eps: float
    rho: float | None
    label: str | None
    rows: int | None
    seconds: float

    def __post_init__(self) -> None:
        if not self.eps >= 0:
            raise ConfigError(f"--eps must be at least 0, got {self.eps}")


@dataclass(frozen=True, kw_only=True)
class Tally:
    """What was found about the rows of one class, or of all: counts of rows."""

    name: str
    rows: int
    right: int | None
    robust: int
    fragile: int
    unknown: int
    verified: int | None
    """Rows that are predicted rightly and proved robust."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The answers, counted; ``shifts`` are counterexamples by row number."""

    eps: float
    groups: tuple[Tally, ...]
    median_ms: float
    slowest_ms: float
    shifts: dict[int, list[float]]

    @property
    def verified_share(self) -> float | None:
        """Return the verified robust accuracy, if labels are known."""
        every = self.groups[0]
        return None if every.verified is None else every.verified / every.rows


def answer(question: Question, console: Console) -> Findings:
    """Verify every row of a file, with a progress bar."""
    ensemble = load_ensemble(question.model)
    data = load_file(question.data, label=question.label)
    x = data.features[: question.rows]
    if x.ndim != 2:
        raise DataError(f"{question.data}: wanted a table of rows, got an array of {x.shape}")
    labels = data.labels[: question.rows] if data.is_labelled else None
    budget = Budget(seconds=question.seconds)
    verdicts, times = [], []
    for row in track(x, "verifying", console=console, disable=not console.is_terminal):
        begun = time.perf_counter()
        verdicts.append(verify(ensemble, row, question.eps, rho=question.rho, budget=budget))
        times.append(1e3 * (time.perf_counter() - begun))
    return Findings(
        eps=question.eps,
        groups=_groups(ensemble, verdicts, labels),
        # The first call may compile the search; it is not what a row costs.
        median_ms=float(np.median(times[1:] or times)),
        slowest_ms=float(max(times[1:] or times)),
        shifts={
            number: [float(value) for value in one.x]
            for number, one in enumerate(verdicts)
            if isinstance(one, Counterexample)
        },
    )


def _groups(
    ensemble: Ensemble, verdicts: Sequence[Verdict], labels: np.ndarray | None
) -> tuple[Tally, ...]:
    predicted = np.array([one.prediction for one in verdicts])
    everything = np.ones(len(verdicts), bool)
    found = [_count("all", verdicts, everything, predicted, labels)]
    if labels is not None and ensemble.n_classes > 1:
        found += [
            _count(f"class {value}", verdicts, labels == value, predicted, labels)
            for value in np.unique(labels)
        ]
    return tuple(found)


def _count(
    name: str,
    verdicts: Sequence[Verdict],
    chosen: np.ndarray,
    predicted: np.ndarray,
    labels: np.ndarray | None,
) -> Tally:
    robust = np.array([isinstance(one, Certificate) for one in verdicts])
    fragile = np.array([isinstance(one, Counterexample) for one in verdicts])
    right = None if labels is None else predicted == labels
    return Tally(
        name=name,
        rows=int(chosen.sum()),
        right=None if right is None else int((chosen & right).sum()),
        robust=int((chosen & robust).sum()),
        fragile=int((chosen & fragile).sum()),
        unknown=int((chosen & ~robust & ~fragile).sum()),
        verified=None if right is None else int((chosen & right & robust).sum()),
    )


def write_findings(findings: Findings, path: Path) -> None:
    """Write the findings as JSON."""
    write_text(path, json.dumps(asdict(findings), indent=1))


def check_claim(findings: Findings, claim: float) -> None:
    """Raise ClaimError if less is verified than was claimed."""
    share = findings.verified_share
    if share is None:
        raise ConfigError("--claim is about accuracy, which needs labels: give --label")
    if share < claim:
        raise ClaimError(
            f"claimed a verified robust accuracy of at least {claim:.2%}, found {share:.2%}"
        )


def show(findings: Findings) -> RenderableType:
    """Lay the findings out as a table."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("rows", "count", "right", "robust", "fragile", "unknown", "verified"):
        table.add_column(name, justify="left" if name == "rows" else "right")
    for group in findings.groups:
        shown = (group.right, group.robust, group.fragile, group.unknown, group.verified)
        cells = ("not measured" if n is None else f"{n / max(group.rows, 1):.1%}" for n in shown)
        table.add_row(Text(group.name), f"{group.rows}", *cells)
    return Group(
        Text(f"Within ±{findings.eps:g} of every feature, exactly:"),
        table,
        Text(
            "robust: no input of the box changes the answer; fragile: one was found and replayed;"
        ),
        Text("verified: right and robust."),
        Text(
            f"{findings.median_ms:.2f} ms a row (median), {findings.slowest_ms:.1f} ms the slowest"
        ),
    )
