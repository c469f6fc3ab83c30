"""Aggregators beside TenSEAL's CKKS as NVFLARE packs it, phe, and secure aggregation.

Processor time of all parties together, on one core; updates are rounded, tagged and packed in it.
CKKS rounds, and its decryptions must not reach the server; these sums are exact.
"""

import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np
import tenseal
from bench import Case, InlinePeer, VenvPeer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.crypto import make_key_pair
from tacit.federated import (
    FederatedSpec,
    Federation,
    Meter,
    Privacy,
    RoundConfig,
    Seat,
    Update,
    find_aggregator,
    provision,
    round_config,
    run_round,
)
from tacit.federated.aggregators import enter_in_memory
from tacit.federated.contract import HELPER
from tacit.federated.keyed import ddh
from tacit.ring import Prg

CLIENTS, SLOTS = 8, 4096
PEERS = Path(__file__).parents[1] / "peers"
WORDS = {
    "masked": {"aggregator": "masked"},
    "masked, verified": {"aggregator": "masked", "verified": True},
    "keyed": {"aggregator": "keyed"},
    "keyed, verified": {"aggregator": "keyed", "verified": True},
    "bfv": {"aggregator": "encrypted"},
    "bfv, verified": {"aggregator": "encrypted", "verified": True},
    "paillier": {"aggregator": "encrypted", "cipher": "paillier"},
    "threshold": {"aggregator": "encrypted", "cipher": "paillier", "threshold": 5},
}


def cases(quick: bool) -> list[Case]:
    """List what is measured; `quick` takes smaller sizes."""
    large, middle, small = (50_000, 5_000, 500) if quick else (1_000_000, 100_000, 10_000)
    everyone = f"{CLIENTS} clients, {large:,} numbers"
    ckks = partial(_ckks, large)
    phe = VenvPeer(
        name="phe",
        requirements=("phe==1.5.0", "gmpy2==2.2.1"),
        script=PEERS / "phe_peer.py",
        arguments=("3072",),
    )
    timed = partial(Case, metric="processor time", unit="s")
    sums = [
        timed(
            name=f"{word}: {everyone}",
            ours=_seconds(partial(_round, word, large)),
            peers=(InlinePeer(other, _seconds(partial(_round, other, large))),),
            goal=goal,
        )
        for word, other, goal in (
            ("keyed", "masked", 2.0),
            ("masked, verified", "masked", None),
            ("keyed, verified", "keyed", None),
            ("bfv, verified", "bfv", None),
        )
    ]
    return [
        timed(
            name=f"encrypted, bfv: {everyone}",
            ours=_seconds(partial(_round, "bfv", large)),
            peers=(InlinePeer("CKKS 8192 [60, 40, 60]", _seconds(ckks)),),
            goal=0.5,
        ),
        Case(
            name=f"encrypted, bfv: {everyone}",
            metric="sent by a client",
            unit="MB",
            ours=lambda: _megabytes("bfv", large),
            peers=(InlinePeer("CKKS 8192 [60, 40, 60]", lambda: ckks() / 1e6),),
            goal=0.4,
        ),
        Case(
            name=f"encrypted, paillier 3072: {CLIENTS} clients, {middle:,} numbers",
            metric="processor time per number and client",
            unit="µs",
            ours=lambda: 1e6 * _seconds(partial(_round, "paillier", middle))() / middle / CLIENTS,
            peers=(phe,),
            goal=0.01,
        ),
        Case(
            name=f"encrypted, 5 of {CLIENTS} decrypt: {small:,} numbers",
            metric="processor time of a party",
            unit="s",
            ours=lambda: _slowest_party("threshold", small),
            goal=6.0,
        ),
        *sums,
        Case(
            name="inner products by discrete logarithms, 2 clients",
            metric="processor time per number and client",
            unit="µs",
            ours=lambda: 1e6 * _seconds(_logarithms)() / 8,
        ),
    ]


@cache
def _provided(word: str, size: int) -> tuple[RoundConfig, tuple[bytes, ...]]:
    terms = Federation(clients=CLIENTS, rounds=1, minimum=5, colluding_share=0.0, **WORDS[word])
    spec = FederatedSpec(federated=terms, privacy=Privacy(clip=1.0))
    public_key, secrets = provision(spec, Prg.from_os())
    return round_config(spec, size, public_key=public_key), secrets


@cache
def _update(size: int) -> Update:
    return Update(np.full(size, size**-0.5, np.float32) * 0.99, 1)


def _round(word: str, size: int) -> tuple[Meter, dict[int, float]]:
    """Run a round; return what it moved, and the processor time of every client."""
    config, secrets = _provided(word, size)
    aggregator, pair = find_aggregator(WORDS[word]["aggregator"]), make_key_pair()
    clients = [
        aggregator.make_client(
            config,
            Seat(
                index=at,
                signing=Ed25519PrivateKey.generate(),
                helper=pair.public,
                secret=secrets[at],
            ),
            Prg.from_os(),
        )
        for at in range(CLIENTS)
    ]
    meter, spent = Meter(), dict.fromkeys(range(CLIENTS), 0.0)

    def exchange(messages: dict[int, bytes]) -> object:
        for at, message in messages.items():
            if at == HELPER:
                yield (
                    at,
                    aggregator.make_helper(config, pair, Prg.from_os(), enter_in_memory())(message),
                )
                continue
            began = time.process_time()
            answer = clients[at].answer(message, lambda: _update(size))
            spent[at] += time.process_time() - began
            yield at, answer

    run_round(aggregator.make_server(config, Prg.from_os()), exchange, meter)
    return meter, spent


def _megabytes(word: str, size: int) -> float:
    """Return what a client sends on average, the decryption of the sum included."""
    meter, _ = _round(word, size)
    return sum(meter.up[at] for at in range(CLIENTS)) / CLIENTS / 1e6


def _slowest_party(word: str, size: int) -> float:
    """Return what the slowest client took, in the first round with tables of powers."""
    return max(_round(word, size)[1].values())


@cache
def _context() -> tenseal.Context:
    context = tenseal.context(
        tenseal.SCHEME_TYPE.CKKS, poly_modulus_degree=8192, coeff_mod_bit_sizes=[60, 40, 60]
    )
    context.global_scale = 2**40
    return context


def _ckks(size: int) -> float:
    """Add CKKS vectors as NVFLARE does: clients encrypt, the server adds, a client decrypts.

    Returns:
        Bytes that a client sends.
    """
    context, values = _context(), _update(size).values.tolist()
    public = context.copy()
    public.make_context_public()
    totals: list[tenseal.CKKSVector] = []
    sent = 0
    for _ in range(CLIENTS):
        sealed = [
            tenseal.ckks_vector(context, values[at : at + SLOTS]).serialize()
            for at in range(0, size, SLOTS)
        ]
        sent += sum(map(len, sealed))
        vectors = [tenseal.ckks_vector_from(public, one) for one in sealed]
        totals = [a + b for a, b in zip(totals, vectors, strict=True)] if totals else vectors
    answer = [one.serialize() for one in totals]
    found = [one for part in answer for one in tenseal.ckks_vector_from(context, part).decrypt()]
    if len(found) != size or abs(found[0] - CLIENTS * values[0]) > 1e-3:
        raise SystemExit("the sum of CKKS vectors is another")
    return sent / CLIENTS


def _logarithms() -> None:
    """Encrypt four numbers at two clients, and decrypt their sums."""
    secrets = {at: ddh.make_secret(Prg.from_os()) for at in range(2)}
    weights = {0: 1, 1: 1}
    sealed = {at: ddh.encrypt(secrets[at], b"round", [3, 1, 4, 1]) for at in range(2)}
    key = ddh.make_function_key(secrets, weights)
    ddh.decrypt_sum(key, b"round", sealed, weights, bound=1 << 16)


def _seconds(work: Callable[[], object]) -> Callable[[], float]:
    def measure() -> float:
        began = time.process_time()
        work()
        return time.process_time() - began

    return measure
