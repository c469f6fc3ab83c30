"""What was worked out about a value before, for as long as the value lives."""

import weakref
from collections.abc import Hashable
from typing import Generic, TypeVar

R = TypeVar("R")


class Memo(Generic[R]):
    """Notes about values, by identity: two equal specs may stand for two different secrets."""

    def __init__(self) -> None:
        self._notes: dict[int, tuple[weakref.ref[object], dict[Hashable, R]]] = {}

    def get(self, value: object, key: Hashable) -> R | None:
        """Return the note, or None."""
        found = self._notes.get(id(value))
        return None if found is None else found[1].get(key)

    def put(self, value: object, key: Hashable, note: R) -> R:
        """Write a note, and return it."""
        number = id(value)
        if number not in self._notes:
            gone = weakref.ref(value, lambda _: self._notes.pop(number, None))
            self._notes[number] = (gone, {})
        self._notes[number][1][key] = note
        return note
