"""The report of ``tacit verify --html``: one page with what was proved, found and left open."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

from tacit.cli.jobs.verify import Answers, Findings, Question, Size, Tally
from tacit.cli.jobs.verify_pictures import draw_attacks, draw_importance, draw_sets
from tacit.learn.metrics import proportion
from tacit.report import write
from tacit.result import NOTHING_SENT, Claim, Curve, Metric, Picture, Result, Sheet
from tacit.verify import (
    Budget,
    Counterexample,
    Domain,
    RobustSet,
    Unknown,
    count_importance,
    robust_features,
)

MOST_LINES = 20
"""Lines of a table of examples; the JSON file holds the rest."""
QUANTILES = (0.5, 0.9, 0.95, 0.99, 1.0)


def write_page(question: Question, findings: Findings, path: Path, console: Console) -> None:
    """Explain as many rows as were asked for, and write the report."""
    write(make_result(question, findings, console), path)


def make_result(question: Question, findings: Findings, console: Console) -> Result:
    """Put everything that was found into one record."""
    answers = findings.answers
    explained = _explain(question, answers, console) if question.importance else ((), ())
    return Result(
        kind="verify",
        name=f"{question.model.name}, {question.data.name}",
        protocol="exact search",
        launched="one process",
        parties=(answers.usage.report(name="here", role="verifier", progress=answers.progress),),
        forecast=None,
        metered=NOTHING_SENT,
        leakage=(),
        claims=(_claim(findings),),
        utility=tuple(_metrics(findings)),
        curves=(_spread(answers.times_ms), *_size_curves(findings.sizes)),
        pictures=(*draw_attacks(answers), *explained[0]),
        sheets=(*_sheets(findings), *explained[1]),
        notes=(
            "Robustness around these rows says nothing about other rows, nor about privacy.",
            "Times are processor time per row; the search was compiled before.",
        ),
    )


def _claim(findings: Findings) -> Claim:
    every = findings.groups[0]
    return Claim(
        subject=f"{every.robust} of {every.rows} rows",
        guarantee=(
            f"no input within ±{findings.eps:g} of such a row, in all features at once, "
            "changes the answer"
        ),
        assumptions=(
            "the library computes as it did when it was imported: same types, same order of sums",
            f"the model is the one described by: {findings.answers.ensemble.origin}",
        ),
    )


def _metrics(findings: Findings) -> Iterator[Metric]:
    every = findings.groups[0]
    for group in findings.groups:
        if group.verified is not None:
            where = "" if group is every else f", {group.name}"
            note = "right and proved robust"
            yield _share(f"verified robust accuracy{where}", group.verified, group, note)
    if every.right is not None:
        yield _share("accuracy", every.right, every, "without any perturbation")
    yield _share("robust rows", every.robust, every, "proved, rightly predicted or not")
    yield _share("unsolved rows", every.unknown, every, "the budget ran out, or a near tie")


def _share(name: str, hits: int, group: Tally, note: str) -> Metric:
    if not group.rows:
        return Metric(name=name, value=None, unit="fraction", samples=0, note=note)
    return proportion(name, hits, group.rows, note=note)


def _spread(times_ms: Sequence[float]) -> Curve:
    ordered = np.sort(times_ms)
    shares = np.arange(1, ordered.size + 1) / ordered.size
    return Curve(
        title="Time per row",
        x_label="milliseconds",
        y_label="share of rows that took no longer",
        name="search",
        points=tuple(zip(ordered.tolist(), shares.tolist(), strict=True)),
        x_axis="log",
    )


def _size_curves(sizes: Sequence[Size]) -> Iterator[Curve]:
    """Draw what the number of trees does, one line per depth."""
    for depth in sorted({one.depth for one in sizes}):
        same = [one for one in sizes if one.depth == depth]
        for title, y_label, read in _SIZE_QUANTITIES:
            yield Curve(
                title=title,
                x_label="trees",
                y_label=y_label,
                name=f"depth {depth}",
                points=tuple((float(one.trees), read(one)) for one in same),
                # A line through one point cannot be seen.
                style="line" if len(same) > 1 else "dots",
            )


def _share_robust(size: Size) -> float:
    return size.tally.robust / max(size.tally.rows, 1)


def _median(size: Size) -> float:
    return size.median_ms


_SIZE_QUANTITIES = (
    ("Robustness against trees × depth", "share of rows proved robust", _share_robust),
    ("Time against trees × depth", "milliseconds per row, median", _median),
)


def _size_sheet(sizes: Sequence[Size]) -> Sheet:
    return Sheet(
        title="Effect of trees × depth",
        heads=(
            *("model", "#trees", "#depth", "#right", "#robust", "#fragile", "#unknown"),
            *("#verified", "#median ms", "#p95 ms"),
        ),
        rows=tuple(
            (
                *(one.name, str(one.trees), str(one.depth), *_cells(one.tally)[2:]),
                *(f"{one.median_ms:.3g}", f"{one.p95_ms:.3g}"),
            )
            for one in sizes
        ),
        caption="The same rows and the same radius for every model.",
    )


def _sheets(findings: Findings) -> Iterator[Sheet]:
    answers = findings.answers
    yield Sheet(
        title="Rows by class",
        heads=("rows", "#count", "#right", "#robust", "#fragile", "#unknown", "#verified"),
        rows=tuple(_cells(group) for group in findings.groups),
        caption="robust: proved; fragile: a counterexample was replayed; verified: right, robust",
    )
    if findings.sizes:
        yield _size_sheet(findings.sizes)
    times = np.quantile(answers.times_ms, QUANTILES)
    yield Sheet(
        title="Time per row",
        heads=("quantile", "#milliseconds"),
        rows=tuple((f"{q:.0%}", f"{t:.3g}") for q, t in zip(QUANTILES, times, strict=True)),
        caption=f"n = {len(answers.times_ms)}",
    )
    changed = tuple(_changed_lines(answers))
    if changed:
        yield Sheet(
            title="Inputs that change the answer",
            heads=("#row", "answer", "becomes", "#features moved", "the largest moves"),
            rows=changed[:MOST_LINES],
            caption=f"{min(len(changed), MOST_LINES)} of {len(changed)}; each was replayed",
        )
    unsolved = [(n, one) for n, one in enumerate(answers.verdicts) if isinstance(one, Unknown)]
    if unsolved:
        yield Sheet(
            title="Unsolved rows",
            heads=("#row", "why"),
            rows=tuple((str(number), one.reason) for number, one in unsolved[:MOST_LINES]),
            caption=f"{min(len(unsolved), MOST_LINES)} of {len(unsolved)}",
        )


def _cells(group: Tally) -> tuple[str, ...]:
    counts = (group.right, group.robust, group.fragile, group.unknown, group.verified)
    shown = ("not measured" if n is None else f"{n / max(group.rows, 1):.1%}" for n in counts)
    return (group.name, str(group.rows), *shown)


def _changed_lines(answers: Answers) -> Iterator[tuple[str, ...]]:
    for number, verdict in enumerate(answers.verdicts):
        if not isinstance(verdict, Counterexample):
            continue
        move = verdict.x - verdict.box.center
        largest = np.argsort(-np.abs(move), kind="stable")[:3]
        moves = (f"{answers.names[f]} {move[f]:+.3g}" for f in largest if move[f])
        yield (
            str(number),
            f"{verdict.prediction:g}",
            f"{verdict.changed:g}",
            str(int((move != 0).sum())),
            ", ".join(moves),
        )


def _explain(
    question: Question, answers: Answers, console: Console
) -> tuple[tuple[Picture, ...], tuple[Sheet, ...]]:
    """Find robust feature sets of the first rows, and count them per class."""
    rows = answers.rows[: question.importance]
    budget, domain = Budget(seconds=question.seconds), _domain(answers)
    with answers.progress.stage("explain"):
        sets = [
            robust_features(answers.ensemble, row, question.eps, domain=domain, budget=budget)
            for row in track(rows, "explaining", console=console, disable=not console.is_terminal)
        ]
    classes = [int(one.prediction) for one in answers.verdicts[: len(rows)]]
    found = count_importance(answers.ensemble, classes, sets)
    sheets = [_set_sheet(answers, classes, sets)]
    if answers.shape is None:
        sheets.append(_importance_sheet(answers, found.share, found.robust))
    drawn = *draw_sets(answers, classes, sets), *draw_importance(answers.shape, found)
    return drawn, tuple(sheets)


def _domain(answers: Answers) -> Domain:
    """Let features that are set free range over the values seen: of an image, of any pixel."""
    axis = None if answers.shape else 0
    return Domain(low=answers.rows.min(axis=axis), high=answers.rows.max(axis=axis))


def _set_sheet(answers: Answers, classes: Sequence[int], sets: Sequence[RobustSet | None]) -> Sheet:
    lines = []
    for number, (label, found) in enumerate(zip(classes, sets, strict=True)):
        if found is not None:
            names = [answers.names[f] for f in found.features[:8]]
            more = ["…"] if len(found.features) > len(names) else []
            size = f"{'' if found.is_minimal else '≤ '}{len(found.features)}"
            lines.append((str(number), str(label), size, ", ".join([*names, *more])))
    return Sheet(
        title="Robust feature sets",
        heads=("#row", "class", "#features", "which"),
        rows=tuple(lines[:MOST_LINES]),
        caption=(
            f"{min(len(lines), MOST_LINES)} of {len(lines)} robust rows among the first "
            f"{len(sets)}. While these features stay within eps, all others may take any value "
            "between the least and the largest of the data, and the class stays; none of them can "
            "be left out."
        ),
    )


def _importance_sheet(answers: Answers, share: np.ndarray, robust: np.ndarray) -> Sheet:
    order = np.argsort(-np.nan_to_num(share).sum(axis=0), kind="stable")
    rows = [
        (answers.names[f], *("not measured" if np.isnan(s) else f"{s:.0%}" for s in share[:, f]))
        for f in order[:MOST_LINES]
    ]
    return Sheet(
        title="Local robust feature importance",
        heads=("feature", *(f"#class {label} (n = {n})" for label, n in enumerate(robust))),
        rows=tuple(rows),
        caption="Share of a class's robust rows whose robust set holds the feature.",
    )
