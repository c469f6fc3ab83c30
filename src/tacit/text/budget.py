"""What may be spent on marks, in a conversation and in all: counted before anything is said."""

import math
from pathlib import Path
from typing import final

from tacit.dp.book import BudgetSpentError
from tacit.dp.check import budget as checked
from tacit.dp.event import Pure
from tacit.dp.ledger import Ledger
from tacit.errors import DataError
from tacit.vault import entries, pack_entries

_KIND = "budget"
UNSPENT = pack_entries({}, _KIND)
"""The file of a budget of which nothing is spent."""


@final
class Budget:
    """An ε that is never exceeded: pure events are added up, and one that would exceed it refused.

    Guarantee: all that is said under a budget is (ε, 0)-private with ε = ``most``. With a file, it
    is so for all processes that use the file, one after the other or at the same time; whoever may
    remove or copy the file may start anew.

    Args:
        most: the ε of all events together.
        path: where they are counted; in memory if not given.
        within: a wider budget, of which everything is spent as well.
    """

    def __init__(
        self, most: float, *, path: Path | None = None, within: "Budget | None" = None
    ) -> None:
        self.most = checked("most", most)
        self.ledger = Ledger()
        self._path = path
        self._within = within
        self._counts: dict[str, int] = {}
        if path is not None:
            self._counts = self._locked(None)

    @property
    def spent(self) -> float:
        """Return what is gone: the sum over events."""
        return _sum(self._counts)

    @property
    def left(self) -> float:
        """Return what is left, here and in what this is part of."""
        here = self.most - self.spent
        return here if self._within is None else min(here, self._within.left)

    def spend(self, event: Pure) -> None:
        """Count an event, before what it is about is shown to anybody.

        Raises:
            BudgetSpentError: it is more than is left; nothing is counted.
            InputError: the file cannot be read or written.
        """
        self._refuse(_sum(self._counts), event)
        if self._within is not None:
            self._within.spend(event)
        if self._path is not None:
            self._counts = self._locked(event)
        else:
            _add(self._counts, event)
        self.ledger.record(event)

    def _refuse(self, spent: float, event: Pure) -> None:
        if spent + event.epsilon > self.most:
            raise BudgetSpentError(
                f"ε = {event.epsilon:.4g} is wanted, and {max(self.most - spent, 0):.4g} is left "
                f"of the budget of {self.most:g}; nothing more is said about what is marked"
            )

    def _locked(self, event: Pure | None) -> dict[str, int]:
        """Read the file and, if there is an event, add it, while nobody else does."""
        path = self._path or Path()
        with entries(path, _KIND) as counts:
            for key, count in counts.items():
                if not _is_epsilon(key) or type(count) is not int or count < 1:
                    raise DataError(f"{path} is damaged: what was spent is not known")
            if event is not None:
                self._refuse(_sum(counts), event)
                _add(counts, event)
        return counts


def _add(counts: dict[str, int], event: Pure) -> None:
    counts[event.epsilon.hex()] = counts.get(event.epsilon.hex(), 0) + 1


def _sum(counts: dict[str, int]) -> float:
    return math.fsum(float.fromhex(epsilon) * count for epsilon, count in counts.items())


def _is_epsilon(key: str) -> bool:
    try:
        return 0 < float.fromhex(key) < math.inf
    except (ValueError, OverflowError):
        return False
