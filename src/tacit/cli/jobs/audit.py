"""``tacit audit``: attack what a job protects, and put the claim beside the measurement."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from tacit.audit import Fleet, Verdict, build_result
from tacit.audit.membership import Plan, audit_membership, sweep
from tacit.audit.shadows import Report
from tacit.cli.jobs.audit_claims import put_to_the_test, short_claim
from tacit.cli.jobs.audit_job import AuditJob, AuditTable
from tacit.cli.jobs.audit_llm import audit_language
from tacit.cli.jobs.audit_llm_job import AuditLlmJob
from tacit.cli.jobs.audit_pictures import show_classes
from tacit.cli.jobs.audit_sides import Target, no_claim
from tacit.cli.jobs.audit_target import make_target, trainer_of
from tacit.cli.jobs.code import split_code
from tacit.cli.jobs.config import Job
from tacit.cli.jobs.kind import Part
from tacit.cli.screen import say
from tacit.errors import DataError
from tacit.party import Progress, Usage
from tacit.result import Curve, Result, Sheet

_QUICK_ROWS = 300
_SUBJECT = "each member's presence in the training data"


def check_inputs(job: AuditJob, parties: Sequence[str]) -> None:
    """Make sure that the files of the job are there."""
    named = {
        "data.file": job.data.file,
        "data.members": job.data.members,
        "data.strangers": job.data.strangers,
        "model.file": job.model.file,
        "model.code": None if job.model.code is None else split_code(job.model.code)[0],
    }
    for key, path in named.items():
        if path is not None and not path.is_file():
            raise DataError(f"{key}: no such file: {path} (from {Path.cwd()})")


def run(job: AuditJob, console: Console, search: Sequence[Path]) -> Part:
    """Audit a job of kind "audit"; contradicted claims are in the result."""
    result, _ = audit_job(job, console, search)
    return Part(result=result)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much work an audit may be, and where it is done.

    Attributes:
        is_quick: fewer records, models and trials.
        workers: processes that train shadow models; what the job says if not given.
        ray: "local" or the address of a Ray cluster to train them on instead.
    """

    is_quick: bool = False
    workers: int | None = None
    ray: str | None = None


def audit_job(
    job: Job,
    console: Console,
    search: Sequence[Path],
    *,
    effort: Effort = Effort(),  # noqa: B008  it is frozen
) -> tuple[Result, tuple[Verdict, ...]]:
    """Attack the model of a job; return what was found, and what became of its claims."""
    if isinstance(job, AuditLlmJob):
        return audit_language(job, console, is_quick=effort.is_quick), ()
    usage, progress = Usage(), Progress()
    if isinstance(job, AuditJob) and effort.is_quick:
        job = job.quickened()
    with progress.stage("load"):
        say(console, "training the target …", "dim")
        target = make_target(job, search, rows=_QUICK_ROWS if effort.is_quick else None)
    table = _table(job, effort.is_quick)
    fleet = Fleet(
        cache=_cache(job, table),
        workers=effort.workers or table.workers,
        ray=effort.ray,
        report=_teller(console),
    )
    with progress.stage("compute"):
        found = audit_membership(
            target.model,
            target.members,
            target.non_members,
            trainer=target.trainer,
            plan=_plan(target, table),
            fleet=fleet,
        )
        shown = show_classes(target, is_quick=effort.is_quick)
        findings, verdicts, claims = put_to_the_test(job, table, target, console)
        curves, sheets = _draw_sweep(job, table, target, fleet, console)
    words = "; ".join(short_claim(claim) for claim in claims[:1])
    result = build_result(
        job.job.name,
        [
            replace(one, claimed=words)
            for one in (*found.findings, *target.findings, *shown, *findings)
        ],
        verdicts=verdicts,
        utility=found.utility,
        sheets=(*found.sheets, *sheets),
        settings=(_settings_sheet(job, table),),
        curves=curves,
        notes=(*target.notes, *found.notes),
        reports=(usage.report(name="auditor", role="attacks", progress=progress),),
    )
    return replace(result, claims=(*claims, *target.claims) or (no_claim(_SUBJECT),)), verdicts


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


def _plan(target: Target, table: AuditTable) -> Plan:
    """Return what is tried: what the job asks for, else what makes sense for its kind."""
    plan = table.plan()
    return plan if plan.threats else replace(plan, threats=target.threats)


def _table(job: Job, is_quick: bool) -> AuditTable:
    if isinstance(job, AuditJob):
        return job.audit
    return AuditTable(shadows=4, rounds=2000) if is_quick else AuditTable()


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
    tables |= {
        name: getattr(job, name, None)
        for name in ("train", "training", "federated", "split", "privacy")
    }
    rows = [
        (f"{name}.{key}", ", ".join(map(str, value)) if isinstance(value, tuple) else str(value))
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
