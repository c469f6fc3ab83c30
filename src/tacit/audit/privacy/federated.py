"""Audit the rounds of federated training: a client with a canary for an update, or with nothing."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.audit.privacy.rounds import Rounds, audit_releases
from tacit.errors import ConfigError, PartyError
from tacit.learn.federated import (
    Aggregate,
    Meter,
    Policy,
    Seat,
    Terms,
    Update,
    find_aggregator,
    run_round,
)
from tacit.ring import Prg

_DIMENSION = 4
_DELTAS = (0.3, 0.1, 0.03)

RunRound = Callable[[str, Terms, Sequence[Update]], Aggregate]
"""What is on trial: makes a mean of updates by an aggregator of this name."""


def run_one_round(aggregator: str, terms: Terms, updates: Sequence[Update]) -> Aggregate:
    """Run a round of an aggregator in this process; all clients answer."""
    known = find_aggregator(aggregator)
    clients = [
        known.make_client(
            terms, Seat(index=index, signing=Ed25519PrivateKey.generate()), Prg.from_os()
        )
        for index in range(terms.clients)
    ]

    def exchange(messages: dict[int, bytes]) -> Iterator[tuple[int, bytes | PartyError]]:
        for index, message in messages.items():
            yield index, clients[index].answer(message, partial(updates.__getitem__, index))

    return run_round(known.make_server(terms, Prg.from_os()), exchange, Meter())


def audit_federated_rounds(
    policy: Policy,
    *,
    rounds: int = 200,
    confidence: float = 0.95,
    seed: int = 0,
    run: RunRound = run_one_round,
) -> Rounds:
    """Put the rounds of a policy with central noise on trial, seen by whoever gets the models.

    One client's update is as long as the clip allows, along the first coordinate, or zero; all
    others send zero. Everything else that a round does is done as in a real one.

    Guarantee: if a round is as private as the policy's event says, a contradiction is found with
    a probability of at most 1 − confidence.
    Cost: `rounds` rounds with all clients and four parameters.

    Raises:
        ConfigError: the policy has no central noise to try.
    """
    terms = policy.terms(_DIMENSION)
    promise = terms.promise
    if promise.kind != "central" or promise.event is None or promise.clip is None:
        raise ConfigError(
            f"wanted a policy with central privacy and a fixed clip, got {promise.kind!r}"
        )
    bound = promise.clip
    still = Update(np.zeros(terms.dimension, np.float32), 1)
    loud = np.zeros(terms.dimension, np.float32)
    loud[0] = bound

    def release(is_in: bool) -> float:
        first = Update(loud, 1) if is_in else still
        found = run(policy.aggregator, terms, [first, *[still] * (terms.clients - 1)])
        return float(found.mean[0]) * len(found.survivors) / bound

    return audit_releases(
        release,
        promise.event,
        deltas=_DELTAS,
        thresholds=(0.5,),
        rounds=rounds,
        confidence=confidence,
        accountant=promise.claim.accountant or "pld",
        seed=seed,
    )
