"""An owner's book of what trainings have spent on its rows: asked before any of them is shared."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tacit.disk import DurableFile, durable
from tacit.dp.codec import ledger_from_record
from tacit.dp.ledger import epsilon
from tacit.errors import ConfigError, DataError


@dataclass(frozen=True)
class Book:
    """A file in which an owner counts, over all trainings on the same rows.

    Attributes:
        path: where it is; its owner alone needs it.
        most: the largest ε of all trainings together.

    Guarantee: towards whoever asks its owner, the trainings in the book together spend at most
    ``most`` at the least δ that one of them was asked with, if their claims hold. It is this
    owner's promise: others keep books of their own. What was entered is on the disk, and stays
    after a power cut; all names that links give the file are one book.
    """

    path: Path
    most: float

    def enter(self, key: bytes, events: Sequence[object], delta: float) -> tuple[int, float]:
        """Enter a training before a row of it is shared; one that goes on is entered once.

        Args:
            key: that of this owner's noise, which a training that goes on keeps.
            events: what it does; towards the parties that draw rows nothing is gained by drawing,
                and the book counts that.
            delta: at which its ε was asked for.

        Raises:
            ConfigError: all trainings together would spend more than allowed.
            InputError: the book cannot be read or written.
        """
        return self.add(hashlib.sha256(b"book\n" + key).hexdigest(), _known(events), delta)

    def ask(self, events: Sequence[object], delta: float) -> tuple[int, float]:
        """Return what `enter` would of a new training, and enter nothing."""
        return self.foresee(_known(events), delta)

    def foresee(self, events: Sequence[object], delta: float) -> tuple[int, float]:
        """Return what `add` would of a new training: how many there are, their ε; enter nothing.

        Raises:
            ConfigError: all trainings together would spend more than allowed.
            InputError: the book cannot be read.
        """
        entries, least = self._parsed(DurableFile(self.path).read())
        entries[""] = list(events)
        return len(entries), self._allowed(entries, min(delta, least))

    def add(self, name: str, events: Sequence[object], delta: float) -> tuple[int, float]:
        """Enter events under a name, once; how many trainings there are, and their ε together.

        It is that of the least δ so far: a larger one would make room that was spent already.

        Raises:
            ConfigError: all trainings together would spend more than allowed.
            InputError: the book cannot be read or written.
        """
        with durable(self.path) as book:
            entries, least = self._parsed(book.read())
            delta = min(delta, least)
            is_new = name not in entries
            entries.setdefault(name, list(events))
            if not is_new:
                return len(entries), self._spent(entries, delta)
            total = self._allowed(entries, delta)
            book.write(json.dumps({"trainings": entries, "delta": delta}).encode())
            return len(entries), total

    def _allowed(self, entries: dict[str, list[object]], delta: float) -> float:
        """Return the ε of all trainings with the last one, if that is allowed."""
        total = self._spent(entries, delta)
        if math.isinf(total) or total > self.most:
            said = f"ε = {total:.3f} at δ = {delta:g}" if math.isfinite(total) else "no guarantee"
            raise ConfigError(
                f"{self.path}: with this training all those on these rows come to {said}, and "
                f"{self.most:g} is allowed; {len(entries) - 1} were entered before"
            )
        return total

    def _spent(self, entries: dict[str, list[object]], delta: float) -> float:
        joined = ledger_from_record([event for one in entries.values() for event in one])
        found = epsilon(joined, delta=delta).epsilon
        return math.inf if found is None else found

    def _parsed(self, content: bytes | None) -> tuple[dict[str, list[object]], float]:
        """Read what was entered, and the least δ."""
        if content is None:
            return {}, 1.0
        try:
            raw = json.loads(content)
            entries = {str(name): list(events) for name, events in raw["trainings"].items()}
            return entries, float(raw.get("delta", 1.0))  # older books have none
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{self.path} is no book of trainings, or damaged: what was spent is not known"
            ) from error


def _known(events: Sequence[object]) -> list[object]:
    """Return events, as records, as they are for one who knows which rows were drawn."""
    return [_shown(event) for event in events]


def _shown(record: object) -> object:
    if not isinstance(record, Mapping):
        return record
    found = {name: _shown(value) for name, value in record.items()}
    return {**found, "is_hidden": False} if "is_hidden" in found else found
