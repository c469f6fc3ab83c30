"""The noise of a client's own training on trial: honest rounds stand, too little is caught."""

from dataclasses import replace
from pathlib import Path

import pytest

import tacit
from support.federated import make_spec
from tacit.audit.privacy import audit_federated_rounds
from tacit.audit.privacy.bounds import CONFIDENCE
from tacit.audit.privacy.federated import try_records
from tacit.errors import ConfigError
from tacit.federated import Privacy
from tacit.federated.records import train_records
from tacit.jobs.kinds import load_job
from tacit.ring import Prg

JOB = Path(tacit.__file__).parents[2] / "examples" / "jobs" / "fl-hospitals.toml"


@pytest.fixture(scope="module")
def policy():
    return load_job(JOB)


def prg():
    return Prg(b"a key for tests.")


def with_noise(factor):
    def train(learner, client, weights, steps, *, prg):
        less = replace(steps, multiplier=factor * steps.multiplier)
        return train_records(learner, client, weights, less, prg=prg)

    return train


def test_honest_rounds_of_the_shipped_job_stand(policy):
    # One audit in a million accuses an honest round; the randomness is fixed.
    found = audit_federated_rounds(policy, trials=4000, prg=prg())
    assert not found.is_contradicted
    assert found.rounds == 4000
    assert 0.7 * found.worst.claimed < found.worst.measured <= found.worst.claimed * 1.2


@pytest.mark.parametrize("factor", [0.5, 1e-6])
def test_too_little_noise_is_caught(policy, factor):
    found = try_records(
        policy, trials=4000, confidence=CONFIDENCE, prg=prg(), train=with_noise(factor)
    )
    assert found.is_contradicted
    assert found.worst.measured > found.worst.claimed
    assert found.power.factor > 0.8  # half of the noise is far below what would be caught


def test_a_policy_without_records_is_refused():
    asked = Privacy(kind="central", clip=1.0, epsilon=2.0, delta=1e-3)
    with pytest.raises(ConfigError, match="wanted privacy 'record'"):
        try_records(
            make_spec(clients=4, rounds=1, aggregator="plain", privacy=asked, minimum=2),
            trials=10,
            confidence=0.9,
            prg=prg(),
        )
