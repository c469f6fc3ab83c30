"""Training functions on trial: ours stands, and planted bugs are caught.

All seeds are fixed. For an honest mechanism each verdict errs with a probability below 0.05 in
theory; in fact far below, because one-run bounds are loose.
"""

from dataclasses import replace

import pytest
import torch
from torch import nn

from tacit.audit import TorchClassifier
from tacit.audit.privacy import (
    audit_rounds,
    audit_training,
    audit_with_canaries,
    make_canaries,
    one_run_epsilon,
    one_run_power,
)
from tacit.audit.privacy.canaries import _simulated
from tacit.dp import DpSgd, epsilon, train_dp_sgd
from tacit.errors import ConfigError
from tacit.ring import Prg

DELTA = 1e-5
SAMPLED = DpSgd(steps=3, sample_rate=0.25, clip=1.0, multiplier=2.0)
WHOLE = DpSgd(steps=2, sample_rate=1.0, clip=0.5, multiplier=1.0)


def prg(number):
    return Prg(number.to_bytes(16, "big"))


def half_noise(model, x, labels, settings, *, prg):
    return train_dp_sgd(
        model, x, labels, replace(settings, multiplier=settings.multiplier / 2), prg=prg
    )


def no_clipping(model, x, labels, settings, *, prg):
    loose = replace(settings, clip=1e3 * settings.clip, multiplier=settings.multiplier / 1e3)
    return train_dp_sgd(model, x, labels, loose, prg=prg)


def everyone(model, x, labels, settings, *, prg):
    whole = replace(settings, sample_rate=1.0, rate=settings.rate / settings.sample_rate)
    return train_dp_sgd(model, x, labels, whole, prg=prg)


def claimed(settings):
    return epsilon([settings.event], delta=DELTA).epsilon


@pytest.mark.slow
def test_over_twenty_runs_the_bound_never_exceeds_the_accountant():
    found = []
    for number in range(20):
        settings = SAMPLED if number % 2 else WHOLE
        bound, _ = audit_training(
            train_dp_sgd, settings, delta=DELTA, prg=prg(number), canaries=100, seed=number
        )
        found.append((bound.epsilon, settings))
    limits = {one: claimed(one) for one in (SAMPLED, WHOLE)}
    assert all(value <= limits[settings] for value, settings in found)
    # The audit is not blind: where noise is small it sees something.
    assert max(value for value, settings in found if settings is WHOLE) > 0.5


@pytest.mark.parametrize("train", [no_clipping, everyone])
def test_one_run_catches_missing_clipping_and_sampling(train):
    # Per step the claim is small; without the protection the canaries are plain to see.
    settings = replace(SAMPLED, steps=60, sample_rate=0.02)
    bound, _ = audit_training(train, settings, delta=DELTA, prg=prg(1), canaries=400)
    assert bound.epsilon > claimed(settings)


def test_rounds_of_an_honest_training_stand():
    for number, settings in enumerate((SAMPLED, WHOLE)):
        found = audit_rounds(train_dp_sgd, settings, prg=prg(number), rounds=1000)
        assert not found.is_contradicted
        assert 0.5 < found.power.factor < 0.9
        assert [point.claimed for point in found.points] == sorted(
            point.claimed for point in found.points
        )


@pytest.mark.parametrize(
    ("train", "settings", "rounds"),
    [
        (half_noise, WHOLE, 400),
        (half_noise, SAMPLED, 400),  # where the canary itself is as good as invisible
        (no_clipping, WHOLE, 100),
        (everyone, replace(SAMPLED, multiplier=1.0, sample_rate=0.1), 1000),
    ],
)
def test_rounds_catch_every_planted_bug(train, settings, rounds):
    found = audit_rounds(train, settings, prg=prg(5), rounds=rounds)
    assert found.is_contradicted
    assert found.worst.measured > found.worst.claimed


@pytest.mark.slow
def test_what_one_run_would_catch_is_known_beside_what_it_found():
    loud = replace(SAMPLED, steps=60, sample_rate=0.02)
    # Four hundred right guesses prove ε = 3.7 at 95 %: more is claimed here, and nothing is caught.
    nothing = one_run_power(WHOLE, claimed=6.57, delta=DELTA)
    assert (nothing.factor, nothing.probability) == (0.0, 0.0)
    assert str(nothing) == "nothing, not even missing noise"
    assert one_run_power(replace(loud, sample_rate=1.0), claimed=0.1, delta=DELTA).factor >= 0.25


@pytest.mark.slow
def test_a_thousand_honest_trainings_of_the_shipped_job_are_not_accused():
    """By the statistic of one run; rounds err once in a million by their confidence."""
    settings = DpSgd(steps=40, sample_rate=0.2, clip=1.0, multiplier=2.0)
    generator, limit = torch.Generator().manual_seed(0), claimed(settings)
    for _ in range(1000):
        ranking = _simulated(settings, 1.0, 200, generator)
        assert one_run_epsilon(ranking, delta=DELTA, confidence=1 - 0.05 / 4).epsilon <= limit


def test_canaries_among_real_rows_are_found_in_a_model_that_remembers():
    draw = torch.Generator().manual_seed(0)
    x = torch.empty(60, 200).normal_(generator=draw)
    labels = (x[:, 0] > 0).long()

    def remember(rows, classes):
        model = nn.Linear(200, 2)
        torch.nn.init.zeros_(model.weight)
        optimiser = torch.optim.LBFGS(model.parameters(), max_iter=100)

        def close():
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(rows), classes)
            loss.backward()
            return loss

        optimiser.step(close)
        return TorchClassifier(model)

    def forget(rows, classes):
        model = nn.Linear(200, 2)
        torch.nn.init.normal_(model.weight, generator=torch.Generator().manual_seed(5))
        return TorchClassifier(model)

    options = {"classes": 2, "delta": DELTA, "canaries": 120}
    assert audit_with_canaries(remember, x, labels, **options)[0].epsilon > 0.3
    # At 95 % one model in twenty that remembers nothing would look as if it did.
    sure = {**options, "confidence": 0.9999}
    assert audit_with_canaries(forget, x, labels, **sure)[0].epsilon == 0.0


def test_canaries_look_like_the_data_and_their_labels_are_drawn():
    x = 5 + 3 * torch.empty(400, 2, 3).normal_(generator=torch.Generator().manual_seed(1))
    rows, labels = make_canaries(x, classes=4, count=500, seed=0)
    assert rows.shape == (500, 2, 3)
    assert float(rows.mean()) == pytest.approx(5, abs=0.3)
    assert float(rows.std()) == pytest.approx(3, abs=0.3)
    assert sorted(set(labels.tolist())) == [0, 1, 2, 3]


def test_too_few_trials_are_refused():
    with pytest.raises(ConfigError, match="rounds"):
        audit_rounds(train_dp_sgd, WHOLE, prg=prg(0), rounds=3)
    with pytest.raises(ConfigError, match="canaries"):
        audit_training(train_dp_sgd, WHOLE, delta=DELTA, prg=prg(0), canaries=1)
