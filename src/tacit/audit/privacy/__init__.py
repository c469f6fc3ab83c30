"""Audits of differential privacy: ε lower bounds from canaries, in one run and round by round."""

from tacit.audit.membership.attacks import loss
from tacit.audit.privacy.bounds import (
    CONFIDENCE,
    Bound,
    NoiseTrial,
    gaussian_tail,
    laplace_tail,
    largest_refuted,
    one_run_epsilon,
    one_run_p_value,
    rates_epsilon,
    try_count,
    try_noise,
)
from tacit.audit.privacy.canaries import (
    Point,
    PrivateTraining,
    Rounds,
    SeenChange,
    audit_releases,
    audit_rounds,
    audit_training,
    audit_with_canaries,
    make_canaries,
    one_run_power,
    projection,
    run_on_trial,
)
from tacit.audit.privacy.federated import audit_federated_rounds, run_one_round, see_one_client

ATTACKS = {"canary projection": projection, "canary loss": loss}
"""Every attack on a claim of differential privacy."""

__all__ = [
    "ATTACKS",
    "CONFIDENCE",
    "Bound",
    "NoiseTrial",
    "Point",
    "PrivateTraining",
    "Rounds",
    "SeenChange",
    "audit_federated_rounds",
    "audit_releases",
    "audit_rounds",
    "audit_training",
    "audit_with_canaries",
    "gaussian_tail",
    "laplace_tail",
    "largest_refuted",
    "make_canaries",
    "one_run_epsilon",
    "one_run_p_value",
    "one_run_power",
    "projection",
    "rates_epsilon",
    "run_on_trial",
    "run_one_round",
    "see_one_client",
    "try_count",
    "try_noise",
]
