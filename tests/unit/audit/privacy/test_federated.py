"""Rounds of federated training on trial: honest aggregators stand, too little noise is caught."""

import pytest

from tacit.audit.privacy import audit_federated_rounds, run_one_round
from tacit.errors import ConfigError
from tacit.learn.federated import Policy, Wish


def policy(aggregator, *, epsilon=1.0, kind="central"):
    wish = Wish(kind=kind, clip=0.5, epsilon=None if kind == "none" else epsilon, delta=1e-3)
    return Policy(
        clients=4,
        rounds=1,
        aggregator=aggregator,
        wish=wish,
        minimum=4,
        drop_rate=0.0,
        colluding_share=0.0,
    )


@pytest.mark.parametrize(("aggregator", "rounds"), [("plain", 120), ("masked", 25)])
def test_an_honest_round_stands(aggregator, rounds):
    # The noise is fresh, so one of twenty would fall at the usual confidence.
    found = audit_federated_rounds(policy(aggregator), rounds=rounds, confidence=1 - 1e-10)
    assert not found.is_contradicted


def test_a_server_that_adds_too_little_noise_is_caught():
    careless = policy("plain", epsilon=200.0).terms(4)  # so little that it is caught every time

    def run(aggregator, terms, updates):
        return run_one_round(aggregator, careless, updates)

    found = audit_federated_rounds(policy("plain"), rounds=120, run=run)
    assert found.is_contradicted


def test_a_policy_without_central_noise_is_refused():
    with pytest.raises(ConfigError, match="central"):
        audit_federated_rounds(policy("plain", kind="none"))
