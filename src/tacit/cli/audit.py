"""``tacit audit``: attack what a job protects, and put the claim beside the measurement."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from tacit.audit import Fleet, Verdict, build_result
from tacit.audit.membership import Plan, audit_membership, sweep
from tacit.audit.shadows import Report
from tacit.cli.audit_claims import put_to_the_test, short_claim
from tacit.cli.audit_job import AuditJob, AuditTable
from tacit.cli.audit_target import Target, make_target, trainer_of
from tacit.cli.config import Job
from tacit.cli.federated_job import FederatedJob
from tacit.cli.kind import Part
from tacit.cli.screen import say
from tacit.errors import DataError
from tacit.party import Progress, Usage
from tacit.result import Claim, Curve, Result, Sheet

_QUICK_ROWS = 300


def check_inputs(job: AuditJob, parties: Sequence[str]) -> None:
    """Make sure that the files of the job are there."""
    for key, path in (("data.file", job.data.file), ("model.file", job.model.file)):
        if path is not None and not path.is_file():
            raise DataError(f"{key}: no such file: {path} (from {Path.cwd()})")


def run(job: AuditJob, console: Console, search: Sequence[Path]) -> Part:
    """Audit a job of kind "audit"; contradicted claims are in the result."""
    result, _ = audit_job(job, console, search)
    return Part(result=result)


def audit_job(
    job: Job, console: Console, search: Sequence[Path], *, is_quick: bool = False
) -> tuple[Result, tuple[Verdict, ...]]:
    """Attack the model of a job; return what was found, and what became of its claims."""
    usage, progress = Usage(), Progress()
    if isinstance(job, AuditJob) and is_quick:
        job = job.quickened()
    with progress.stage("load"):
        say(console, "training the target …", "dim")
        target = make_target(job, search, rows=_QUICK_ROWS if is_quick else None)
    table = _table(job, is_quick)
    fleet = Fleet(cache=_cache(job, table), workers=table.workers, report=_teller(console))
    with progress.stage("compute"):
        found = audit_membership(
            target.model,
            target.members,
            target.non_members,
            trainer=target.trainer,
            plan=_plan(job, table),
            fleet=fleet,
        )
        findings, verdicts, claims = put_to_the_test(job, table, target, console)
        curves, sheets = _draw_sweep(job, table, target, fleet, console)
    words = "; ".join(short_claim(claim) for claim in claims[:1])
    result = build_result(
        job.job.name,
        [replace(one, claimed=words) for one in (*found.findings, *findings)],
        verdicts=verdicts,
        utility=found.utility,
        sheets=(*found.sheets, *sheets, _settings_sheet(job, table)),
        curves=curves,
        notes=found.notes,
        reports=(usage.report(name="auditor", role="attacks", progress=progress),),
    )
    return replace(result, claims=claims or (_no_claim(),)), verdicts


def _draw_sweep(
    job: Job, table: AuditTable, target: Target, fleet: Fleet, console: Console
) -> tuple[tuple[Curve, ...], tuple[Sheet, ...]]:
    if not isinstance(job, AuditJob) or not table.sweep:
        return (), ()
    say(console, f"sweeping {table.sweep_setting} …", "dim")
    curve, sheet = _sweep(job, table, target, fleet)
    return (curve,), (sheet,)


def _sweep(job: AuditJob, table: AuditTable, target: Target, fleet: Fleet) -> tuple[Curve, Sheet]:
    shape = tuple(target.members[0].shape[1:])
    trainers = {
        f"{table.sweep_setting} {value:g}": trainer_of(job.swept(value), shape, target.classes)
        for value in table.sweep
    }
    # The cheapest threat with teeth: shadow models for every setting would take too long.
    plan = replace(table.plan(), threats=("scores",))
    return sweep(
        trainers,
        target.members,
        target.non_members,
        name=table.sweep_setting,
        plan=plan,
        fleet=fleet,
    )


def _plan(job: Job, table: AuditTable) -> Plan:
    """Return what is tried; a federated target already is what a participant would see."""
    plan = table.plan()
    if isinstance(job, FederatedJob) and not plan.threats:
        return replace(plan, threats=("scores", "labels", "shadows", "gradients"))
    return plan


def _table(job: Job, is_quick: bool) -> AuditTable:
    if isinstance(job, AuditJob):
        return job.audit
    return AuditTable(shadows=4 if is_quick else 16)


def _cache(job: Job, table: AuditTable) -> Path:
    return table.cache or job.out.with_name(f"{job.out.name}-shadows")


def _teller(console: Console) -> Report:
    def tell(done: int, total: int) -> None:
        if done == total or done % max(total // 8, 1) == 0:
            say(console, f"shadow models: {done} of {total}", "dim")

    return tell


def _settings_sheet(job: Job, table: AuditTable) -> Sheet:
    """Write down what a repetition needs."""
    tables = {"data": getattr(job, "data", None), "model": getattr(job, "model", None)}
    tables |= {"train": getattr(job, "train", None), "privacy": getattr(job, "privacy", None)}
    rows = [
        (f"{name}.{key}", str(value))
        for name, one in (*tables.items(), ("audit", table))
        if one is not None
        for key, value in asdict(one).items()
        if value is not None and key not in ("workers", "cache")
    ]
    return Sheet(
        title="Settings",
        heads=("setting", "value"),
        rows=tuple(rows),
        caption="The same settings give the same numbers on the same kind of machine.",
    )


def _no_claim() -> Claim:
    return Claim(
        subject="each member's presence in the training data",
        guarantee="no guarantee",
        assumptions=("nothing was claimed; an attack that fails proves nothing",),
    )
