"""The leakage ledger: everything that was shown to a party, to whom and why."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tacit.result import Leak, LeakKind


@dataclass(frozen=True, kw_only=True)
class Fact:
    """Public numbers that a party tells others before they begin.

    One source for both ends: a plan lists `leaks`, and `Session.publish` and `Session.learn`, the
    only way such numbers go, write the same into the ledger.

    Attributes:
        tag: names the message.
        count: numbers in it.
        what: they say, with ``{owner}`` for who tells them; nothing for public coins.
        why: they are told.
        elements: how many things they say, where a message is filled up with zeros.
        kind: of an entry: a fact of a secret model can be more than a size.
    """

    tag: str
    count: int
    what: str
    why: str = "needed to plan the computation"
    elements: int | None = None
    kind: LeakKind = "size"

    def leaks(self, owner: str, parties: Iterable[str]) -> tuple[Leak, ...]:
        """List what these parties learn when the owner, who may be among them, tells it."""
        elements = self.count if self.elements is None else self.elements
        what = self.what.replace("{owner}", owner)
        return tuple(
            Leak(to=party, what=what, why=self.why, kind=self.kind, elements=elements)
            for party in parties
            if what and party != owner
        )

    def leaks_of_all(self, owners: Iterable[str], parties: Sequence[str]) -> tuple[Leak, ...]:
        """List what these parties learn when each of the owners tells its own."""
        return tuple(leak for owner in owners for leak in self.leaks(owner, parties))


class LeakLedger:
    """Collect what one party knows to have been revealed, to itself or by it to others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: dict[Leak, int] = {}  # by an entry without its count, in first-seen order

    def record(self, *leaks: Leak) -> None:
        """Write entries; the counts of those that differ in nothing else are added up."""
        with self._lock:
            for leak in leaks:
                key = replace(leak, elements=0)
                self._totals[key] = self._totals.get(key, 0) + leak.elements

    def entries(self) -> tuple[Leak, ...]:
        """Return what was recorded so far, in order, with repetitions added up."""
        with self._lock:
            return tuple(replace(leak, elements=count) for leak, count in self._totals.items())


def merge(entries: Iterable[Leak]) -> tuple[Leak, ...]:
    """Add up the counts of entries that differ in nothing else, keeping first-seen order."""
    ledger = LeakLedger()
    ledger.record(*entries)
    return ledger.entries()
