"""Products of secrets that are opened under a mask once, and the notes that make it once."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from tacit.mpc.contract import Kernel
from tacit.mpc.memo import Memo
from tacit.mpc.products import Product
from tacit.mpc.share import Party, View
from tacit.result import Phase

V = TypeVar("V")


class Holding(ABC, Generic[V]):
    """Keep track of what is known about values: their owners, their masked openings, their views.

    Notes are made alike while planning and while running, because both walk the same program.
    """

    @property
    @abstractmethod
    def notes(self) -> Memo[Any]:
        """Return the notes about values; a note is a value, or the role of an owner."""

    @abstractmethod
    def make(self, name: str, *public: object) -> Kernel:
        """Make a kernel of the protocol."""

    @abstractmethod
    def apply(self, kernel: Kernel, *operands: V) -> V:
        """Plan or run one kernel."""

    @abstractmethod
    def settle(self, value: V) -> V:
        """Make a value ready for a product: computed, and of usual precision."""

    @abstractmethod
    def open_masked(
        self, values: tuple[V, ...], owners: tuple[Party | None, ...], phase: Phase
    ) -> tuple[V, ...]:
        """Open values under masks, and return them as held values."""

    @abstractmethod
    def recall(self, value: V) -> V | None:
        """Return a value as it was held in an earlier run of the session, if it was."""

    @abstractmethod
    def shelve(self, name: str, held: V) -> None:
        """Keep a held input for later runs."""

    @abstractmethod
    def laid_out(self, held: V, view: View, like: V) -> V:
        """Lay a held value out differently, in the shape of ``like``."""

    def hold(self, *values: V) -> None:
        """Open weights under masks, before any query, so that no later product has to.

        Guarantee: see `tacit.mpc.additive2.hold.Hold`. Cost: 1 round for all of them together,
        counted as offline; nothing for a value that is held already, in this run or, on a
        `Shelf`, in an earlier one.
        """
        settled = tuple(map(self.settle, values))
        for one in settled:
            known = self.recall(one)
            if known is not None:
                self.notes.put(one, "held", known)
        self._hold(settled, "offline")

    def _hold(self, values: tuple[V, ...], phase: Phase) -> None:
        distinct = {id(one): one for one in values if self.notes.get(one, "held") is None}
        missing = tuple(distinct.values())
        if not missing:
            return
        owners = tuple(self.notes.get(one, "owner") for one in missing)
        for one, held in zip(missing, self.open_masked(missing, owners, phase), strict=True):
            self.notes.put(one, "held", held)
            name = self.notes.get(one, "name")
            if name is not None and phase == "offline":
                self.shelve(name, held)

    def multiply(self, product: Product, x: V, y: V) -> V:
        """Multiply two secrets as they are, opening under masks what has not been opened yet."""
        self._hold((x, y), "online")
        return self.apply(self.make("multiply", product), self._held(x), self._held(y))

    def _held(self, value: V) -> V:
        held: V | None = self.notes.get(value, "held")
        assert held is not None  # noqa: S101 - `_hold` has seen to it
        return held

    def note_input(self, value: V, name: str, owner: Party | None) -> None:
        """Note the name of an input of a computing party, and which party that is."""
        # Somebody else's input has other halves in every run: nobody can see whether it changed.
        if owner is not None:
            self.note_name(value, name)
        self.note_owner(value, owner)

    def note_name(self, value: V, name: str) -> None:
        """Note the name under which a value can be kept for later runs."""
        self.notes.put(value, "name", name)

    def note_owner(self, value: V, owner: Party | None) -> None:
        """Note which computing party knows a value, because it is its input."""
        if owner is not None:
            self.notes.put(value, "owner", owner)

    def note_entry(self, value: V, step: int) -> None:
        """Note at which step an input of P0 was shared: P1's half of it is drawn."""
        if self.notes.get(value, "owner") == "first":
            self.notes.put(value, "entered", step)

    def note_layout(self, value: V, view: View, out: V) -> None:
        """Note about a value in another layout what is known about the value."""
        self.note_owner(out, self.notes.get(value, "owner"))
        held = self.notes.get(value, "held")
        if held is not None:
            self.notes.put(out, "held", self.laid_out(held, view, out))

    def once(self, value: V, key: Hashable, work: Callable[[], V]) -> V:
        """Do some work about a value the first time, and remember the result."""
        known: V | None = self.notes.get(value, key)
        if known is not None:
            return known
        made = work()
        # A note about itself would keep a value alive for ever.
        return made if made is value else self.notes.put(value, key, made)
