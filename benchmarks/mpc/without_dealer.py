"""Two parties without a dealer, beside SPU's Cheetah: every party a process, one thread each.

SPU makes its correlations inside the operation, so our offline time is counted with the online
time. Operands are inputs of one party each; "nobody's inputs" are results of earlier work. A third
process of ours stands by and does nothing.
"""

from collections.abc import Callable
from pathlib import Path

from bench import Case, VenvPeer
from mpc._parties import Parties, Run
from mpc._programs import count
from mpc._rows import Row
from mpc.operations import SPU

from tacit.mpc.registry import NO_DEALER

PEER = Path(__file__).parents[1] / "peers" / "spu_peer.py"
ROWS = {
    "matmul 128³": ("matmul-128-128-128", 0.2),
    "matmul 128³, nobody's inputs": ("shared+matmul-128-128-128", 0.2),
    "linear 1×4096·4096²": ("linear-1-4096-4096", 0.2),
    "ReLU 1e5": ("relu-100000", 0.3),
    "ReLU 1e6": ("relu-1000000", 0.3),
    "MLP 784-128-128-10, batch 128": ("mlp-128-784-128-128-10", 0.3),
}
QUICK = ("matmul 128³", "ReLU 1e5")


def cases(quick: bool) -> list[Case]:
    """Return times with the peer's, and what is sent."""
    parties, found = Parties(), []
    for title, (name, goal) in ROWS.items():
        if quick and title not in QUICK:
            continue
        row = Row.parse(name)

        def run(row: Row = row) -> Run:
            return parties.run(row, NO_DEALER)

        def total(run: Callable[[], Run] = run) -> float:
            one = run()
            return one.offline_ms + one.online_ms

        peers = tuple(
            VenvPeer(
                name="spu-cheetah",
                requirements=SPU,
                script=PEER,
                arguments=("cheetah", row.name, quantity),
            )
            for quantity in ("time", "error", "megabytes")
        )
        counts = count(row, NO_DEALER)
        sent = counts.offline_megabytes + counts.online_megabytes
        found += [
            Case(title, "offline + online time", "ms", total, (peers[0],), goal),
            Case(title, "online time", "ms", lambda run=run: run().online_ms),
            Case(title, "max error", "", lambda run=run: run().largest_error, (peers[1],), 1.0),
            Case(title, "bytes", "MB", lambda sent=sent: sent, (peers[2],), 1.0),
            Case(title, "online bytes", "MB", lambda c=counts: c.online_megabytes),
        ]
    return found
