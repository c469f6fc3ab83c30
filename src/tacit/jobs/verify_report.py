"""The report of ``tacit verify --html``: what was found robust, fragile or neither, on one page."""

from collections.abc import Iterator
from pathlib import Path

from tacit.data.metrics import proportion
from tacit.jobs.kind import Screen
from tacit.jobs.verify import Answers, Question
from tacit.report import write
from tacit.result import NOTHING_SENT, Metric, Picture, Result, Sheet
from tacit.verify import Budget, Findings, Tally, count_importance, robust_features
from tacit.verify.figures import (
    draw_curves,
    explain_sheets,
    list_sheets,
    seen_domain,
    state_claim,
)
from tacit.verify.pictures import draw_attacks, draw_importance, draw_sets


def write_page(question: Question, answers: Answers, path: Path, screen: Screen) -> None:
    """Explain as many rows as were asked for, and write the report."""
    write(make_result(question, answers, screen), path)


def make_result(question: Question, answers: Answers, screen: Screen) -> Result:
    """Put everything that was found into one record."""
    findings = answers.findings
    explained = _explain(question, answers, screen) if question.importance else ((), ())
    return Result(
        kind="verify",
        name=f"{question.model.name}, {question.data.name}",
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
