"""``tacit verify``, as click sees it."""

import os
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tacit.cli.screen import OnConsole, say, working

if TYPE_CHECKING:
    from tacit.cli.commands.group import Edge
    from tacit.verify import Findings

_PATH = click.Path(path_type=Path)


@click.command(
    epilog="\b\nExamples:\n"
    "  tacit verify model.json patients.csv --label diagnosis --eps 0.05\n"
    "  tacit verify model.ubj digits.npz --label y --eps 0.05 --html page.html --importance 50\n"
    "  tacit verify model.ubj rows.npz --eps 0.3 --out found.json --claim 0.9 --label y\n"
    "  tacit verify big.ubj rows.npz --eps 0.3 --label y --beside small.ubj --html sizes.html"
)
@click.argument("model", type=_PATH)
@click.argument("data", type=_PATH)
@click.option("--eps", type=float, required=True, help="How far every feature may move.")
@click.option("--rho", type=float, help="For a regression: how far the output may move.")
@click.option("--label", help="Column (or array) with the true classes, to measure accuracy.")
@click.option("--rows", type=click.IntRange(min=1), help="Only the first so many rows.")
@click.option("--seconds", type=float, default=60.0, show_default=True, help="Budget per row.")
@click.option("--claim", type=float, help="Exit with 3 if less of the rows is verified.")
@click.option("--out", type=_PATH, help="Write the findings as JSON.")
@click.option("--html", type=_PATH, help="Write a report with pictures.")
@click.option("--shape", help="HEIGHTxWIDTH, if the features are the pixels of an image.")
@click.option(
    "--importance",
    type=click.IntRange(min=0),
    default=0,
    help="For the report: find robust feature sets of the first so many rows.",
)
@click.option(
    "--beside",
    type=_PATH,
    multiple=True,
    help="Another model for the same rows, to see what trees and depth do; may be repeated.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=lambda: len(os.sched_getaffinity(0)),
    show_default="all cores",
    help="Rows verified at once.",
)
@click.option("--ray", metavar="ADDRESS", help="Verify on a Ray cluster, e.g. auto or local.")
@click.pass_obj
def verify(
    edge: "Edge",
    /,
    model: Path,
    data: Path,
    beside: tuple[Path, ...],
    label: str | None,
    rows: int | None,
    shape: str | None,
    out: Path | None,
    html: Path | None,
    **question: object,
) -> None:
    """Decide which rows of DATA keep their class under MODEL.

    MODEL is an XGBoost (.json, .ubj) or LightGBM (text) file, or one of any library saved by
    tacit.verify.save_ensemble; DATA is a .csv, .npz or .parquet.
    Every answer is exact: robust, a counterexample (replayed), or, after the budget, unknown.
    """
    with working(edge.err, "starting"):
        from tacit.jobs.verify import answer, check_claim, make_result, write_findings
        from tacit.report import write
        from tacit.verify.spec import Question, VerifyData, VerifyModel, VerifySpec

        spec = VerifySpec(
            model=VerifyModel(file=model, beside=beside),
            data=VerifyData(file=data, label=label, rows=rows, shape=shape),
            # The other options are called as its fields, and click has read their types.
            verify=Question(**question),  # type: ignore[arg-type]
        )
        answers = answer(spec, OnConsole(edge.err))
    findings = answers.findings
    edge.out.print(_laid_out(findings))
    if out is not None:
        write_findings(findings, out)
    if html is not None:
        with working(edge.err, "writing the report"):
            write(make_result(spec, answers, OnConsole(edge.err)), html)
        say(edge.out, f"Report: {html}")
    check_claim(findings, spec.verify.claim)


def _laid_out(findings: "Findings") -> RenderableType:
    """Lay the findings out as a table."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("rows", "count", "right", "robust", "fragile", "unknown", "verified"):
        table.add_column(name, justify="left" if name == "rows" else "right")
    for group in findings.groups:
        shown = (group.right, group.robust, group.fragile, group.unknown, group.verified)
        cells = ("not measured" if n is None else f"{n / max(group.rows, 1):.1%}" for n in shown)
        table.add_row(Text(group.name), f"{group.rows}", *cells)
    stays = "; missing values and categories stay" if findings.has_fixed else ""
    return Group(
        Text(f"Within ±{findings.eps:g} of every feature, exactly{stays}:"),
        table,
        Text(
            "robust: no input of the box changes the answer; fragile: one was found and replayed;"
        ),
        Text("verified: right and robust."),
        Text(
            f"{median(findings.times_ms):.2f} ms a row (median), "
            f"{max(findings.times_ms):.1f} ms the slowest"
        ),
    )
