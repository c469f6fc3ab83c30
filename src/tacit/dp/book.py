"""The one account of spent privacy: what was done to an owner's rows, asked before more is done.

Trainings, rounds of a silo and tunings of texts are entries of one format: of two kinds of work
that name one file, each is counted with the other.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from tacit.disk import DurableFile
from tacit.dp.accountant import common_relation
from tacit.dp.codec import ledger_from_record
from tacit.dp.event import Relation
from tacit.dp.ledger import Ledger, epsilon
from tacit.errors import ConfigError, DataError
from tacit.vault import entries, read_entries

_KIND = "book"


class BudgetSpentError(ConfigError):
    """There is not enough left for what was asked.

    Args:
        epsilon: what all would come to with it, if it is known.
        delta: at which δ.
    """

    def __init__(self, text: str, *, epsilon: float = math.inf, delta: float = 0.0) -> None:
        super().__init__(text)
        self.epsilon, self.delta = epsilon, delta


class _Entry(NamedTuple):
    rows: str
    relation: Relation | None
    delta: float
    ledger: Ledger


@dataclass(frozen=True)
class Book:
    """A file in which an owner counts what is spent on its rows.

    Attributes:
        path: where it is; its owner alone needs it.
        most: the largest ε of all entries that are counted together.
        rows: which of several sets of rows that share the file; entries without a name for theirs
            count for all of them.

    Guarantee: towards whoever asks its owner, all that is in the book about the same rows under one
        neighbouring relation, which names the unit, spends at most ``most`` together, at the least
        δ that any of it was asked with, if its claims hold. What protects another unit, or is under
        another relation, stands beside it: no ε is added up over units. It is this owner's promise:
        others keep books of their own. What was entered is on the disk, and stays after a power
        cut; all names that symbolic links give the file are one book.
    """

    path: Path
    most: float = math.inf
    rows: str = ""

    def foresee(
        self, events: Sequence[object], delta: float, *, accountant: str | None = None
    ) -> tuple[int, float]:
        """Return what `enter` would of something new, and enter nothing.

        Raises:
            BudgetSpentError: all together would spend more than allowed.
            InputError: the book cannot be read.
        """
        found = read_entries(DurableFile(self.path), _KIND)
        found[""] = self._entry("", events, delta)
        return self._counted(found, "", accountant)

    def enter(
        self,
        name: str,
        events: Sequence[object],
        delta: float,
        *,
        kind: str,
        accountant: str | None = None,
    ) -> tuple[int, float]:
        """Enter events under a name, once; how many entries count together, and their ε.

        It is that of the least δ so far: a larger one would make room that was spent already.

        Args:
            name: what goes on after it was stopped has the name that it had.
            events: the records of a ledger's entries, all under one relation.
            delta: at which their ε was asked for.
            kind: of what work they are.
            accountant: a name in `ACCOUNTANTS`; the first that can, if not given.

        Raises:
            BudgetSpentError: all together would spend more than allowed; nothing is entered.
            InputError: the book cannot be read or written.
        """
        with entries(self.path, _KIND) as found:
            if name in found:
                return replace(self, most=math.inf)._counted(found, name, accountant)
            found[name] = self._entry(kind, events, delta)
            return self._counted(found, name, accountant)

    def ledgers(self) -> dict[Relation | None, Ledger]:
        """Return all that was entered about these rows, by the neighbouring relation."""
        found: dict[Relation | None, Ledger] = {}
        for one in self._read(read_entries(DurableFile(self.path), _KIND)).values():
            if self.rows == one.rows or "" in (self.rows, one.rows):
                before = found.get(one.relation, Ledger())
                found[one.relation] = Ledger((*before.entries, *one.ledger.entries))
        return found

    def _entry(self, kind: str, events: Sequence[object], delta: float) -> dict[str, object]:
        common_relation(one.event for one in ledger_from_record(list(events)).entries)
        return {"kind": kind, "rows": self.rows, "delta": delta, "events": list(events)}

    def _counted(
        self, found: Mapping[str, Any], name: str, accountant: str | None
    ) -> tuple[int, float]:
        """Count an entry with all those before it, if together they are allowed."""
        read = self._read(found)
        new = read[name]
        # Of rows that have no name nobody knows that they are others.
        same = [
            one
            for one in read.values()
            if one.relation == new.relation and (one.rows == new.rows or "" in (one.rows, new.rows))
        ]
        delta = min(one.delta for one in same)
        joined = Ledger(entry for one in same for entry in one.ledger.entries)
        spent = epsilon(joined, delta=delta, accountant=accountant).epsilon
        total = math.inf if spent is None else spent
        if math.isinf(total) or total > self.most:
            said = f"ε = {total:.3f} at δ = {delta:g}" if math.isfinite(total) else "no guarantee"
            raise BudgetSpentError(
                f"{self.path}: with this training all those on these rows come to {said}, and "
                f"{self.most:g} is allowed; {len(same) - 1} were entered before",
                epsilon=total,
                delta=delta,
            )
        return len(same), total

    def _read(self, found: Mapping[str, Any]) -> dict[str, _Entry]:
        read = {}
        try:
            for name, one in found.items():
                ledger = ledger_from_record(one["events"])
                relation = common_relation(entry.event for entry in ledger.entries)
                read[name] = _Entry(str(one["rows"]), relation, float(one["delta"]), ledger)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{self.path} is damaged: what was spent is not known; put it right, from a copy"
            ) from error
        return read


def open_book(given: Path | str | Book) -> Book:
    """Return a book that was given as one, or as its file."""
    return given if isinstance(given, Book) else Book(Path(given))


def as_drawn(events: Sequence[object]) -> list[object]:
    """Return events, as records, as they are for one who knows which rows were drawn.

    Towards parties that draw rows themselves nothing is gained by drawing, and a book counts that.
    """
    return [_shown(event) for event in events]


def _shown(record: object) -> object:
    if not isinstance(record, Mapping):
        return record
    found = {name: _shown(value) for name, value in record.items()}
    return {**found, "is_hidden": False} if "is_hidden" in found else found
