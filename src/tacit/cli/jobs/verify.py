"""``tacit verify``: how many rows keep their class, proved, within a distance."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console, Group, RenderableType
from rich.progress import track
from rich.table import Table
from rich.text import Text

from tacit.cli.folder import write_text
from tacit.errors import ClaimError, ConfigError
from tacit.learn import Dataset, load_file
from tacit.party import Progress, Usage
from tacit.verify import (
    Budget,
    Certificate,
    Counterexample,
    Ensemble,
    Inquiry,
    Timed,
    Verdict,
    load_ensemble,
    tell_compiling,
    verify_each,
    verify_on_ray,
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
    shape: str | None = None
    """Height and width, e.g. ``28x28``, if the features are the pixels of an image."""
    importance: int = 0
    """How many rows to find robust feature sets for."""
    beside: tuple[Path, ...] = ()
    """Models of other sizes, asked about the same rows."""
    workers: int = 1
    ray: str | None = None
    """The address of a Ray cluster that does the work instead of this machine."""

    def __post_init__(self) -> None:
        if not self.eps >= 0:
            raise ConfigError(f"--eps must be at least 0, got {self.eps}")
        if self.rho is not None and self.importance:
            raise ConfigError("--importance is counted per class; a regression has none")


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
class Size:
    """What was found about all rows with a model of some size."""

    name: str
    trees: int
    depth: int
    tally: Tally
    median_ms: float
    p95_ms: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """The model, the rows and what was found about each."""

    ensemble: Ensemble
    rows: np.ndarray
    shape: tuple[int, int] | None
    """Height and width, if the rows are images."""
    names: tuple[str, ...]
    labels: np.ndarray | None
    verdicts: tuple[Verdict, ...]
    times_ms: tuple[float, ...]
    """Processor time; the search was compiled, or loaded from disk, before."""
    usage: Usage
    progress: Progress


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The answers, counted; ``shifts`` are counterexamples by row number."""

    eps: float
    groups: tuple[Tally, ...]
    median_ms: float
    slowest_ms: float
    shifts: dict[int, list[float]]
    sizes: tuple[Size, ...]
    """The model and those beside it, by depth and number of trees; empty if it is alone."""
    answers: Answers

    @property
    def verified_share(self) -> float | None:
        """Return the verified robust accuracy, if labels are known."""
        every = self.groups[0]
        return None if every.verified is None else every.verified / every.rows


def answer(question: Question, console: Console) -> Findings:
    """Verify every row of a file, with a progress bar."""
    usage, progress = Usage(), Progress()
    with progress.stage("load"):
        ensemble = load_ensemble(question.model)
        data = load_file(question.data, label=question.label)
    shape = _find_shape(question, data)
    x = data.features[: question.rows].reshape(-1, int(np.prod(data.features.shape[1:])))
    labels = data.labels[: question.rows] if data.is_labelled else None
    with progress.stage("verify"):
        timed = list(_ask(question, ensemble, x, console))
    verdicts, times = [one.verdict for one in timed], [1e3 * one.seconds for one in timed]
    sizes = []
    if question.beside:
        sizes.append(_size(question.model, ensemble, timed, labels))
        with progress.stage("verify other sizes"):
            for path in question.beside:
                other = load_ensemble(path)
                sizes.append(_size(path, other, list(_ask(question, other, x, console)), labels))
    return Findings(
        eps=question.eps,
        groups=_groups(ensemble, verdicts, labels),
        median_ms=float(np.median(times)),
        slowest_ms=float(max(times)),
        shifts={
            number: [float(value) for value in one.x]
            for number, one in enumerate(verdicts)
            if isinstance(one, Counterexample)
        },
        sizes=tuple(sorted(sizes, key=lambda one: (one.depth, one.trees))),
        answers=Answers(
            ensemble=ensemble,
            rows=x,
            shape=shape,
            names=data.feature_names or tuple(f"pixel {f}" for f in range(x.shape[1])),
            labels=labels,
            verdicts=tuple(verdicts),
            times_ms=tuple(times),
            usage=usage,
            progress=progress,
        ),
    )


def _ask(
    question: Question, ensemble: Ensemble, rows: np.ndarray, console: Console
) -> Iterator[Timed]:
    """Verify the rows where the question says, with a progress bar."""
    budget = Budget(seconds=question.seconds)
    inquiry = Inquiry(question.eps, rho=question.rho, budget=budget)
    hidden = not console.is_terminal

    def tell(purpose: str) -> None:
        if not hidden:
            console.print(f"compiling {purpose}, once; it is kept for the next time")

    with tell_compiling(tell):
        if question.ray is None:
            # A rehearsal: loading machine code is not what a row costs.
            briefly = Inquiry(question.eps, rho=question.rho, budget=Budget(nodes=1))
            list(verify_each(ensemble, rows[:1], briefly))
            answers = verify_each(ensemble, rows, inquiry, workers=question.workers)
        else:
            answers = verify_on_ray(ensemble, rows, inquiry, address=question.ray)
        yield from track(answers, "verifying", total=len(rows), console=console, disable=hidden)


def _size(
    path: Path, ensemble: Ensemble, timed: Sequence[Timed], labels: np.ndarray | None
) -> Size:
    median, p95 = np.quantile([1e3 * one.seconds for one in timed], [0.5, 0.95]).tolist()
    return Size(
        name=path.name,
        trees=ensemble.n_trees,
        depth=ensemble.depth,
        tally=_groups(ensemble, [one.verdict for one in timed], labels)[0],
        median_ms=median,
        p95_ms=p95,
    )


def _find_shape(question: Question, data: Dataset) -> tuple[int, int] | None:
    """Tell height and width of the image that a row is, if it is one."""
    shape = data.features.shape
    if len(shape) == 3:
        return int(shape[1]), int(shape[2])
    if question.shape is None:
        return None
    found = re.fullmatch(r"([0-9]{1,4})x([0-9]{1,4})", question.shape)
    if found is None or int(found[1]) * int(found[2]) != shape[1]:
        raise ConfigError(
            f"--shape is HEIGHTxWIDTH, {shape[1]} pixels in all, got {question.shape!r}"
        )
    return int(found[1]), int(found[2])


def _groups(
    ensemble: Ensemble, verdicts: Sequence[Verdict], labels: np.ndarray | None
) -> tuple[Tally, ...]:
    predicted = np.array([one.prediction for one in verdicts])
    if ensemble.task == "regress":
        labels = None  # an output is near its target, not right
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
    told = {one.name: getattr(findings, one.name) for one in fields(findings)}
    del told["answers"]
    told["groups"] = [asdict(group) for group in findings.groups]
    told["sizes"] = [asdict(size) for size in findings.sizes]
    write_text(path, json.dumps(told, indent=1))


def check_claim(findings: Findings, claim: float) -> None:
    """Raise ClaimError if less is verified than was claimed."""
    share = findings.verified_share
    if share is None:
        raise ConfigError(
            "--claim is about the accuracy of a classifier, which needs labels: give --label"
        )
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
