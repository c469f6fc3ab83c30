"""Masked sums beside Flower's SecAgg+: processor seconds of all clients and the server together.

Every case adds up one million parameters, from the first key to the mean: keys, shares, rounding,
masks, recovery. Flower's functions run in one process as ours do; nothing is sent on either side.
The last cases are ours alone: a thousand clients on the sparse graph that withstands 10 % drop-outs
and 10 % colluding clients, its time and its peak memory.
"""

import importlib.util
import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import numpy as np
from bench import Case, VenvPeer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.federated.secagg import (
    Neighbourhood,
    SecAggClient,
    SecAggPlan,
    SecAggServer,
    dequantise,
    plan_neighbourhood,
    plan_secagg,
    quantise,
)
from tacit.ring import Prg

PEER = Path(__file__).parents[1] / "peers" / "flower_peer.py"
DIMENSION = 10**6
THOUSAND = 1000


@dataclass(frozen=True)
class Size:
    """How many add up, how many hold shares of each (itself included), and how many drop out."""

    clients: int
    shares: int
    dropped: int
    goal: float

    @property
    def name(self) -> str:
        """Name the case."""
        graph = "complete graph" if self.shares == self.clients else f"{self.shares} shares"
        lost = f", {self.dropped} drop out" if self.dropped else ""
        return f"{self.clients} clients, {graph}{lost}"


SIZES = (
    Size(10, 10, 0, 1 / 6),
    Size(50, 50, 0, 1 / 10),
    Size(50, 50, 5, 1 / 10),
    Size(100, 21, 0, 1 / 6),
    Size(100, 100, 0, 1 / 6),
)


def cases(quick: bool) -> list[Case]:
    """Return the comparisons and, unless in a hurry, the thousand clients."""
    found = [_compare(size) for size in (SIZES[:1] if quick else SIZES)]
    found.append(
        Case(
            name="upload",
            metric="bytes per parameter",
            unit="B",
            ours=lambda: _plan(Size(100, 21, 0, 1)).upload_bytes / DIMENSION,
            goal=4.2,
        )
    )
    if not quick:
        found += _thousand()
    return found


def add_up(plan: SecAggPlan, dropped: int, *, is_known: bool = False) -> float:
    """Run one round and return the processor time; the sum is checked."""
    update = np.random.default_rng(0).uniform(-1, 1, plan.dimension).astype(np.float32)
    begun = process_time()
    prg = Prg.from_os()
    signing = [Ed25519PrivateKey.generate() for _ in range(plan.clients)]
    # With keys that all know, every client checks the signatures of its neighbours.
    known = frozenset(key.public_key().public_bytes_raw() for key in signing) if is_known else None
    clients = [
        SecAggClient(plan, index, signing=key, prg=prg.fork(str(index)), known=known)
        for index, key in enumerate(signing)
    ]
    server = SecAggServer(plan)
    server.invite()
    for index, client in enumerate(clients):
        server.accept(index, client.advertise())
    _stage(server, lambda index, message: clients[index].share(message))
    _stage(
        server,
        lambda index, message: clients[index].mask(
            message, quantise(plan, update, weight=10, prg=prg)
        ),
        dropped,
    )
    _stage(server, lambda index, message: clients[index].attest(message))
    _stage(server, lambda index, message: clients[index].unmask(message))
    server.close()
    total, weight = dequantise(plan, server.total())
    seconds = process_time() - begun
    alive = plan.clients - dropped
    if weight != 10 * alive or not np.allclose(total / alive, update, atol=1e-3):
        raise SystemExit("the mean is not that of the updates")
    return seconds


def _stage(server: SecAggServer, answer: Callable[[int, bytes], bytes], dropped: int = 0) -> None:
    for index, message in server.close().items():
        if index >= dropped:
            server.accept(index, answer(index, message))


def _plan(size: Size) -> SecAggPlan:
    near = Neighbourhood(neighbours=size.shares - 1, threshold=size.shares // 2 + 1)
    return plan_secagg(
        size.clients, DIMENSION, bound=8.0, neighbourhood=near, minimum=size.clients // 2
    )


def _compare(size: Size) -> Case:
    arguments = (size.clients, size.shares, size.dropped, DIMENSION)
    peer = VenvPeer(
        name="flower",
        requirements=("flwr[simulation]>=1.40",),
        script=PEER,
        arguments=tuple(str(number) for number in arguments),
    )
    return Case(
        name=size.name,
        metric="processor time, all parties",
        unit="s",
        ours=lambda: add_up(_plan(size), size.dropped),
        peers=(peer,),
        goal=size.goal,
    )


def _thousand() -> list[Case]:
    """Return time and memory of a thousand clients of which a hundred drop out."""
    plan = crowd_plan()
    name = f"1000 clients, {plan.neighbourhood.neighbours} neighbours, known keys, 100 drop out"
    return [
        Case(
            name=name,
            metric="processor time, all parties",
            unit="s",
            ours=lambda: add_up(crowd_plan(), THOUSAND // 10, is_known=True),
        ),
        # The peak of this process, which has just run the case above.
        Case(
            name=name,
            metric="peak memory, all parties",
            unit="MB",
            ours=lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        ),
    ]


def crowd_plan() -> SecAggPlan:
    """Plan a sum of a thousand clients, on the ring that withstands 10 % and 10 %."""
    near = plan_neighbourhood(
        THOUSAND, minimum=800, drop_rate=0.1, colluding_share=0.1, server="curious"
    )
    return plan_secagg(THOUSAND, DIMENSION, bound=8.0, neighbourhood=near, minimum=800)


def main() -> None:
    """Measure us and, where Flower is installed here, Flower too; print one line per case."""
    spec = importlib.util.spec_from_file_location("flower_peer", PEER)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{PEER} cannot be imported")
    peer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peer)
    for size in SIZES[:4]:
        ours = add_up(_plan(size), size.dropped)
        theirs = peer.run(size.clients, size.shares, size.dropped, DIMENSION)
        print(f"{size.name:40} {ours:8.3f} s  Flower {theirs:8.3f} s  1/{theirs / ours:.1f}")


if __name__ == "__main__":
    main()
