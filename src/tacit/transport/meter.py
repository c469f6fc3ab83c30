"""The meter: messages, bytes and the longest chain of messages that wait for each other."""

import threading
from collections import defaultdict

from tacit.result import PHASES, Phase, Traffic

MAX_DEPTH = (1 << 32) - 1

_Tally = defaultdict[tuple[str, Phase], list[int]]  # messages and bytes


class Meter:
    """Counts what one party sends and receives on all its links.

    A message extends the chain of what its sender had been handed before it: it carries the
    sender's clock plus one, and the clock of the receiver rises to that when ``recv`` hands the
    message out. Sending alone raises nothing, so messages sent side by side are one round.
    The setup phase has no chain. Safe to share between threads.
    """

    def __init__(self, me: str) -> None:
        self.me = me
        self._lock = threading.Lock()
        self._clock: dict[Phase, int] = dict.fromkeys(PHASES, 0)
        self._longest: dict[Phase, int] = dict.fromkeys(PHASES, 0)
        self._sent: _Tally = defaultdict(lambda: [0, 0])
        self._taken: _Tally = defaultdict(lambda: [0, 0])

    def count_sent(self, peer: str, phase: Phase, payload_bytes: int) -> int:
        """Count a message that we send and return the depth it carries."""
        with self._lock:
            tally = self._sent[peer, phase]
            tally[0] += 1
            tally[1] += payload_bytes
            if phase == "setup":
                return 0
            depth = min(self._clock[phase] + 1, MAX_DEPTH)
            if depth > self._longest[phase]:
                self._longest[phase] = depth
        return depth

    def count_taken(self, peer: str, phase: Phase, payload_bytes: int, depth: int) -> None:
        """Count a message that ``recv`` hands out."""
        with self._lock:
            tally = self._taken[peer, phase]
            tally[0] += 1
            tally[1] += payload_bytes
            if phase != "setup" and depth > self._clock[phase]:
                self._clock[phase] = depth
                self._longest[phase] = max(self._longest[phase], depth)

    def rounds(self, phase: Phase) -> int:
        """Return the longest chain of messages seen in a phase, sent or received."""
        with self._lock:
            return self._longest[phase]

    def traffic(self) -> tuple[Traffic, ...]:
        """Return what we sent, by receiver and then by phase."""
        with self._lock:
            return tuple(
                Traffic(sender=self.me, receiver=peer, phase=phase, messages=n, payload_bytes=size)
                for (peer, phase), (n, size) in sorted(self._sent.items(), key=_order)
            )

    def arrivals(self) -> tuple[Traffic, ...]:
        """Return what ``recv`` handed to us, by sender and then by phase."""
        with self._lock:
            return tuple(
                Traffic(sender=peer, receiver=self.me, phase=phase, messages=n, payload_bytes=size)
                for (peer, phase), (n, size) in sorted(self._taken.items(), key=_order)
            )


def _order(item: tuple[tuple[str, Phase], list[int]]) -> tuple[str, int]:
    (peer, phase), _ = item
    return peer, PHASES.index(phase)
