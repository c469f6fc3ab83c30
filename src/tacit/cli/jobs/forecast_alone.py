"""What jobs that run on one machine will do: federated training, audits, verification."""

from dataclasses import replace

from tacit.cli.environment import data_folders
from tacit.cli.jobs.audit_job import AuditJob
from tacit.cli.jobs.audit_llm_job import AuditLlmJob
from tacit.cli.jobs.federated import describe, leaks_of
from tacit.cli.jobs.federated_data import load_shards, make_learner
from tacit.cli.jobs.federated_job import FederatedJob
from tacit.cli.jobs.outlook import Asked, Outlook
from tacit.cli.jobs.verify_job import VerifyJob
from tacit.learn.federated import LocalEngine, find_aggregator, round_config
from tacit.learn.federated.contract import Meter
from tacit.learn.federated.rounds import per_client
from tacit.ring import Prg

NOTHING_SENT = "No forecast of traffic: nothing is sent, everything runs on this machine."


def forecast_federated(job: FederatedJob, asked: Asked) -> Outlook:
    """Rehearse one round, in which every client trains one step and nobody drops out."""
    asked.refuse("rows", "features")
    shards = load_shards(job.data, job.federated.clients, data_folders())
    # How long a client trains does not change what it sends.
    short = replace(job, train=replace(job.train, steps=1, batch=1, device="cpu"))
    learner = make_learner(short, shards)
    config = round_config(job.spec(), learner.dimension)
    aggregator = find_aggregator(job.federated.aggregator)
    engine = LocalEngine(learner, aggregator, drop_rate=0.0, prg=Prg.from_os())
    if config.keys is not None:
        config = replace(config, keys=engine.identities)
    meter = Meter()
    engine.carry(learner.first_weights(), config, meter)
    up, down = per_client(meter.up, config), per_client(meter.down, config)
    rounds, clients = job.federated.rounds, job.federated.clients
    return Outlook(
        about=f"{job.federated.aggregator}, privacy {job.privacy.kind}",
        lines=(
            f"{clients} clients, {rounds} rounds, {learner.dimension:,} parameters",
            f"A client sends {up:,.0f} B and receives {down:,.0f} B in a round, as a rehearsed "
            f"round did; all clients {clients * rounds * (up + down):,.0f} B in all rounds.",
            f"After {rounds} rounds: {describe(config.mechanism.claim)}",
        ),
        leaks=leaks_of(job, learner.dimension),
        claims=(config.mechanism.claim,),
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


def forecast_verify(job: VerifyJob, asked: Asked) -> Outlook:
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
