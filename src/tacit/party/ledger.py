"""The leakage ledger: everything that was shown to a party, to whom and why."""

import threading

from tacit.result import Leak, LeakKind


class Ledger:
    """Collect what one party knows to have been revealed, to itself or by it to others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[Leak] = []

    def record(self, *leaks: Leak) -> None:
        """Write entries; equal ones are kept, because each is one more look."""
        with self._lock:
            self._entries.extend(leaks)

    def entries(self) -> tuple[Leak, ...]:
        """Return what was recorded so far, in order, with repetitions added up."""
        with self._lock:
            return merge(tuple(self._entries))


def merge(entries: tuple[Leak, ...]) -> tuple[Leak, ...]:
    """Add up the counts of entries that differ in nothing else, keeping first-seen order."""
    totals: dict[tuple[str, str, str, LeakKind], int] = {}
    for leak in entries:
        key = (leak.to, leak.what, leak.why, leak.kind)
        totals[key] = totals.get(key, 0) + leak.elements
    return tuple(
        Leak(to=to, what=what, why=why, kind=kind, elements=elements)
        for (to, what, why, kind), elements in totals.items()
    )
