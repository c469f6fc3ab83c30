"""Claims put to the test: the ε that a job promises beside the ε that an attack proves."""

from dataclasses import replace

from rich.console import Console
from torch import Tensor

from tacit.audit import (
    Classifier,
    Finding,
    Power,
    Ranking,
    Threat,
    Verdict,
    draw_roc,
    measure_ranking,
)
from tacit.audit.privacy import (
    CONFIDENCE,
    audit_federated_rounds,
    audit_rounds,
    audit_training,
    audit_with_canaries,
    one_run_power,
)
from tacit.cli.jobs.audit_job import AuditJob, AuditPrivacy, AuditTable
from tacit.cli.jobs.audit_sides import Target, prg_of
from tacit.cli.jobs.config import Job
from tacit.cli.jobs.federated_job import FederatedJob
from tacit.cli.screen import say
from tacit.dp import Event, Repeated, Response, detection_of, epsilon, sharpen
from tacit.errors import ConfigError
from tacit.learn.federated import CalibratedMechanism, round_config
from tacit.learn.noise import train_dp_sgd
from tacit.result import Claim

_USUAL_PARAMETERS = 10_000
_CANARY_THREAT = Threat(
    name="canaries, probabilities",
    who="whoever may ask the trained model",
    sees="the probability of every class",
    knows="the canaries, but not which of them were trained on",
)
_TRIAL_THREAT = Threat(
    name="canaries, weights",
    who="whoever holds the model before and after",
    sees="all weights",
    knows="all records, and the canaries; not which of them were trained on",
)

_FEDERATED_ATTACKS = {"record": "the noise of a client whose row adds nothing"}


def put_to_the_test(
    job: Job, table: AuditTable, target: Target, console: Console
) -> tuple[list[Finding], tuple[Verdict, ...], tuple[Claim, ...]]:
    """Try what the job claims about ε, where it claims something that can be tried."""
    if isinstance(job, FederatedJob):
        mechanism = round_config(job.spec(), _USUAL_PARAMETERS).mechanism
        rounds = _test_federated(job, table, console)
        return [], rounds, (_sharp(mechanism, job), *(one.claim for one in rounds))
    if not isinstance(job, AuditJob) or job.privacy is None:
        return [], (), ()
    say(console, "putting the claim to the test …", "dim")
    findings, verdicts = _test_claim(job.privacy, _shared(table, job.privacy), target)
    return findings, verdicts, tuple(dict.fromkeys(one.claim for one in verdicts))


def _test_federated(job: FederatedJob, table: AuditTable, console: Console) -> tuple[Verdict, ...]:
    """Try single rounds of a job, one client's data against its opposite."""
    spec = job.spec()
    if spec.privacy.kind == "none":
        return ()
    say(console, "putting the noise of a round to the test …", "dim")
    try:
        rounds = audit_federated_rounds(
            spec, trials=table.rounds, confidence=_sure(table), prg=prg_of(table.seed)
        )
    except ConfigError as error:
        say(console, f"the noise of a round was not put to the test: {error}", "yellow")
        return ()
    return (
        Verdict(
            claim=_claim_of_round(round_config(spec, 1).mechanism, rounds.worst.delta),
            measured_epsilon=rounds.worst.measured,
            confidence=rounds.confidence,
            attack=_FEDERATED_ATTACKS.get(spec.privacy.kind, "one client's data or its opposite"),
            trials=rounds.rounds,
            is_contradicted=rounds.is_contradicted,
            note=rounds.note,
            power=rounds.power,
        ),
    )


def _sharp(mechanism: CalibratedMechanism, job: FederatedJob) -> Claim:
    if mechanism.event is None:
        return mechanism.claim
    whole: list[Event] = [Repeated(event=mechanism.event, count=job.federated.rounds)]
    return sharpen(mechanism.claim, [*whole, *([mechanism.first] if mechanism.first else [])])


def _claim_of_round(mechanism: CalibratedMechanism, delta: float) -> Claim:
    """Return what is claimed about what was tried: a round, or a report before it is shuffled."""
    if mechanism.local_epsilon is None:
        events, subject = [mechanism.event] if mechanism.event else [], "one round"
        accountant = mechanism.claim.accountant
    else:
        events, subject = [Response(epsilon=mechanism.local_epsilon, levels=2)], "one report, alone"
        accountant = "basic"
    return epsilon(events, delta=delta, accountant=accountant, subject=subject)


def _test_claim(
    privacy: AuditPrivacy, table: AuditTable, target: Target
) -> tuple[list[Finding], tuple[Verdict, ...]]:
    """Put canaries into the job's own training, the training function on trial, and its rounds."""
    settings, claim = privacy.settings(), _claim(privacy, len(target.members[1]))

    def train(x: Tensor, y: Tensor) -> Classifier:
        return target.trainer(x, y, seed=table.seed + 1)

    bound, ranking = audit_with_canaries(
        train,
        *target.members,
        classes=target.classes,
        delta=privacy.delta,
        confidence=table.confidence,
        seed=table.seed,
        canaries=min(table.canaries, len(target.members[1])),
    )
    trial, trial_ranking = audit_training(
        train_dp_sgd,
        settings,
        prg=prg_of(table.seed),
        canaries=table.canaries,
        delta=privacy.delta,
        confidence=table.confidence,
        seed=table.seed,
    )
    power = one_run_power(
        settings,
        claimed=claim.epsilon or 0.0,
        delta=privacy.delta,
        canaries=table.canaries,
        confidence=table.confidence,
    )
    # More than noise hides canaries among rows: what that is worth is not known.
    found = (
        ("canaries among the rows", bound, None),
        ("canaries with a column each", trial, power),
    )
    verdicts = [
        _verdict(claim, one.epsilon, table, attack=name, trials=one.trials, power=worth)
        for name, one, worth in found
    ]
    findings = [
        _canary_finding(_CANARY_THREAT, "canary loss", ranking),
        _canary_finding(_TRIAL_THREAT, "canary projection", trial_ranking),
    ]
    return findings, (*verdicts, *_test_rounds(privacy, table))


def _shared(table: AuditTable, privacy: AuditPrivacy) -> AuditTable:
    """Divide the error among the verdicts, so that all of them hold together."""
    verdicts = 2 + len(_rates(privacy))
    return replace(table, confidence=1 - (1 - table.confidence) / verdicts)


def _sure(table: AuditTable) -> float:
    """Return at which confidence rounds are tried: many trials can afford that none is accused."""
    return max(table.confidence, CONFIDENCE)


def _rates(privacy: AuditPrivacy) -> list[float]:
    """Return the rates at which rounds are tried: the job's, and one where noise shows best."""
    return sorted({privacy.sample_rate, 1.0})


def _test_rounds(privacy: AuditPrivacy, table: AuditTable) -> tuple[Verdict, ...]:
    """Try single rounds as they are, and with everyone in them."""
    settings = privacy.settings()
    found = []
    for rate in _rates(privacy):
        tried = replace(settings, rate=rate, steps=1)
        rounds = audit_rounds(
            train_dp_sgd,
            tried,
            prg=prg_of(table.seed + 1),
            rounds=table.rounds,
            confidence=_sure(table),
            seed=table.seed,
        )
        worst = rounds.worst
        claim = epsilon([tried.event], delta=worst.delta, subject=f"one round at rate {rate:g}")
        found.append(
            Verdict(
                claim=claim,
                measured_epsilon=worst.measured,
                confidence=rounds.confidence,
                attack=f"single rounds at rate {rate:g}",
                trials=rounds.rounds,
                is_contradicted=rounds.is_contradicted,
                note=rounds.note,
                power=rounds.power,
            )
        )
    return tuple(found)


def _claim(privacy: AuditPrivacy, records: int) -> Claim:
    """Return what is claimed: by the user, or by the accountant."""
    events = [privacy.settings().event]
    computed = epsilon(events, delta=privacy.delta, population=records)
    if privacy.claimed_epsilon is None:
        return sharpen(computed, events)
    return replace(
        computed,
        epsilon=privacy.claimed_epsilon,
        detection=detection_of(privacy.claimed_epsilon, privacy.delta),
        accountant="the job file",
        assumptions=("taken from the job file, not computed",),
    )


def _verdict(
    claim: Claim,
    measured: float,
    table: AuditTable,
    *,
    attack: str,
    trials: int,
    power: Power | None,
) -> Verdict:
    return Verdict(
        claim=claim,
        measured_epsilon=measured,
        confidence=table.confidence,
        attack=attack,
        trials=trials,
        is_contradicted=claim.epsilon is not None and measured > claim.epsilon,
        power=power,
    )


def _canary_finding(threat: Threat, attack: str, ranking: Ranking) -> Finding:
    metrics = measure_ranking(attack, ranking)
    return Finding(
        threat=threat,
        attack=attack,
        headline=metrics[0],
        metrics=metrics,
        curves=(draw_roc(attack, ranking, title="Which canary was in?"),),
    )


def short_claim(claim: Claim) -> str:
    """Write a claim in a few words."""
    if claim.epsilon is None or claim.delta is None:
        return claim.guarantee
    return f"ε ≤ {claim.epsilon:.3g} at δ = {claim.delta:g}, {claim.relation}"
