"""What jobs that run on one machine will do: federated training, audits, verification."""

from typing import TYPE_CHECKING

from tacit.federated import summary
from tacit.federated.front import rehearse
from tacit.federated.spec import HELPERS
from tacit.jobs.audit_job import AuditJob
from tacit.jobs.audit_llm_job import AuditLlmJob
from tacit.jobs.federated_data import task_of
from tacit.jobs.federated_job import FederatedJob
from tacit.jobs.kind import Asked, Outlook

if TYPE_CHECKING:
    from tacit.jobs.verify_job import VerifyJob  # brings a compiler along, which is an extra

NOTHING_SENT = "No forecast of traffic: nothing is sent, everything runs on this machine."


def forecast_federated(job: FederatedJob, asked: Asked) -> Outlook:
    """Rehearse one round, in which every client trains one step and nobody drops out."""
    asked.refuse("rows", "features")
    task = task_of(job, asked.search)
    config, up, down, (sent, received) = rehearse(task)
    far = task.load().state_far()
    rounds, clients = task.spec.rounds, config.clients
    name = HELPERS.get(task.spec.aggregator)
    helper = f"The {name} sends {sent:,} B and receives {received:,} B in a round."
    return Outlook(
        about=f"{job.federated.aggregator}, privacy {job.privacy.kind}",
        lines=(
            f"{clients} clients, {rounds} rounds, {config.parameters:,} parameters",
            f"A client sends {up:,.0f} B and receives {down:,.0f} B in a round, as a rehearsed "
            f"round did; all clients {clients * rounds * (up + down):,.0f} B in all rounds.",
            *([helper] if name else []),
            *([f"Warning: {far}."] if far else []),
            f"After {rounds} rounds: {summary.describe(config.mechanism.claim)}",
        ),
        leaks=summary.leaks_of(task.spec, config.parameters),
        claims=(config.mechanism.claim, *summary.claims_about_updates(task.spec)),
    )


def forecast_audit(job: AuditJob, asked: Asked) -> Outlook:
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
    return Outlook(about="audit", lines=(*lines, NOTHING_SENT))


def forecast_audit_llm(job: AuditLlmJob, asked: Asked) -> Outlook:
    """Say what a language model is asked."""
    asked.refuse("rows", "features")
    texts = job.texts
    lines = [
        f"{job.model.path}: {texts.count} texts, {texts.prefix} tokens known, {texts.tokens} "
        f"wanted, {job.audit.draws} draws each",
    ]
    if job.canaries is not None:
        lines.append(f"{len(job.canaries.planted)} planted canaries are ranked")
    return Outlook(about="audit-llm", lines=(*lines, NOTHING_SENT))


def forecast_verify(job: "VerifyJob", asked: Asked) -> Outlook:
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
        lines.append(NOTHING_SENT)
    else:
        lines.append(
            f"No forecast of traffic: the Ray cluster at {table.ray!r} gets the model and the rows."
        )
    return Outlook(about="verify", lines=tuple(lines))
