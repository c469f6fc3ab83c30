"""Computing on secrets, beside CrypTen and SPU: every party a process on loopback, one thread each.

Online time runs from shared inputs to a shared result. The peers make their triples inside the
operation; ours come from the dealer before, so "offline time" stands beside every row and "offline
+ online time" is compared with the peers too. Weights (of "linear" and of the MLP) are opened
under a mask before the query, which is counted as offline; "product" opens both operands online.
Operands of products are inputs of one party each, which opens them one way; "nobody's inputs" are
opened both ways, as results of earlier work are.
Error: largest absolute difference to the same computation in double precision. Bytes: payload
sent by all parties together; the peers' as they count themselves. Rounds: ours are messages that
wait for each other; CrypTen counts collective calls, SPU the sends of a party.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench import Case, VenvPeer
from mpc._parties import Parties, Run
from mpc._programs import Counts, count
from mpc._rows import Row

PEERS = Path(__file__).parents[1] / "peers"
CRYPTEN = (
    "crypten==0.4.1",
    "torch==2.13.0",
    "numpy==2.4.6",
    "typing_extensions==4.16.0",
    "omegaconf==2.4.0",
    "PyYAML==6.0.3",
    "onnx==1.23.2",
    "protobuf==7.36.2",
    "ml_dtypes==0.6.0",
)
"""All that CrypTen needs to be imported; it asks for packages that are gone, hence no others."""
SPU = ("spu==0.9.5", "jax==0.4.34", "jaxlib==0.4.34", "numpy==1.26.4")


@dataclass(frozen=True)
class Entry:
    """A row of the table and what is wanted of it."""

    title: str
    row: str
    goal: float = 0.5
    is_linear: bool = False
    is_quick: bool = False


ENTRIES = (
    Entry("matmul 128³", "matmul-128-128-128", is_linear=True, is_quick=True),
    Entry("linear 1×4096·4096²", "linear-1-4096-4096", is_linear=True),
    Entry("product 1×4096·4096²", "matmul-1-4096-4096", is_linear=True),
    # Here the local products of the ring are the floor.
    Entry("matmul 1024³", "matmul-1024-1024-1024", goal=0.75, is_linear=True),
    Entry("mul 1e6", "mul-1000000", is_linear=True),
    Entry("matmul 128³, nobody's inputs", "shared+matmul-128-128-128", is_linear=True),
    Entry("mul 1e6, nobody's inputs", "shared+mul-1000000", is_linear=True),
    Entry("compare 1e6", "is_positive-1000000"),
    Entry("ReLU 1e6", "relu-1000000"),
    Entry("GELU 1e5", "gelu-100000"),
    Entry("softmax 128×1024", "softmax-128-1024"),
    Entry("layer norm 128×1024", "layer_norm-128-1024", is_quick=True),
    Entry("inverse sqrt of 1", "rsqrt-1", is_quick=True),
    Entry("inverse sqrt of 128", "rsqrt-128", is_quick=True),
    Entry("MLP 784-128-128-10, batch 128", "mlp-128-784-128-128-10", is_quick=True),
)
PERMUTED = ("permuted3", "permuted2")
PERMUTED_GOAL = 0.1


def cases(quick: bool) -> list[Case]:
    """Return every row under every protocol: times, errors, bytes and rounds."""
    parties = Parties()
    found = []
    for entry in ENTRIES:
        if quick and not entry.is_quick:
            continue
        sealed = Contest(entry, "sealed", parties)
        found += [sealed.online_time(entry.goal), sealed.error(), *sealed.offline()]
        if not quick:
            found += [sealed.total_time(), *sealed.traffic()]
        checked = Contest(entry, "checked", parties)
        found += [checked.online_time(1.0), checked.error(), *checked.offline()]
        if not quick:
            found += checked.traffic()
        # What they do not permute, they compute as sealed does.
        for protocol in () if entry.is_linear else PERMUTED:
            permuted = Contest(entry, protocol, parties)
            goal = entry.goal if entry.row.startswith("mlp") else PERMUTED_GOAL
            found += [permuted.online_time(goal), permuted.error(), *permuted.offline()]
            if not entry.row.startswith("mlp"):
                found.append(permuted.floor())
    return found


@dataclass(frozen=True)
class Contest:
    """One row under one protocol of ours: its cases, each with the peers that can answer it."""

    entry: Entry
    protocol: str
    parties: Parties

    def online_time(self, goal: float) -> Case:
        """Compare what a user waits for once the material is there."""
        peers = (*self._two_party_peers("time"), self._spu("aby3", "time"))
        return self._case("online time", "ms", lambda: self._run().online_ms, peers, goal)

    def floor(self) -> Case:
        """Show what bytes on the links, two gathers and the function take by themselves."""
        return self._case(
            "floor of online time",
            "ms",
            lambda: self.parties.floor_ms(Row.parse(self.entry.row), self.protocol),
        )

    def total_time(self) -> Case:
        """Compare all the work, as the peers make their material on the way."""

        def total_ms() -> float:
            run = self._run()
            return run.offline_ms + run.online_ms

        peers = self._two_party_peers("time")
        return self._case("offline + online time", "ms", total_ms, peers)

    def error(self) -> Case:
        """Compare the largest errors."""
        peers = self._two_party_peers("error")
        return self._case("max error", "", lambda: self._run().largest_error, peers, 1.0)

    def offline(self) -> tuple[Case, ...]:
        """Tell what the dealer costs; no peer has one."""
        return (
            self._case("offline time", "ms", lambda: self._run().offline_ms),
            self._case("offline bytes", "MB", lambda: self._counts().offline_megabytes),
        )

    def traffic(self) -> tuple[Case, ...]:
        """Compare what is sent."""
        sizes, rounds = map(self._two_party_peers, ("megabytes", "rounds"))
        return (
            self._case("online bytes", "MB", lambda: self._counts().online_megabytes, sizes, 1.0),
            self._case("online rounds", "", lambda: self._counts().online_rounds, rounds, 1.0),
        )

    def _case(
        self,
        metric: str,
        unit: str,
        ours: Callable[[], float],
        peers: tuple[VenvPeer, ...] = (),
        goal: float | None = None,
    ) -> Case:
        name = f"{self.entry.title}, {self.protocol}"
        return Case(name=name, metric=metric, unit=unit, ours=ours, peers=peers, goal=goal)

    def _run(self) -> Run:
        return self.parties.run(Row.parse(self.entry.row), self.protocol)

    def _counts(self) -> Counts:
        return count(Row.parse(self.entry.row), self.protocol)

    def _two_party_peers(self, quantity: str) -> tuple[VenvPeer, ...]:
        crypten = VenvPeer(
            name="crypten",
            requirements=CRYPTEN,
            script=PEERS / "crypten_peer.py",
            arguments=(self.entry.row, quantity),
            pip_arguments=("--no-deps",),
        )
        return crypten, self._spu("semi2k", quantity)

    def _spu(self, protocol: str, quantity: str) -> VenvPeer:
        return VenvPeer(
            name=f"spu-{protocol}",
            requirements=SPU,
            script=PEERS / "spu_peer.py",
            arguments=(protocol, self.entry.row, quantity),
        )
