"""``tacit verify``: how many rows keep their class, proved, within a distance."""

import json
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tacit.data import Rows, load_file
from tacit.errors import ClaimError, ConfigError, DataError
from tacit.jobs.folder import write_text
from tacit.jobs.kind import Screen
from tacit.party import Progress, Usage
from tacit.verify import (
    Budget,
    Ensemble,
    Findings,
    Inquiry,
    Timed,
    load_ensemble,
    measure_size,
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """What was found about every row, and what it took."""

    findings: Findings
    usage: Usage
    progress: Progress


def answer(question: Question, screen: Screen) -> Answers:
    """Verify every row of a file, with a progress bar."""
    usage, progress = Usage(), Progress()
    with progress.stage("load"):
        ensemble = load_ensemble(question.model)
        others = [load_ensemble(path) for path in question.beside]
        data = load_file(question.data, label=question.label, allows_missing=True)
        for one in (ensemble, *others):
            _check_missing(question, one, data)
    shape = _find_shape(question, data)
    x = data.features[: question.rows].reshape(-1, int(np.prod(data.features.shape[1:])))
    labels = None if data.labels is None else data.labels[: question.rows]
    with _telling(screen):
        with progress.stage("compile"):
            _rehearse(question, ensemble, x)
        with progress.stage("verify"):
            timed = tuple(_ask(question, ensemble, x, screen))
        sizes = []
        if question.beside:
            sizes.append(measure_size(question.model.name, ensemble, timed, labels))
            with progress.stage("verify other sizes"):
                for path, other in zip(question.beside, others, strict=True):
                    _rehearse(question, other, x)
                    told = tuple(_ask(question, other, x, screen))
                    sizes.append(measure_size(path.name, other, told, labels))
    findings = Findings(
        ensemble=ensemble,
        eps=question.eps,
        rows=x,
        timed=timed,
        labels=labels,
        names=data.columns or tuple(f"pixel {f}" for f in range(x.shape[1])),
        shape=shape,
        sizes=tuple(sorted(sizes, key=lambda one: (one.depth, one.trees))),
    )
    return Answers(findings=findings, usage=usage, progress=progress)


def _check_missing(question: Question, ensemble: Ensemble, data: Rows) -> None:
    """Refuse missing values that a model does not take, before any row is asked about."""
    missing = int(np.isnan(data.features[: question.rows]).sum())
    if missing and not ensemble.takes_missing:
        raise DataError(
            f"{question.data}: {missing} values are missing, and {ensemble.origin} takes none; "
            "fill them in, or train a model that knows missing values"
        )


def _rehearse(question: Question, ensemble: Ensemble, rows: np.ndarray) -> None:
    """Ask one question briefly: compiling and loading machine code is not what a row costs."""
    if question.ray is None:
        briefly = Inquiry(question.eps, rho=question.rho, budget=Budget(nodes=1))
        list(verify_each(ensemble, rows[:1], briefly))


def _ask(
    question: Question, ensemble: Ensemble, rows: np.ndarray, screen: Screen
) -> Iterator[Timed]:
    """Verify the rows where the question says, with a progress bar."""
    budget = Budget(seconds=question.seconds)
    inquiry = Inquiry(question.eps, rho=question.rho, budget=budget)
    if question.ray is None:
        answers = verify_each(ensemble, rows, inquiry, workers=question.workers)
    else:
        answers = verify_on_ray(ensemble, rows, inquiry, address=question.ray)
    yield from screen.track(answers, "verifying", len(rows))


def _telling(screen: Screen) -> AbstractContextManager[None]:
    """Say on a terminal that something is compiled, before it is."""

    def tell(purpose: str) -> None:
        if screen.is_terminal:
            screen.say(f"compiling {purpose}, once; it is kept for the next time")

    return tell_compiling(tell)


def _find_shape(question: Question, data: Rows) -> tuple[int, int] | None:
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


def write_findings(findings: Findings, path: Path) -> None:
    """Write the findings as JSON; ``shifts`` are counterexamples by row number."""
    told = {
        "eps": findings.eps,
        "groups": [asdict(group) for group in findings.groups],
        "median_ms": float(np.median(findings.times_ms)),
        "slowest_ms": max(findings.times_ms),
        "shifts": {
            # JSON has no NaN: what is missing is null.
            number: [None if np.isnan(value) else value for value in one.x.tolist()]
            for number, one in findings.counterexamples.items()
        },
        "sizes": [asdict(size) for size in findings.sizes],
    }
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
