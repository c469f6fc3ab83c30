"""Claims put to the test: the ε that is promised beside the ε that an attack proves."""

from dataclasses import replace

from torch import Tensor

from tacit.audit.estimators import Ranking, draw_roc, measure_ranking
from tacit.audit.findings import Finding, Threat, Verdict
from tacit.audit.membership.threats import Effort
from tacit.audit.privacy.bounds import CONFIDENCE
from tacit.audit.privacy.canaries import (
    Rounds,
    audit_rounds,
    audit_training,
    audit_with_canaries,
    one_run_power,
)
from tacit.audit.privacy.federated import audit_federated_rounds
from tacit.audit.target import Classifier, Trainer
from tacit.audit.views import prg_of
from tacit.dp import DpSgd, Response, detection_of, epsilon, sharpen, train_dp_sgd
from tacit.federated import CalibratedMechanism, FederatedSpec, round_config
from tacit.federated.summary import sharp_claim
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


def try_federated(spec: FederatedSpec, effort: Effort) -> tuple[Verdict, ...]:
    """Try single rounds of a spec, one client's data against its opposite; nothing without ε.

    Raises:
        ConfigError: rounds of this mechanism cannot be tried.
    """
    if spec.privacy.kind == "none":
        return ()
    rounds = audit_federated_rounds(
        spec, trials=effort.rounds, confidence=_of_rounds(effort), prg=prg_of(effort.seed)
    )
    claim = _claim_of_round(round_config(spec, 1).mechanism, rounds.worst.delta)
    attack = _FEDERATED_ATTACKS.get(spec.privacy.kind, "one client's data or its opposite")
    return (_judge_rounds(claim, rounds, attack=attack),)


def claim_of_spec(spec: FederatedSpec) -> Claim:
    """Return what a spec promises over all its rounds, as sharply as the accountant can say."""
    return sharp_claim(round_config(spec, _USUAL_PARAMETERS).mechanism, spec.federated.rounds)


def claim_of_training(
    settings: DpSgd, *, delta: float, records: int, claimed_epsilon: float | None = None
) -> Claim:
    """Return what DP-SGD promises: by the accountant, or by whoever claims something else.

    Args:
        settings: of the training.
        delta: of the claim.
        records: how many are trained on.
        claimed_epsilon: taken as it is, if given.
    """
    computed = epsilon([settings.event], delta=delta, population=records)
    if claimed_epsilon is None:
        return sharpen(computed, [settings.event])
    return replace(
        computed,
        epsilon=claimed_epsilon,
        detection=detection_of(claimed_epsilon, delta),
        accountant="the job file",
        assumptions=("taken from the job file, not computed",),
    )


def try_training(
    settings: DpSgd,
    claim: Claim,
    members: tuple[Tensor, Tensor],
    effort: Effort,
    *,
    trainer: Trainer,
    classes: int,
) -> tuple[list[Finding], tuple[Verdict, ...]]:
    """Put canaries into one's own training, the training function on trial, and its rounds.

    Args:
        settings: of DP-SGD.
        claim: what is promised, with its δ.
        members: rows and labels that are trained on.
        effort: with how many canaries and rounds, and how surely.
        trainer: trains on them, as the settings say.
        classes: how many.
    """
    rates = sorted({settings.sample_rate, 1.0})  # as they are, and with everyone in them
    # The verdicts share the error, so that all of them hold together.
    share = 1 - (1 - effort.confidence) / (2 + len(rates))
    each, delta = replace(effort, confidence=share), claim.delta or 0.0

    def train(x: Tensor, y: Tensor) -> Classifier:
        return trainer(x, y, seed=each.seed + 1)

    bound, ranking = audit_with_canaries(
        train,
        *members,
        classes=classes,
        delta=delta,
        confidence=each.confidence,
        seed=each.seed,
        canaries=min(each.canaries, len(members[1])),
    )
    trial, trial_ranking = audit_training(
        train_dp_sgd,
        settings,
        prg=prg_of(each.seed),
        canaries=each.canaries,
        delta=delta,
        confidence=each.confidence,
        seed=each.seed,
    )
    power = one_run_power(
        settings,
        claimed=claim.epsilon or 0.0,
        delta=delta,
        canaries=each.canaries,
        confidence=each.confidence,
    )
    # More than noise hides canaries among rows: what that is worth is not known.
    verdicts = [
        Verdict(
            claim=claim,
            measured_epsilon=one.epsilon,
            confidence=each.confidence,
            attack=name,
            trials=one.trials,
            is_contradicted=claim.epsilon is not None and one.epsilon > claim.epsilon,
            power=worth,
        )
        for name, one, worth in (
            ("canaries among the rows", bound, None),
            ("canaries with a column each", trial, power),
        )
    ]
    findings = [
        _canary_finding(_CANARY_THREAT, "canary loss", ranking),
        _canary_finding(_TRIAL_THREAT, "canary projection", trial_ranking),
    ]
    return findings, (*verdicts, *(_try_rounds(settings, rate, each) for rate in rates))


def short_claim(claim: Claim) -> str:
    """Write a claim in a few words."""
    if claim.epsilon is None or claim.delta is None:
        return claim.guarantee
    return f"ε ≤ {claim.epsilon:.3g} at δ = {claim.delta:g}, {claim.relation}"


def _try_rounds(settings: DpSgd, rate: float, effort: Effort) -> Verdict:
    tried = replace(settings, sample_rate=rate, steps=1)
    rounds = audit_rounds(
        train_dp_sgd,
        tried,
        prg=prg_of(effort.seed + 1),
        rounds=effort.rounds,
        confidence=_of_rounds(effort),
        seed=effort.seed,
    )
    delta = rounds.worst.delta
    claim = epsilon([tried.event], delta=delta, subject=f"one round at rate {rate:g}")
    return _judge_rounds(claim, rounds, attack=f"single rounds at rate {rate:g}")


def _of_rounds(effort: Effort) -> float:
    """Return at which confidence rounds are tried: many can afford that none is accused."""
    return max(effort.confidence, CONFIDENCE)


def _judge_rounds(claim: Claim, rounds: Rounds, *, attack: str) -> Verdict:
    return Verdict(
        claim=claim,
        measured_epsilon=rounds.worst.measured,
        confidence=rounds.confidence,
        attack=attack,
        trials=rounds.rounds,
        is_contradicted=rounds.is_contradicted,
        note=rounds.note,
        power=rounds.power,
    )


def _claim_of_round(mechanism: CalibratedMechanism, delta: float) -> Claim:
    """Return what is claimed about what was tried: a round, or a report before it is shuffled."""
    if mechanism.local_epsilon is None:
        events, subject = [mechanism.event] if mechanism.event else [], "one round"
        accountant = mechanism.claim.accountant
    else:
        events, subject = [Response(epsilon=mechanism.local_epsilon, levels=2)], "one report, alone"
        accountant = "basic"
    return epsilon(events, delta=delta, accountant=accountant, subject=subject)


def _canary_finding(threat: Threat, attack: str, ranking: Ranking) -> Finding:
    metrics = measure_ranking(attack, ranking)
    return Finding(
        threat=threat,
        attack=attack,
        headline=metrics[0],
        metrics=metrics,
        curves=(draw_roc(attack, ranking, title="Which canary was in?"),),
    )
