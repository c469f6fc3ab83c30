"""``tacit audit``: attack what a job trains, and put its claims to the test."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tacit.audit import Fleet, Trainer, Verdict, build_result
from tacit.audit.privacy.claims import (
    claim_of_spec,
    claim_of_training,
    try_federated,
    try_training,
)
from tacit.audit.targets import Target, Tested, audit_target, no_claim
from tacit.errors import ConfigError, DataError
from tacit.extras import check_extra
from tacit.jobs.audit_job import AuditJob, AuditPrivacy, AuditTable
from tacit.jobs.audit_llm_job import AuditLlmJob
from tacit.jobs.audit_target import make_target, trainer_of
from tacit.jobs.config import Job
from tacit.jobs.federated_job import FederatedJob
from tacit.jobs.kind import Part, Screen
from tacit.nn.code import split_code
from tacit.party import Progress, Usage
from tacit.result import Result, Sheet

_QUICK_ROWS = 300


def check_inputs(job: AuditJob, parties: Sequence[str]) -> None:
    """Make sure that the files of the job are there, and what trains with privacy."""
    if job.privacy is not None:
        check_extra("dp", "[privacy]", "opacus")
    named = {
        "data.file": job.data.file,
        "data.members": job.data.members,
        "data.strangers": job.data.strangers,
        "model.file": job.model.file,
        "model.code": None if job.model.code is None else split_code(job.model.code)[0],
    }
    _check_files(named)


def check_llm_inputs(job: AuditLlmJob, parties: Sequence[str]) -> None:
    """Make sure that the files of a job of kind "audit-llm" are there."""
    _check_files({"texts.file": job.texts.file})
    for key, path in {"model.path": job.model.path, "model.second": job.model.second}.items():
        if path is not None and not path.exists():
            raise DataError(f"{key}: no such file or folder: {path} (from {Path.cwd()})")


def run(job: Job, screen: Screen, search: Sequence[Path]) -> Part:
    """Audit a job of kind "audit" or "audit-llm"; contradicted claims are in the result."""
    result, _ = audit_job(job, screen, search)
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
    screen: Screen,
    search: Sequence[Path],
    *,
    effort: Effort = Effort(),  # noqa: B008  it is frozen
) -> tuple[Result, tuple[Verdict, ...]]:
    """Attack the model of a job; return what was found, and what became of its claims."""
    usage, progress = Usage(), Progress(screen.tell)
    result, verdicts = (
        (_audit_language(job, progress, effort), ())
        if isinstance(job, AuditLlmJob)
        else _audit_training(job, search, progress, effort)
    )
    report = usage.report(name="auditor", role="attacks", progress=progress)
    return replace(result, parties=(report,)), verdicts


def _audit_training(
    job: Job, search: Sequence[Path], progress: Progress, effort: Effort
) -> tuple[Result, tuple[Verdict, ...]]:
    if isinstance(job, AuditJob) and effort.is_quick:
        job = job.quickened()
    with progress.stage("training the target"):
        target = make_target(job, search, rows=_QUICK_ROWS if effort.is_quick else None)
    table = AuditTable(shadows=4, rounds=2000) if effort.is_quick else AuditTable()
    if isinstance(job, AuditJob):
        table = job.audit
    tested, notes = _put_to_the_test(job, table, target, progress)
    fleet = Fleet(
        cache=table.cache or job.out.with_name(f"{job.out.name}-shadows"),
        workers=effort.workers or table.workers,
        ray=effort.ray,
    )
    result = audit_target(
        job.job.name,
        replace(target, notes=(*target.notes, *notes)),
        plan=table.plan(),
        fleet=fleet,
        tested=tested,
        swept=_sweep(job, target),
        is_quick=effort.is_quick,
        progress=progress,
    )
    tables = {"data": getattr(job, "data", None), "model": getattr(job, "model", None)}
    names = ("train", "training", "federated", "split", "privacy")
    tables |= {name: getattr(job, name, None) for name in names}
    if isinstance(job, AuditJob) and job.privacy is not None:
        del tables["train"]  # DP-SGD trains by [privacy] alone
    sheet = _settings_sheet({**tables, "audit": table})
    return replace(result, sheets=(*result.sheets, sheet)), tested.verdicts


def _audit_language(job: AuditLlmJob, progress: Progress, effort: Effort) -> Result:
    # Checkpoints and tokenizers are heavy to import, and most audits need none.
    from tacit.audit.language import audit_language
    from tacit.llm import open_checkpoint

    job = job.quickened() if effort.is_quick else job
    second = job.model.second
    with progress.stage("load"):
        checkpoint = open_checkpoint(job.model.path)
        model, tokenizer = checkpoint.load(), checkpoint.tokenizer()
        other = None if second is None else open_checkpoint(second).load()
    findings, curves = audit_language(
        model,
        tokenizer,
        read_texts(job.texts.file),
        canaries=job.canaries,
        second=other,
        plan=job.plan(),
        progress=progress,
    )
    # Canaries are secrets and stay out.
    sheet = _settings_sheet({"model": job.model, "texts": job.texts, "audit": job.audit})
    result = build_result(job.job.name, findings, settings=(sheet,), curves=curves)
    return replace(result, claims=(no_claim("each training text"),))


def read_texts(path: Path) -> list[str]:
    """Return the lines of a file of texts."""
    try:
        return path.read_text(encoding="utf8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"texts.file: {path}: wanted text in UTF-8: {error}") from error


def _put_to_the_test(
    job: Job, table: AuditTable, target: Target, progress: Progress
) -> tuple[Tested, tuple[str, ...]]:
    """Try what the job claims about ε, where it claims something that can be tried."""
    if isinstance(job, FederatedJob):
        with progress.stage("putting the claim to the test"):
            return _try_rounds(job, table)
    if isinstance(job, AuditJob) and job.privacy is not None:
        with progress.stage("putting the claim to the test"):
            return _try_training(job, job.privacy, target), ()
    return Tested(), ()


def _try_rounds(job: FederatedJob, table: AuditTable) -> tuple[Tested, tuple[str, ...]]:
    spec = job.spec()
    claim = claim_of_spec(spec)
    try:
        rounds = try_federated(spec, table.trials())
    except ConfigError as error:
        note = f"The noise of a round was not put to the test: {error}"
        return Tested(claims=(claim,)), (note,)
    return Tested(verdicts=rounds, claims=(claim, *(one.claim for one in rounds))), ()


def _try_training(job: AuditJob, privacy: AuditPrivacy, target: Target) -> Tested:
    settings = privacy.settings()
    claim = claim_of_training(
        settings,
        delta=privacy.delta,
        records=len(target.members[1]),
        claimed_epsilon=privacy.claimed_epsilon,
    )
    findings, verdicts = try_training(
        settings,
        claim,
        target.members,
        job.audit.trials(),
        trainer=target.trainer,
        classes=target.classes,
    )
    claims = tuple(dict.fromkeys(one.claim for one in verdicts))
    return Tested(findings=tuple(findings), verdicts=verdicts, claims=claims)


def _sweep(job: Job, target: Target) -> tuple[str, dict[str, Trainer]]:
    if not isinstance(job, AuditJob) or not job.audit.sweep:
        return "", {}
    setting, shape = job.audit.sweep_setting, tuple(target.members[0].shape[1:])
    return setting, {
        f"{setting} {value:g}": trainer_of(job.swept(value), shape, target.classes)
        for value in job.audit.sweep
    }


def _check_files(named: dict[str, Path | None]) -> None:
    for key, path in named.items():
        if path is not None and not path.is_file():
            raise DataError(f"{key}: no such file: {path} (from {Path.cwd()})")


def _settings_sheet(tables: dict[str, object]) -> Sheet:
    """Write down what a repetition needs."""
    rows = [
        (f"{name}.{key}", ", ".join(map(str, value)) if isinstance(value, tuple) else str(value))
        for name, one in tables.items()
        if one is not None
        for key, value in asdict(one).items()  # type: ignore[call-overload]
        if value is not None and key not in ("workers", "cache")
    ]
    return Sheet(
        title="Settings",
        heads=("setting", "value"),
        rows=tuple(rows),
        caption="The same settings give the same numbers on the same kind of machine.",
    )
