"""Claims put to the test: the ε that a job promises beside the ε that an attack proves."""

from dataclasses import replace

from rich.console import Console
from torch import Tensor

from tacit.audit import (
    Classifier,
    Finding,
    Ranking,
    Threat,
    Verdict,
    draw_roc,
    measure_ranking,
)
from tacit.audit.privacy import (
    audit_federated_rounds,
    audit_rounds,
    audit_training,
    audit_with_canaries,
)
from tacit.cli.audit_job import AuditJob, AuditPrivacy, AuditTable
from tacit.cli.audit_sides import Target, prg_of
from tacit.cli.config import Job
from tacit.cli.federated_data import LARGEST_WEIGHT
from tacit.cli.federated_job import FederatedJob
from tacit.cli.screen import say
from tacit.dp import epsilon
from tacit.learn.noise import train_dp_sgd
from tacit.result import Claim

_FEDERATED_ROUNDS = 60
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


def put_to_the_test(
    job: Job, table: AuditTable, target: Target, console: Console
) -> tuple[list[Finding], tuple[Verdict, ...], tuple[Claim, ...]]:
    """Try what the job claims about ε, where it claims something that can be tried."""
    if isinstance(job, FederatedJob):
        claim = job.policy(largest_weight=LARGEST_WEIGHT).terms(_USUAL_PARAMETERS).promise.claim
        rounds = _test_federated(job, table)
        return [], rounds, (claim, *(one.claim for one in rounds))
    if not isinstance(job, AuditJob) or job.privacy is None:
        return [], (), ()
    say(console, "putting the claim to the test …", "dim")
    findings, verdicts = _test_claim(job.privacy, _shared(table, job.privacy), target)
    return findings, verdicts, tuple(dict.fromkeys(one.claim for one in verdicts))


def _test_federated(job: FederatedJob, table: AuditTable) -> tuple[Verdict, ...]:
    """Try single rounds of a job with central noise."""
    policy = job.policy(largest_weight=LARGEST_WEIGHT)
    if policy.wish.kind != "central" or policy.terms(1).promise.clip is None:
        return ()
    tried = min(table.rounds, _FEDERATED_ROUNDS)
    rounds = audit_federated_rounds(policy, rounds=tried, confidence=table.confidence)
    worst, promise = rounds.worst, policy.terms(1).promise
    claim = epsilon(
        [promise.event] if promise.event else [],
        delta=worst.delta,
        accountant=promise.claim.accountant or "pld",
        subject="one round",
    )
    return (
        Verdict(
            claim=claim,
            measured_epsilon=worst.measured,
            confidence=table.confidence,
            attack="single rounds, one loud client",
            trials=rounds.rounds,
            is_contradicted=rounds.is_contradicted,
        ),
    )


def _test_claim(
    privacy: AuditPrivacy, table: AuditTable, target: Target
) -> tuple[list[Finding], tuple[Verdict, ...]]:
    """Put canaries into the job's own training, the training function on trial, and its rounds."""
    settings, claim = privacy.settings(), _claim(privacy)

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
    verdicts = [
        _verdict(claim, one.epsilon, table, attack=name, trials=one.trials)
        for name, one in (
            ("canaries among the rows", bound),
            ("canaries with a column each", trial),
        )
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
            confidence=table.confidence,
            seed=table.seed,
        )
        worst = rounds.worst
        claim = epsilon([tried.event], delta=worst.delta, subject=f"one round at rate {rate:g}")
        found.append(
            Verdict(
                claim=claim,
                measured_epsilon=worst.measured,
                confidence=table.confidence,
                attack=f"single rounds at rate {rate:g}",
                trials=rounds.rounds,
                is_contradicted=rounds.is_contradicted,
            )
        )
    return tuple(found)


def _claim(privacy: AuditPrivacy) -> Claim:
    """Return what is claimed: by the user, or by the accountant."""
    computed = epsilon([privacy.settings().event], delta=privacy.delta)
    if privacy.claimed_epsilon is None:
        return computed
    return replace(
        computed,
        epsilon=privacy.claimed_epsilon,
        accountant="the job file",
        assumptions=("taken from the job file, not computed",),
    )


def _verdict(
    claim: Claim, measured: float, table: AuditTable, *, attack: str, trials: int
) -> Verdict:
    return Verdict(
        claim=claim,
        measured_epsilon=measured,
        confidence=table.confidence,
        attack=attack,
        trials=trials,
        is_contradicted=claim.epsilon is not None and measured > claim.epsilon,
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
