"""The job of kind "verify", and ``tacit verify``: how many rows keep their class, proved."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tacit.data import Rows, load_file
from tacit.data.metrics import proportion
from tacit.errors import ClaimError, ConfigError, DataError
from tacit.jobs.config import LoneJob
from tacit.jobs.folder import write_text
from tacit.jobs.kind import ALL_HERE, Asked, Kind, Outlook, Part, Screen
from tacit.party import Progress, Usage
from tacit.result import NOTHING_SENT, Metric, Picture, Result, Sheet
from tacit.verify import (
    Budget,
    Ensemble,
    Findings,
    Inquiry,
    Tally,
    Timed,
    count_importance,
    load_ensemble,
    measure_size,
    robust_features,
    tell_compiling,
    verify_each,
    verify_on_ray,
)
from tacit.verify.figures import (
    draw_attacks,
    draw_curves,
    draw_importance,
    draw_sets,
    explain_sheets,
    list_sheets,
    seen_domain,
    state_claim,
)
from tacit.verify.spec import Question, VerifySpec


@dataclass(frozen=True, kw_only=True)
class VerifyJob(VerifySpec, LoneJob):
    """A job of kind "verify"."""

    alone = "a verification has no parties: it runs here, alone"
    does = "verifies"

    def __post_init__(self) -> None:
        self.check_parties()


def check_inputs(job: VerifyJob, parties: Sequence[str]) -> None:
    """Make sure that the files of the job are there."""
    for path in (job.model.file, *job.model.beside, job.data.file):
        if not path.is_file():
            raise DataError(f"no such file: {path} (from {Path.cwd()})")


def forecast(job: VerifyJob, asked: Asked) -> Outlook:
    """Say what is proved, and who is given the rows."""
    asked.refuse("rows", "features")
    table = job.verify
    rows = "every row" if job.data.rows is None else f"the first {job.data.rows} rows"
    lines = [
        f"{job.model.file}: whether {rows} of {job.data.file} keep their answer if every feature "
        f"moves by up to {table.eps:g}; at most {table.seconds:g} s for a row"
    ]
    if table.claim is not None:
        lines.append(f"A verified robust accuracy below {table.claim:g} ends the job with code 3")
    if table.ray is None:
        lines.append(ALL_HERE)
    else:
        lines.append(
            f"No forecast of traffic: the Ray cluster at {table.ray!r} gets the model and the rows."
        )
    return Outlook(about="verify", lines=tuple(lines))


def run(job: VerifyJob, screen: Screen, search: Sequence[Path]) -> Part:
    """Verify every row; ClaimError if less is verified than the job claims."""
    answers = answer(job, screen)
    check_claim(answers.findings, job.verify.claim)
    return Part(result=make_result(job, answers, screen))


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """What was found about every row, and what it took."""

    findings: Findings
    usage: Usage
    progress: Progress


def answer(spec: VerifySpec, screen: Screen) -> Answers:
    """Verify every row of a file, with a progress bar."""
    usage, progress, beside = Usage(), Progress(), spec.model.beside
    with progress.stage("load"):
        ensemble = load_ensemble(spec.model.file)
        others = [load_ensemble(path) for path in beside]
        data = load_file(spec.data.file, label=spec.data.label, allows_missing=True)
        for one in (ensemble, *others):
            _check_missing(spec, one, data)
    shape = _find_shape(spec.data.shape, data)
    x = data.features[: spec.data.rows].reshape(-1, int(np.prod(data.features.shape[1:])))
    labels = None if data.labels is None else data.labels[: spec.data.rows]
    with _telling(screen):
        with progress.stage("compile"):
            _rehearse(spec.verify, ensemble, x)
        with progress.stage("verify"):
            timed = tuple(_ask(spec.verify, ensemble, x, screen))
        sizes = []
        if beside:
            sizes.append(measure_size(spec.model.file.name, ensemble, timed, labels))
            with progress.stage("verify other sizes"):
                for path, other in zip(beside, others, strict=True):
                    _rehearse(spec.verify, other, x)
                    told = tuple(_ask(spec.verify, other, x, screen))
                    sizes.append(measure_size(path.name, other, told, labels))
    findings = Findings(
        ensemble=ensemble,
        eps=spec.verify.eps,
        rows=x,
        timed=timed,
        labels=labels,
        names=data.columns or tuple(f"pixel {f}" for f in range(x.shape[1])),
        shape=shape,
        sizes=tuple(sorted(sizes, key=lambda one: (one.depth, one.trees))),
    )
    return Answers(findings=findings, usage=usage, progress=progress)


def _check_missing(spec: VerifySpec, ensemble: Ensemble, data: Rows) -> None:
    """Refuse missing values that a model does not take, before any row is asked about."""
    missing = int(np.isnan(data.features[: spec.data.rows]).sum())
    if missing and not ensemble.takes_missing:
        raise DataError(
            f"{spec.data.file}: {missing} values are missing, and {ensemble.origin} takes none; "
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


def _find_shape(wanted: str | None, data: Rows) -> tuple[int, int] | None:
    """Tell height and width of the image that a row is, if it is one."""
    shape = data.features.shape
    if len(shape) == 3:
        return int(shape[1]), int(shape[2])
    if wanted is None:
        return None
    found = re.fullmatch(r"([0-9]{1,4})x([0-9]{1,4})", wanted)
    if found is None or int(found[1]) * int(found[2]) != shape[1]:
        raise ConfigError(f"--shape is HEIGHTxWIDTH, {shape[1]} pixels in all, got {wanted!r}")
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


def check_claim(findings: Findings, claim: float | None) -> None:
    """Raise ClaimError if less is verified than was claimed."""
    if claim is None:
        return
    share = findings.verified_share
    if share is None:
        raise ConfigError(
            "--claim is about the accuracy of a classifier, which needs labels: give --label"
        )
    if share < claim:
        raise ClaimError(
            f"claimed a verified robust accuracy of at least {claim:.2%}, found {share:.2%}"
        )


def make_result(spec: VerifySpec, answers: Answers, screen: Screen) -> Result:
    """Put everything that was found into one record."""
    findings = answers.findings
    explained = _explain(spec.verify, answers, screen) if spec.verify.importance else ((), ())
    return Result(
        kind="verify",
        name=f"{spec.model.file.name}, {spec.data.file.name}",
        protocol="exact search",
        launched="one process",
        parties=(answers.usage.report(name="here", role="verifier", progress=answers.progress),),
        forecast=None,
        metered=NOTHING_SENT,
        leakage=(),
        claims=(state_claim(findings),),
        utility=tuple(_metrics(findings)),
        curves=draw_curves(findings),
        pictures=(*draw_attacks(findings), *explained[0]),
        sheets=(*list_sheets(findings), *explained[1]),
        notes=(
            "Robustness around these rows says nothing about other rows, nor about privacy.",
            "Rows are found robust by an exact search; `tacit.verify.prove` writes a certificate.",
            "Times are processor time per row; the search was compiled before.",
        ),
    )


def _metrics(findings: Findings) -> Iterator[Metric]:
    every = findings.groups[0]
    for group in findings.groups:
        if group.verified is not None:
            where = "" if group is every else f", {group.name}"
            name = f"verified robust accuracy{where}"
            yield _share(name, group.verified, group, "right and found robust")
    if every.right is not None:
        yield _share("accuracy", every.right, every, "without any perturbation")
    yield _share("robust rows", every.robust, every, "whether rightly predicted or not")
    yield _share("unsolved rows", every.unknown, every, "the budget ran out, or a near tie")


def _share(name: str, hits: int, group: Tally, note: str) -> Metric:
    if not group.rows:
        return Metric(name=name, value=None, unit="fraction", samples=0, note=note)
    return proportion(name, hits, group.rows, note=note)


def _explain(
    question: Question, answers: Answers, screen: Screen
) -> tuple[tuple[Picture, ...], tuple[Sheet, ...]]:
    """Find robust feature sets of the first rows, and count them per class."""
    findings = answers.findings
    rows, domain = findings.rows[: question.importance], seen_domain(findings)
    budget = Budget(seconds=question.seconds)
    with answers.progress.stage("explain"):
        sets = [
            robust_features(findings.ensemble, row, question.eps, domain=domain, budget=budget)
            for row in screen.track(rows, "explaining", len(rows))
        ]
    classes = [int(one.prediction) for one in findings.verdicts[: len(rows)]]
    found = count_importance(findings.ensemble, classes, sets)
    drawn = *draw_sets(findings, classes, sets), *draw_importance(findings.shape, found)
    return drawn, explain_sheets(findings, classes, sets, found)


KIND = Kind(record=VerifyJob, check_inputs=check_inputs, forecast=forecast, run=run)
