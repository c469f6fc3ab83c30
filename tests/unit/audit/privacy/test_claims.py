"""Claims put to the test: honest ones stand, one that is too good does not."""

import pytest
import torch

from support.federated import make_spec
from tacit.audit.membership import Effort
from tacit.audit.privacy.claims import (
    claim_of_spec,
    claim_of_training,
    try_federated,
    try_training,
)
from tacit.audit.targets import Build, DpTrainer
from tacit.dp import DpSgd
from tacit.errors import ConfigError
from tacit.federated import Privacy

HONEST = DpSgd(steps=2, sample_rate=1.0, clip=1.0, multiplier=1.0, rate=0.5)
ROWS = 60


@pytest.mark.parametrize(
    ("aggregator", "kind", "subject"),
    [("masked", "central", "one round"), ("shuffled", "shuffle", "one report, alone")],
)
def test_the_noise_of_a_federated_round_is_tried_and_the_verdict_says_its_power(
    aggregator, kind, subject
):
    wish = Privacy(kind=kind, clip=1.0, epsilon=5.0, delta=1e-3)
    policy = make_spec(
        clients=8, rounds=2, aggregator=aggregator, privacy=wish, minimum=4, colluding_share=0.0
    )
    (verdict,) = try_federated(policy, Effort(rounds=600))
    assert not verdict.is_contradicted
    assert verdict.claim.subject == subject
    assert verdict.power.factor > 0.5
    assert claim_of_spec(policy).epsilon <= 5.0


def try_claim(claim):
    rows = torch.randn(ROWS, 8, generator=torch.Generator().manual_seed(0))
    return try_training(
        HONEST,
        claim,
        (rows, torch.arange(ROWS) % 3),
        Effort(canaries=60, rounds=400),
        trainer=DpTrainer(make=Build("linear", (8,), 3), settings=HONEST),
        classes=3,
    )


def test_an_honest_claim_stands_and_three_verdicts_share_the_error():
    claim = claim_of_training(HONEST, delta=1e-5, records=ROWS)
    findings, verdicts = try_claim(claim)
    assert [one.is_contradicted for one in verdicts] == [False] * 3
    assert [one.attack for one in findings] == ["canary loss", "canary projection"]
    # Three verdicts share 5 %, rounds are surer, and each says what it is worth.
    assert verdicts[0].confidence == pytest.approx(1 - 0.05 / 3)
    assert verdicts[2].confidence == 1 - 1e-6
    assert verdicts[0].power is None
    assert str(verdicts[1].power) == "nothing, not even missing noise"
    assert verdicts[2].power.factor > 0.5


def test_a_delta_near_one_in_the_number_of_records_is_refused():
    with pytest.raises(ConfigError, match="1/n or more for n = 60 records"):
        claim_of_training(HONEST, delta=0.02, records=ROWS)
