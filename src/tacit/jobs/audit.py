"""Jobs of kind "audit" and "audit-llm", and ``tacit audit``, which attacks what others train."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tacit.audit import Fleet, Verdict, build_result
from tacit.audit.membership import Effort
from tacit.audit.spec import AuditLlmSpec, AuditSpec
from tacit.audit.targets import (
    Target,
    audit_target,
    no_claim,
    own_target,
    target_of_rounds,
    target_of_split,
    target_of_training,
)
from tacit.errors import ConfigError, DataError
from tacit.extras import check_extra
from tacit.jobs.config import Job, LoneJob
from tacit.jobs.folder import find_model
from tacit.jobs.kind import ALL_HERE, Asked, Kind, Outlook, Part, Screen
from tacit.nn.code import split_code
from tacit.party import Progress, Usage
from tacit.result import Result, Sheet
from tacit.spec import refuse_together

_ALONE = "an audit has no parties: it runs here, alone"
_QUICK = Effort(shadows=4, rounds=2000)
_QUICK_ROWS = 300
"""A first answer about what another kind of job trains; an audit quickens its own settings."""


@dataclass(frozen=True, kw_only=True)
class AuditJob(AuditSpec, LoneJob):
    """A job of kind "audit"."""

    alone = _ALONE
    does = "attacks"

    def __post_init__(self) -> None:
        refuse_together(super().__post_init__, self.check_parties)


@dataclass(frozen=True, kw_only=True)
class AuditLlmJob(AuditLlmSpec, LoneJob):
    """A job of kind "audit-llm"."""

    alone = _ALONE
    does = "attacks"

    def __post_init__(self) -> None:
        self.check_parties()


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


def forecast(job: AuditJob, asked: Asked) -> Outlook:
    """Say what is trained and attacked."""
    asked.refuse("rows", "features")
    table, data = job.audit, job.data
    target = "a target is trained" if job.model.file is None else f"{job.model.file} is the target"
    how = (
        f"{job.train.epochs} epochs" if job.privacy is None else f"{job.privacy.steps} noisy steps"
    )
    rows = "all rows" if data.rows is None else f"{data.rows} rows"
    threats = ", ".join(table.threats) or "all threats that the target allows"
    lines = [
        f"{rows} of {data.set or data.file}; {target}, models train for {how}",
        f"Membership: {threats}; up to {table.shadows} shadow models",
    ]
    if job.privacy is not None:
        lines.append(
            f"The claimed ε at δ = {job.privacy.delta:g} is put to the test with {table.canaries} "
            f"canaries and {table.rounds} single rounds, at a confidence of {table.confidence:.0%}"
        )
    if table.sweep:
        values = ", ".join(f"{value:g}" for value in table.sweep)
        lines.append(f"All of it again for {table.sweep_setting} = {values}")
    return Outlook(about="audit", lines=(*lines, ALL_HERE))


def forecast_llm(job: AuditLlmJob, asked: Asked) -> Outlook:
    """Say what a language model is asked."""
    asked.refuse("rows", "features")
    texts = job.texts
    lines = [
        f"{job.model.path}: {texts.count} texts, {texts.prefix} tokens known, {texts.tokens} "
        f"wanted, {job.audit.draws} draws each",
    ]
    if job.canaries is not None:
        lines.append(f"{len(job.canaries.planted)} planted canaries are ranked")
    return Outlook(about="audit-llm", lines=(*lines, ALL_HERE))


def run(job: Job, screen: Screen, search: Sequence[Path]) -> Part:
    """Audit a job of kind "audit" or "audit-llm"; contradicted claims are in the result."""
    result, _ = audit_job(job, screen, search)
    return Part(result=result)


def audit_job(
    job: Job,
    screen: Screen,
    search: Sequence[Path],
    *,
    is_quick: bool = False,
    workers: int | None = None,
    ray: str | None = None,
) -> tuple[Result, tuple[Verdict, ...]]:
    """Attack the model of a job; return what was found, and what became of its claims.

    Args:
        job: of a kind that trains something.
        screen: where it is said what is done.
        search: folders that may hold data sets.
        is_quick: fewer records, models and trials.
        workers: processes that train shadow models; what the job says if not given.
        ray: "local" or the address of a Ray cluster to train them on instead.
    """
    usage, progress = Usage(), Progress(screen.tell)
    verdicts: tuple[Verdict, ...] = ()
    if isinstance(job, AuditLlmJob):
        job = job.quickened() if is_quick else job
        result = _audit_language(job, progress)
    else:
        if isinstance(job, AuditJob):
            job = job.quickened() if is_quick else job
            effort = job.audit
        else:
            effort = _QUICK if is_quick else Effort()
        with progress.stage("training the target"):
            target = make_target(job, search, rows=_QUICK_ROWS if is_quick else None)
        found, verdicts = audit_target(
            job.job.name,
            target,
            effort=effort,
            fleet=Fleet(
                cache=effort.cache or job.out.with_name(f"{job.out.name}-shadows"),
                workers=workers or effort.workers,
                ray=ray,
            ),
            is_quick=is_quick,
            progress=progress,
        )
        result = replace(found, sheets=(*found.sheets, _settings_of(job, effort)))
    report = usage.report(name="auditor", role="attacks", progress=progress)
    return replace(result, parties=(report,)), verdicts


TARGETS: Mapping[str, Callable[[Any, Sequence[Path], int | None], Target]] = {
    "audit": lambda job, search, rows: own_target(job, search),
    "federated": lambda job, search, rows: target_of_rounds(job, search, rows=rows),
    "split": lambda job, search, rows: target_of_split(job, search, rows=rows, how=job.audit),
    "train": lambda job, search, rows: target_of_training(
        job, search, rows=rows, kept=find_model(job.out)
    ),
}
"""What is attacked of a job, by its kind."""


def make_target(job: Job, search: Sequence[Path], *, rows: int | None = None) -> Target:
    """Load the rows of a job and train or load its model.

    Raises:
        ConfigError: a kind of job that cannot be audited.
    """
    if job.job.kind not in TARGETS:
        raise ConfigError(
            "wanted a job that trains something, of kind 'audit', 'federated', 'split' or 'train', "
            f"or a language model, of kind 'audit-llm', got {job.job.kind!r}"
        )
    return TARGETS[job.job.kind](job, search, rows)


def _audit_language(job: AuditLlmJob, progress: Progress) -> Result:
    # Checkpoints and tokenizers are heavy to import, and most audits need none.
    from tacit.audit.language import audit_language
    from tacit.llm import open_checkpoint

    second = job.model.second
    with progress.stage("load"):
        checkpoint = open_checkpoint(job.model.path)
        model, tokenizer = checkpoint.load(), checkpoint.tokenizer()
        other = None if second is None else open_checkpoint(second).load()
    findings, curves = audit_language(
        model,
        tokenizer,
        _read_lines(job.texts.file),
        texts=job.texts,
        canaries=job.canaries,
        second=other,
        effort=job.audit,
        progress=progress,
    )
    # Canaries are secrets and stay out.
    sheet = _settings_sheet({"model": job.model, "texts": job.texts, "audit": job.audit})
    result = build_result(job.job.name, findings, settings=(sheet,), curves=curves)
    return replace(result, claims=(no_claim("each training text"),))


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"texts.file: {path}: wanted text in UTF-8: {error}") from error


def _check_files(named: dict[str, Path | None]) -> None:
    for key, path in named.items():
        if path is not None and not path.is_file():
            raise DataError(f"{key}: no such file: {path} (from {Path.cwd()})")


def _settings_of(job: Job, effort: Effort) -> Sheet:
    names = ["data", "model", "train", "training", "federated", "split", "privacy"]
    if isinstance(job, AuditJob) and job.privacy is not None:
        names.remove("train")  # DP-SGD trains by [privacy] alone
    tables = {name: getattr(job, name, None) for name in names}
    return _settings_sheet({**tables, "audit": effort})


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


KIND = Kind(record=AuditJob, check_inputs=check_inputs, forecast=forecast, run=run)
KIND_LLM = Kind(record=AuditLlmJob, check_inputs=check_llm_inputs, forecast=forecast_llm, run=run)
