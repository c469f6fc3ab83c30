"""What a backend spends between two moments, and which conversation a text continues."""

from collections.abc import Sequence

from tacit.llm.backend.dialogue import Spent
from tacit.party import Session
from tacit.result import Leak, Phase


class Mark:
    """The meter and the ledger of a session at one moment; ``known`` stands for the ledger."""

    def __init__(self, session: Session, *, known: tuple[Leak, ...] | None = None) -> None:
        traffic = session.meter.traffic() + session.meter.arrivals()
        self._bytes: dict[Phase, int] = {"setup": 0, "offline": 0, "online": 0}
        for one in traffic:
            self._bytes[one.phase] += one.payload_bytes
        self._rounds = session.meter.rounds("online")
        self._leaks = session.ledger.entries() if known is None else known

    def since(self, before: "Mark") -> Spent:
        """Return what happened between another mark and this one."""
        known = {(leak.to, leak.what, leak.why): leak.elements for leak in before._leaks}
        fresh = [
            (leak, leak.elements - known.get((leak.to, leak.what, leak.why), 0))
            for leak in self._leaks
        ]
        return Spent(
            payload_bytes=self._bytes["online"] - before._bytes["online"],
            offline_bytes=self._bytes["offline"] - before._bytes["offline"],
            # A round trip is two messages, one after the other.
            round_trips=(self._rounds - before._rounds + 1) // 2,
            leaks=tuple(
                Leak(to=leak.to, what=leak.what, why=leak.why, kind=leak.kind, elements=more)
                for leak, more in fresh
                if more > 0
            ),
        )


def common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many tokens two texts begin with alike."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
