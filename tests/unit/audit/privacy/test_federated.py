"""Rounds of federated training on trial: honest rounds stand, too little noise is caught.

Of an honest round one audit in a million fails; the randomness is fixed.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from support.federated import make_spec
from tacit.audit.privacy import audit_federated_rounds, federated, run_one_round
from tacit.audit.privacy.bounds import CAUGHT, gaussian_tail, try_count
from tacit.errors import ConfigError
from tacit.federated import Privacy, round_config
from tacit.jobs.kinds import load_job
from tacit.ring import Prg


def prg(label="rounds"):
    return Prg(b"a key for tests.").fork(label)


def policy(aggregator, *, epsilon=5.0, kind="central", **changes):
    asked = Privacy(
        kind=kind, clip=0.5, epsilon=None if kind == "none" else epsilon, delta=1e-3, **changes
    )
    return make_spec(
        clients=4,
        rounds=1,
        aggregator=aggregator,
        privacy=asked,
        minimum=4,
        drop_rate=0.0,
        colluding_share=0.0,
    )


def with_noise(factor):
    """Run rounds whose grid has less noise than the terms say."""

    def run(aggregator, terms, updates, source):
        grid = terms.mechanism.grid
        less = replace(grid, sigma2=max(int(factor**2 * grid.sigma2), 1))
        terms = replace(terms, mechanism=replace(terms.mechanism, grid=less))
        return run_one_round(aggregator, terms, updates, source)

    return run


@pytest.mark.parametrize("aggregator", ["plain", "masked"])
def test_an_honest_round_stands_and_a_client_moves_it_as_far_as_is_claimed(aggregator):
    found = audit_federated_rounds(policy(aggregator), trials=2000, prg=prg())
    assert not found.is_contradicted
    assert found.noise.needed == 1.0
    assert 0.7 * found.worst.claimed < found.worst.measured <= found.worst.claimed


@pytest.mark.parametrize("factor", [0.5, 0.0])
@pytest.mark.parametrize("aggregator", ["plain", "masked"])
def test_missing_noise_is_caught_at_epsilon_five(aggregator, factor):
    found = audit_federated_rounds(
        policy(aggregator), trials=400, prg=prg(), run=with_noise(factor)
    )
    assert found.is_contradicted
    assert found.worst.measured > found.worst.claimed
    assert "of what is claimed" in found.note


def test_a_client_that_is_not_clipped_is_caught():
    def run(aggregator, terms, updates, source):
        loose = replace(terms.mechanism, clip=20 * terms.mechanism.clip)
        return run_one_round(aggregator, replace(terms, mechanism=loose), updates, source)

    found = audit_federated_rounds(policy("plain"), trials=400, prg=prg(), run=run)
    assert found.is_contradicted
    assert found.noise.needed == pytest.approx(20, rel=0.01)


def test_rounds_with_randomness_of_their_own_are_not_accused_of_what_noise_does():
    def run(aggregator, terms, updates, source):
        return run_one_round(aggregator, terms, updates, source.fork(str(updates[0].values[0])))

    found = audit_federated_rounds(policy("plain"), trials=400, prg=prg(), run=run)
    assert found.noise.needed == 1.0


@pytest.mark.parametrize("name", ["fl-digits", "fl-mnist", "fl-shuffle"])
def test_of_the_shipped_jobs_half_of_the_noise_is_caught_and_honest_rounds_are_not(name):
    """Exact, from the statistic: a count that is binomial whether the claim is true or false."""
    job = load_job(Path(f"examples/jobs/{name}.toml"))
    promise = round_config(job, 1).mechanism

    def chance(f):
        if promise.local_epsilon is not None:
            return f / (1 + np.exp(promise.local_epsilon))
        return gaussian_tail(1.5 / f)

    trials = 2000  # of a quick audit; a whole one takes twice as many
    limit = _limit(trials, chance)
    assert binom.cdf(limit, trials, chance(1.0)) * 1000 < 1e-3
    assert binom.cdf(limit, trials, chance(0.5)) > CAUGHT
    power = try_count(trials, trials, chance).power
    assert power.factor > 0.5
    assert binom.cdf(limit, trials, chance(power.factor)) == pytest.approx(CAUGHT, abs=0.01)


def _limit(trials, chance):
    """Find the largest count that is a contradiction, by trying."""
    low, high = -1, trials
    while high - low > 1:
        middle = (low + high) // 2
        is_caught = try_count(middle, trials, chance).is_contradicted
        low, high = (middle, high) if is_caught else (low, middle)
    return low


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fl-digits", "fl-shuffle"])
def test_the_shipped_jobs_stand_as_they_are(name):
    job = load_job(Path(f"examples/jobs/{name}.toml"))
    found = audit_federated_rounds(job, trials=2000, prg=prg(name))
    assert not found.is_contradicted
    assert found.power.factor > 0.5


@pytest.mark.parametrize("method", ["direction", "coordinate"])
def test_reports_that_tell_the_truth_too_often_are_caught(method, monkeypatch):
    honest = policy("shuffled", kind="shuffle", method=method)
    assert not audit_federated_rounds(honest, trials=600, prg=prg()).is_contradicted
    sent, claimed = federated.encode, round_config(honest, 1).mechanism.local_epsilon
    monkeypatch.setattr(
        federated, "encode", lambda plan, *rest: sent(replace(plan, local_epsilon=9.0), *rest)
    )
    found = audit_federated_rounds(honest, trials=600, prg=prg())
    assert found.is_contradicted
    assert found.worst.claimed == pytest.approx(claimed)


@pytest.mark.parametrize(
    ("aggregator", "changes"),
    [
        ("plain", {"kind": "none"}),
        ("plain", {"kind": "local", "mechanism": "objective"}),
        ("masked", {"kind": "local", "mechanism": "laplace"}),
    ],
)
def test_a_policy_without_noise_that_can_be_seen_is_refused(aggregator, changes):
    with pytest.raises(ConfigError, match="tried"):
        audit_federated_rounds(policy(aggregator, **changes))
