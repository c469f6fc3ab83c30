"""``tacit audit``, as click sees it."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tacit.cli.screen import OnConsole, say, working

if TYPE_CHECKING:
    from tacit.cli.commands.group import Edge

_PATH = click.Path(path_type=Path)


@click.command(
    epilog="\n".join(
        [
            *("\b", "Examples:"),
            "  tacit audit examples/jobs/audit-digits.toml --html out.html",
            "  tacit audit examples/jobs/fl-digits.toml --quick",
            "  tacit audit examples/jobs/train-digits.toml --workers 4",
        ]
    )
)
@click.argument("job", type=_PATH)
@click.option("--html", type=_PATH, help="Also write the page here.")
@click.option("--out", type=_PATH, help="Folder for the result, instead of the job's.")
@click.option("--quick", is_flag=True, help="Fewer records, models and trials: a first answer.")
@click.option("--workers", type=click.IntRange(1), help="Processes that train shadow models.")
@click.option("--ray", help='Train shadow models on Ray: "local", or the address of a cluster.')
@click.pass_obj
def audit(
    edge: "Edge",
    job: Path,
    html: Path | None,
    out: Path | None,
    quick: bool,
    workers: int | None,
    ray: str | None,
) -> None:
    """Attack what JOB trains, and put its claims to the test.

    JOB is of kind "audit", "audit-llm", "federated", "split" or "train". Says for every threat how
    well the best attack did. Exits with 3 if a claim is contradicted. Shadow models are kept beside
    the result: an interrupted audit goes on where it stopped.
    """
    with working(edge.err, "starting"):
        from tacit import report as reports
        from tacit.audit import check_verdicts
        from tacit.cli.environment import data_folders
        from tacit.cli.launch.member import write_result
        from tacit.jobs.audit import audit_job
        from tacit.jobs.folder import REPORT, RESULT, check_target, staged
        from tacit.jobs.kinds import kind_of, load_job

        loaded, source = load_job(job), job.read_bytes()
        is_own = loaded.job.kind in ("audit", "audit-llm")
        # The result of an audit stays apart from the result of the job itself.
        beside = loaded.out if is_own else loaded.out.with_name(f"{loaded.out.name}-audit")
        target = out or beside
        check_target(target)
        kind_of(loaded).check_inputs(loaded, tuple(loaded.parties))
        result, verdicts = audit_job(
            *(loaded, OnConsole(edge.err), data_folders()),
            is_quick=quick,
            workers=workers,
            ray=ray,
        )
        with staged(target) as stage:
            write_result(loaded, source, result, stage)
    if html is not None:
        reports.write(result, html)
    edge.out.print()
    edge.out.print(reports.summarise(result))
    page = html or target / REPORT
    say(edge.out, f"\nReport: {page if page.exists() else target / RESULT}")
    check_verdicts(verdicts)
