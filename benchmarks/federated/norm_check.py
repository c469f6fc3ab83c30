"""Sums whose clips are checked on shares, beside secure aggregation that checks nothing.

Processor time of all parties together; three parties more take part in the check than in the sum.
"""

import time
from collections.abc import Callable

import numpy as np
from bench import Case, InlinePeer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.federated import (
    FederatedSpec,
    Federation,
    Meter,
    Privacy,
    Seat,
    Update,
    find_aggregator,
    round_config,
    run_round,
)
from tacit.federated.bounded import NormCheck, send_update, sum_checked
from tacit.mpc import Roles
from tacit.party import Meeting, Session, run_threads
from tacit.ring import Prg

CLIENTS = 8


def cases(quick: bool) -> list[Case]:
    """List what is measured; `quick` leaves out the large size."""
    found = []
    for size in (1_000, 10_000) if quick else (1_000, 10_000, 100_000, 1_000_000):
        drawn = np.random.default_rng(0).normal(size=(CLIENTS, size))
        updates = 0.999 * drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
        masked = InlinePeer("secure aggregation", _milliseconds(lambda u=updates: _masked(u)))
        found.append(
            Case(
                name=f"{CLIENTS} clients, {size:,} numbers",
                metric="processor time",
                unit="ms",
                ours=_milliseconds(lambda u=updates: _checked(u)),
                peers=(masked,),
            )
        )
    return found


def _checked(updates: np.ndarray) -> None:
    roles = Roles("server", "checker", "dealer")
    names = tuple(f"c{i}" for i in range(CLIENTS))
    check = NormCheck(
        clients=names, roles=roles, dimension=updates.shape[1], clip=1.0, scale=1024.0
    )

    def party(session: Session) -> None:
        if session.me in names:
            send_update(session, check, updates[names.index(session.me)], Prg.from_os())
        else:
            sum_checked(session, check)

    parties = (*names, *roles.computing, roles.dealer)
    run_threads(dict.fromkeys(parties, party), Meeting(parties=parties, job_digest=bytes(32)))


def _masked(updates: np.ndarray) -> None:
    spec = FederatedSpec(federated=Federation(clients=CLIENTS, rounds=1), privacy=Privacy(clip=1.0))
    config, aggregator = round_config(spec, updates.shape[1]), find_aggregator("masked")
    clients = [
        aggregator.make_client(
            config, Seat(index=at, signing=Ed25519PrivateKey.generate()), Prg.from_os()
        )
        for at in range(CLIENTS)
    ]

    def exchange(messages: dict[int, bytes]) -> list[tuple[int, bytes]]:
        return [
            (at, clients[at].answer(message, lambda at=at: Update(updates[at], 1)))
            for at, message in messages.items()
        ]

    run_round(aggregator.make_server(config, Prg.from_os()), exchange, Meter())


def _milliseconds(work: Callable[[], object]) -> Callable[[], float]:
    def measure() -> float:
        began = time.process_time()
        work()
        return 1e3 * (time.process_time() - began)

    return measure
