"""Audit privacy of single records in federated rounds: the noise of a client's own training.

A client whose one row is no number trains as any other does, and its row adds nothing: what its
update holds is noise, and every parameter of it is a trial.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from tacit.audit.privacy.noise import gaussian_tail, try_noise
from tacit.audit.privacy.rounds import Point, Rounds
from tacit.dp import Ledger, Repeated, epsilon
from tacit.dp.private import step_event
from tacit.errors import ConfigError
from tacit.federated import FederatedSpec, Learner, Update, round_config
from tacit.federated.records import ACCOUNTANT, RecordSteps, train_records
from tacit.ring import Prg

_INPUTS = 1000
_LARGEST_EPSILON = 60.0

TrainRecords = Callable[..., tuple[Update, Ledger]]
"""What is on trial: trains a client for a round, as `train_records` does."""


def try_records(
    spec: FederatedSpec,
    *,
    trials: int,
    confidence: float,
    prg: Prg,
    train: TrainRecords = train_records,
) -> Rounds:
    """Put the noise of a client's round on trial. That gradients are clipped is not tried here.

    Guarantee: if a round is as the spec's event says, a contradiction is found with a probability
    of at most 1 − confidence.
    Cost: a round of one client for every 2,002 trials.

    Raises:
        ConfigError: the spec promises nothing about records.
    """
    model = nn.Linear(_INPUTS, 2)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    mechanism = round_config(spec, sum(one.numel() for one in model.parameters())).mechanism
    if mechanism.records is None or mechanism.claim.delta is None:
        raise ConfigError(f"wanted privacy 'record', got {spec.privacy.kind!r}")
    # What pulls weights to zero, and changes of pictures, are no part of the noise.
    training = replace(mechanism.records.training, l2=0.0, augment="none", class_weights=None)
    steps = replace(mechanism.records, training=training)
    row = torch.full((1, _INPUTS), math.nan)
    learner = Learner(
        model, row, torch.zeros(1, dtype=torch.int64), [np.zeros(1, np.int64)], training=training
    )
    start = learner.first_weights()
    noise = [
        train(learner, 0, start, steps, prg=prg.fork(f"round {number}"))[0].values
        for number in range(-(-trials // len(start)))
    ]
    found = try_noise(
        np.concatenate(noise).astype(np.float64)[:trials],
        deviation=_deviation(steps),
        tail=gaussian_tail,
        confidence=confidence,
        needed=1.0,
    )
    spent = [
        epsilon(
            [_event(steps, factor, len(start))], delta=mechanism.claim.delta, accountant=ACCOUNTANT
        )
        for factor in (1.0, found.excess)
    ]
    claimed, measured = (math.inf if one.epsilon is None else one.epsilon for one in spent)
    point = Point(
        delta=mechanism.claim.delta, claimed=claimed, measured=min(measured, _LARGEST_EPSILON)
    )
    return Rounds(points=(point,), rounds=found.trials, confidence=confidence, noise=found)


def _deviation(steps: RecordSteps) -> float:
    """Return the deviation of a parameter after a round of plain steps."""
    training = steps.training
    return (
        training.rate * steps.multiplier * steps.clip * math.sqrt(training.steps) / training.batch
    )


def _event(steps: RecordSteps, excess: float, numbers: int) -> Repeated:
    """Return a round with so many times less noise."""
    step = step_event(
        numbers, multiplier=steps.multiplier / excess, clip=steps.clip, rate=steps.rate
    )
    return Repeated(event=step, count=steps.training.steps)
