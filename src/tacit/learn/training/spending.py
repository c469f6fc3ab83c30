"""An owner's book of what trainings have spent on its rows: asked before any of them is shared."""

import fcntl
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tacit.errors import ConfigError, DataError
from tacit.learn.training.privacy import Privacy, PrivacyPlan


@dataclass(frozen=True)
class Book:
    """A file in which an owner counts, over all trainings on the same rows.

    Attributes:
        path: where it is; its owner alone needs it.
        most: the largest ε of all trainings together.

    Guarantee: towards whoever asks its owner, the trainings in the book together spend at most
    ``most`` at the least δ that one of them was asked with, if their claims hold. It is this
    owner's promise: others keep books of their own.
    """

    path: Path
    most: float

    def enter(self, key: bytes, privacy: Privacy, plan: PrivacyPlan) -> None:
        """Enter a training before a row of it is shared; one that goes on is entered once.

        Args:
            key: that of this owner's noise, which a training that goes on keeps.
            privacy: what was asked for.
            plan: what it does.

        Raises:
            ConfigError: all trainings together would spend more than allowed.
            DataError: the book cannot be read or written.
        """
        name = hashlib.sha256(b"book\n" + key).hexdigest()
        # Towards the two that draw rows, nothing is gained by drawing: the book counts that.
        self.add(name, [_known(event) for event in plan.events], privacy.delta)

    def add(self, name: str, events: Sequence[object], delta: float) -> tuple[int, float]:
        """Enter events under a name, once; how many trainings there are, and their ε together.

        It is that of the least δ so far: a larger one would make room that was spent already.

        Raises:
            ConfigError: all trainings together would spend more than allowed.
            DataError: the book cannot be read or written.
        """
        with self._alone():
            entries, least = self._read()
            delta = min(delta, least)
            is_new = name not in entries
            entries.setdefault(name, list(events))
            total = self._spent(entries, delta)
            if is_new and (total is None or total > self.most):
                said = f"ε = {total:.3f} at δ = {delta:g}" if total else "no guarantee"
                raise ConfigError(
                    f"{self.path}: with this training all those on these rows come to {said}, and "
                    f"{self.most:g} is allowed; {len(entries) - 1} were entered before"
                )
            if is_new:
                self._write(entries, delta)
            return len(entries), math.inf if total is None else total

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep others from reading until I have written: of two trainings at once both count."""
        try:
            held = os.open(
                self.path.with_name(f".{self.path.name}.lock"),
                os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
                0o600,
            )
        except OSError as error:
            raise DataError(f"cannot write {self.path}: {error.strerror}") from error
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield
        finally:
            os.close(held)

    def _spent(self, entries: dict[str, list[object]], delta: float) -> float | None:
        # Accountants are heavy, and loaded where there is something to account.
        dp = import_module("tacit.dp")
        joined = dp.ledger_from_record([event for one in entries.values() for event in one])
        found: float | None = dp.epsilon(joined, delta=delta).epsilon
        return found

    def _read(self) -> tuple[dict[str, list[object]], float]:
        """Read what was entered, and the least δ."""
        if not self.path.exists():
            return {}, 1.0
        try:
            raw = json.loads(self.path.read_text(encoding="utf-8"))
            entries = {str(name): list(events) for name, events in raw["trainings"].items()}
            return entries, float(raw.get("delta", 1.0))  # older books have none
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{self.path} is no book of trainings, or damaged: what was spent is not known"
            ) from error

    def _write(self, entries: dict[str, list[object]], delta: float) -> None:
        part = self.path.with_name(f".{self.path.name}.part")
        try:
            with part.open("w", encoding="utf-8") as stream:
                json.dump({"trainings": entries, "delta": delta}, stream)
                stream.flush()
                os.fsync(stream.fileno())
            part.replace(self.path)
        except OSError as error:
            raise DataError(f"cannot write {self.path}: {error.strerror}") from error


def _known(record: object) -> object:
    """Return an event as it is for one who knows which rows were drawn."""
    if not isinstance(record, Mapping):
        return record
    found = {name: _known(value) for name, value in record.items()}
    return {**found, "is_hidden": False} if "is_hidden" in found else found
