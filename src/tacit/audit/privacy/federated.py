"""Audit the rounds of federated training: one client's data against its opposite, +C against −C.

What a spec claims is about replacing a client, and two updates of length C that point to opposite
sides are as far apart as two clients can be. Two rounds that draw the same randomness, one with
each of them, show how far apart they come out; their mean is noise alone, and every parameter of it
is a trial.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray
from scipy.stats import binom
from torch import nn

from tacit.audit.privacy.bounds import (
    CONFIDENCE,
    NoiseTrial,
    Tail,
    gaussian_tail,
    laplace_tail,
    try_count,
    try_noise,
)
from tacit.audit.privacy.canaries import Point, Rounds
from tacit.crypto import make_key_pair
from tacit.dp import REPLACE_CLIENT, Bounded, DiscreteLaplace, Gaussian, Ledger, Repeated, epsilon
from tacit.dp.accountant import alone_epsilon
from tacit.dp.private import step_event
from tacit.errors import ConfigError, PartyError
from tacit.federated import (
    Aggregate,
    CalibratedMechanism,
    FederatedSpec,
    Learner,
    Meter,
    RoundConfig,
    Seat,
    Update,
    find_aggregator,
    round_config,
    run_round,
)
from tacit.federated.aggregators import enter_in_memory
from tacit.federated.contract import HELPER
from tacit.federated.grid import Grid
from tacit.federated.provision import provision
from tacit.federated.records import ACCOUNTANT, RecordSteps, train_records
from tacit.federated.shuffled.plan import encode, estimate
from tacit.federated.shuffled.roles import plan_from
from tacit.ring import Prg

_DIMENSIONS = (2000, 200, 20)  # the first that the mechanism can serve
_LOUD = 100.0  # how much longer than the clip the canary is before it is clipped
_LARGEST_EPSILON = 60.0

RunRound = Callable[[str, RoundConfig, Sequence[Update], Prg], Aggregate]
"""What is on trial: makes a mean of updates by an aggregator of this name."""
_INPUTS = 1000
TrainRecords = Callable[..., tuple[Update, Ledger]]
"""What is on trial: trains a client for a round, as `train_records` does."""


def run_one_round(
    aggregator: str, config: RoundConfig, updates: Sequence[Update], prg: Prg
) -> Aggregate:
    """Run a round of an aggregator in this process; all clients answer."""
    known, pair = find_aggregator(aggregator), make_key_pair()
    public_key, secrets = provision(config.spec, Prg.from_os())
    config = replace(config, public_key=public_key)
    clients = [
        known.make_client(
            config,
            Seat(
                index=index,
                signing=Ed25519PrivateKey.generate(),
                helper=pair.public,
                secret=secrets[index],
            ),
            prg.fork(f"client {index}"),
        )
        for index in range(config.federated.clients)
    ]

    def exchange(messages: dict[int, bytes]) -> Iterator[tuple[int, bytes | PartyError]]:
        for index, message in messages.items():
            if index == HELPER and known.make_helper is not None:
                yield (
                    index,
                    known.make_helper(config, pair, prg.fork("helper"), enter_in_memory())(message),
                )
            else:
                yield index, clients[index].answer(message, partial(_offer, updates[index]))

    return run_round(known.make_server(config, prg.fork("server")), exchange, Meter())


def see_one_client(
    aggregator: str, config: RoundConfig, updates: Sequence[Update], prg: Prg
) -> Aggregate:
    """Return what a plain server sees of the first client's update."""
    known = find_aggregator(aggregator)
    seat = Seat(index=0, signing=Ed25519PrivateKey.generate())
    client = known.make_client(config, seat, prg.fork("client 0"))
    server = known.make_server(config, prg.fork("server"))
    server.accept(0, client.answer(server.invite()[0], lambda: updates[0]))
    return server.aggregate()


def audit_federated_rounds(
    spec: FederatedSpec,
    *,
    trials: int = 4000,
    confidence: float = CONFIDENCE,
    prg: Prg | None = None,
    run: RunRound | None = None,
) -> Rounds:
    """Put the rounds of a spec on trial: its noise, and how far a client can move the result.

    The rounds are real ones, messages, masks and all, with all clients and as many parameters as
    suit the mechanism. With the shuffle model what is tried is the randomiser of a report, which
    its claim rests on; that the shuffler shuffles is not.

    Guarantee: if a round is as the spec's event says, a contradiction is found with a probability
    of at most 1 − confidence.
    Cost: two rounds for every 2,000 trials.

    Raises:
        ConfigError: the spec adds no noise that can be tried.
    """
    prg = prg or Prg.from_os()
    if spec.privacy.kind == "shuffle":
        return _try_reports(spec, trials, confidence, prg)
    if spec.privacy.kind == "record":
        return try_records(spec, trials=trials, confidence=confidence, prg=prg)
    config = _widest(spec)
    grid = config.mechanism.grid
    if grid is None or config.mechanism.claim.epsilon is None:
        raise ConfigError(
            "wanted a spec whose noise can be tried: central, local, shuffle or record, with a "
            f"claim; got {spec.privacy.kind!r} with mechanism {spec.privacy.mechanism!r}"
        )
    is_alone = not spec.federated.is_split and spec.privacy.kind != "central"
    if grid.noise == "laplace" and not is_alone:
        raise ConfigError("a sum of Laplace noises is not tried; audit with aggregator 'plain'")
    run = run or (see_one_client if is_alone else run_one_round)
    noise, moved = _run_pairs(spec, config, -(-trials // config.dimension), prg, run)
    parts = config.federated.clients if spec.federated.is_split else 1
    found = try_noise(
        noise[:trials],
        deviation=math.sqrt(float(grid.sigma2) * parts) / grid.scale,
        tail=_tail(grid, parts),
        confidence=confidence,
        needed=max(1.0, moved),
    )
    return _judge(config.mechanism, found, confidence)


def _widest(spec: FederatedSpec) -> RoundConfig:
    """Return the config for as many parameters as the mechanism can serve, unclaimed noise off."""
    for dimension in _DIMENSIONS[:-1]:
        try:
            found = round_config(spec, dimension)
            break
        except ConfigError:
            continue
    else:
        found = round_config(spec, _DIMENSIONS[-1])
    return replace(found, mechanism=replace(found.mechanism, downlink_sigma=0.0))


def _run_pairs(
    spec: FederatedSpec, config: RoundConfig, pairs: int, prg: Prg, run: RunRound
) -> tuple[NDArray[np.float64], float]:
    """Run rounds in pairs; return all noise, and how far a client moved the sum, of what it may."""
    grid, bound = config.mechanism.grid, config.mechanism.clip
    if grid is None or bound is None:
        raise ConfigError("wanted a spec with a clip and noise on a grid")
    size = config.dimension
    side = np.full(size, size**-0.5) if grid.noise == "laplace" else np.eye(1, size)[0]
    still = Update(np.zeros(size, np.float32), 1)
    loud = [Update((sign * _LOUD * bound * side).astype(np.float32), 1) for sign in (1, -1)]
    noise, moved = [], 0.0
    for pair in range(pairs):
        high, low = (
            _total(
                run(
                    spec.federated.aggregator,
                    config,
                    [one, *[still] * (config.federated.clients - 1)],
                    prg.fork(f"pair {pair}"),  # the same for both, so that noise cancels
                )
            )
            for one in loud
        )
        noise.append((high + low) / 2)
        moved = max(moved, _distance(high - low, side, grid))
    return np.concatenate(noise), moved


def _offer(update: Update, after: object = None) -> Update:
    """Give the same update, whatever model training begins with."""
    return update


def _total(found: Aggregate) -> NDArray[np.float64]:
    return found.mean * found.weight


def _distance(apart: NDArray[np.float64], side: NDArray[np.float64], grid: Grid) -> float:
    """Return how far two sums lie apart along the canary, of what the claim allows for.

    Where noise did not cancel, as in rounds with randomness of their own, it is taken as allowed.
    """
    along = float(apart @ side)
    if np.abs(apart - along * side).max(initial=0.0) > 0.01 * grid.sigma:
        return 1.0
    event = grid.event(len(side))
    if isinstance(event, DiscreteLaplace):
        return max(along * math.sqrt(len(side)) * grid.scale / event.l1_sensitivity, 1e-3)
    return max(along * grid.scale / event.l2_sensitivity, 1e-3)


def _tail(grid: Grid, parts: int) -> Tail:
    if grid.noise == "laplace":
        return laplace_tail
    if grid.noise == "gaussian":
        return gaussian_tail
    coins = grid.coins * parts
    middle, deviation = coins / 2, math.sqrt(coins) / 2
    return lambda x: float(2 * binom.sf(math.floor(middle + x * deviation), coins, 0.5))


def _judge(mechanism: CalibratedMechanism, found: NoiseTrial, confidence: float) -> Rounds:
    """Turn signal over noise into ε: by the whole curve of a Gaussian, or of Laplace noise."""
    if mechanism.event is None or mechanism.claim.delta is None or mechanism.grid is None:
        raise ConfigError("wanted a mechanism with an event and a δ")
    delta = mechanism.claim.delta
    claim = epsilon([mechanism.event], delta=delta, accountant=mechanism.claim.accountant).epsilon
    if isinstance(mechanism.event, DiscreteLaplace):
        measured = mechanism.event.epsilon * found.excess
    else:
        grid = mechanism.grid
        multiplier = math.sqrt(float(grid.sigma2) * grid.parts) / grid.l2_sensitivity
        smooth = Gaussian(
            sigma=multiplier / found.excess, l2_sensitivity=1.0, relation=REPLACE_CLIENT
        )
        measured = alone_epsilon(smooth, delta)
    point = Point(
        delta=delta,
        claimed=math.inf if claim is None else claim,
        measured=min(measured, _LARGEST_EPSILON),
    )
    return Rounds(points=(point,), rounds=found.trials, confidence=confidence, noise=found)


def _try_reports(spec: FederatedSpec, trials: int, confidence: float, prg: Prg) -> Rounds:
    """Count the reports that say the opposite of the truth, about an update of one number."""
    config = round_config(spec, 1)
    plan = replace(plan_from(config), reports=trials // 2)
    false = 0
    for sign in (1.0, -1.0):
        longest = Bounded(torch.tensor([sign * plan.l2_bound], dtype=torch.float64), plan.l2_bound)
        payloads = encode(plan, longest, prg.fork(f"side {sign:g}"))
        false += sum(sign * estimate(plan, [one], clients=1)[0][0] < 0 for one in payloads)
    claimed = 1 / (1 + math.exp(plan.local_epsilon))
    found = try_count(
        false, 2 * plan.reports, lambda f: min(f * claimed, 0.5), confidence=confidence
    )
    share = min(found.at_most * claimed, 0.5)
    measured = min(math.log((1 - share) / share), _LARGEST_EPSILON)
    point = Point(
        delta=config.mechanism.claim.delta or 0.0, claimed=plan.local_epsilon, measured=measured
    )
    return Rounds(points=(point,), rounds=found.trials, confidence=confidence, noise=found)


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
    training = replace(spec.train, l2=0.0, augment="none", class_weights=None)
    steps = replace(mechanism.records, spec=replace(spec, train=training))
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
    training = steps.spec.train
    return (
        training.rate * steps.multiplier * steps.clip * math.sqrt(training.steps) / training.batch
    )


def _event(steps: RecordSteps, excess: float, numbers: int) -> Repeated:
    """Return a round with so many times less noise."""
    step = step_event(
        numbers, multiplier=steps.multiplier / excess, clip=steps.clip, rate=steps.rate
    )
    return Repeated(event=step, count=steps.spec.train.steps)
