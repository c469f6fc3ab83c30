"""Products of secrets that are opened under a mask once, and the notes that make it once."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from tacit.errors import InputError
from tacit.mpc.arithmetic.rescaled import Rescaling
from tacit.mpc.contract import Kernel
from tacit.mpc.memo import Memo
from tacit.mpc.products import Product
from tacit.mpc.protocols.checked.product import Enter
from tacit.mpc.share import Party, View
from tacit.result import Phase

V = TypeVar("V")


def _key(how: Rescaling | None) -> Hashable:
    """Say under which note an opening is found again."""
    return "opening" if how is None else how


class MaskedOpenings(ABC, Generic[V]):
    """Keep track of what is known about values: their owners, their masked openings, their views.

    Notes are made alike while planning and while running, because both walk the same program.
    """

    notes: Memo[Any]
    """About values; a note is a value, or the role of an owner."""

    @abstractmethod
    def make(self, name: str, *public: object) -> Kernel:
        """Make a kernel of the protocol."""

    @abstractmethod
    def apply(self, kernel: Kernel, *operands: V) -> V:
        """Plan or run one kernel."""

    @abstractmethod
    def normalise_scale(self, value: V) -> V:
        """Make a value ready for a product: computed, and of usual precision."""

    @abstractmethod
    def factor(self, value: V) -> V:
        """Make a value ready for products; whole numbers stay whole."""

    @abstractmethod
    def open_masked(
        self,
        values: tuple[V, ...],
        owners: tuple[Party | None, ...],
        phase: Phase,
        rescalings: tuple[Rescaling | None, ...] = (),
        *,
        is_posted: bool = False,
    ) -> Callable[[], tuple[V, ...]]:
        """Open values under masks; what comes back waits for them, and returns the openings."""

    @abstractmethod
    def rescaling(
        self, value: V, *, is_exact: bool, frac_bits: int | None = None
    ) -> Rescaling | None:
        """Return what a value has to lose when it is opened as it is; None if nothing."""

    @abstractmethod
    def recall(self, value: V) -> V | None:
        """Return the opening of a value from an earlier run of the session, if there is one."""

    @abstractmethod
    def keep_opening(self, name: str, opening: V) -> None:
        """Keep the opening of an input for later runs."""

    @abstractmethod
    def laid_out(self, opening: V, view: View, shape: tuple[int, ...]) -> V:
        """Lay an opening out differently, in that shape."""

    @abstractmethod
    def input(
        self,
        name: str,
        *,
        owner: str,
        shape: tuple[int, ...],
        bound: float,
        frac_bits: int | None = None,
    ) -> V:
        """Bring in an owner's tensor; everyone calls this, the owner alone holds the values.

        ``frac_bits`` is 0 for whole numbers, whose products need no rescaling; None is the usual.
        """

    @abstractmethod
    def shape(self, x: V) -> tuple[int, ...]:
        """Return the shape of a value, which is public."""

    @abstractmethod
    def is_opening(self, value: V) -> bool:
        """Tell whether a value is an opening itself, of which nothing else is known."""

    @abstractmethod
    def find_opening(
        self,
        name: str,
        *,
        owner: str,
        shape: tuple[int, ...],
        bound: float,
        frac_bits: int | None = None,
    ) -> V | None:
        """Return the opening of an input of an earlier run, by its name and public facts."""

    @abstractmethod
    def join(self, name: str, fresh: V, *, length: int, dim: int) -> V:
        """Put an opening behind the openings of the entries so far, and keep them all."""

    def weight(self, name: str, *, owner: str, shape: tuple[int, ...], bound: float) -> V:
        """Bring in a computing party's tensor that later runs use again, on the right of products.

        Its owner keeps the words alone, in as few bytes as hold them, the other party the masked
        ones, 8 bytes each; the dealer draws the mask when it is used, and remembers some. It is
        opened under its mask in the first run of a session, offline. Later runs of an
        `OpeningCache` read nothing: their owner answers for it that it has not changed.

        Guarantee and cost: see `OpenWeight`.
        """
        if self.is_checked:
            raise InputError(
                "'checked' has no weights that are kept narrow; bring it in by `input`"
            )
        known = self.find_opening(name, owner=owner, shape=shape, bound=bound)
        if known is None:
            known = self.open_weight(name, owner=owner, shape=shape, bound=bound)
            self.keep_opening(name, known)
        return known

    @abstractmethod
    def open_weight(self, name: str, *, owner: str, shape: tuple[int, ...], bound: float) -> V:
        """Open a computing party's tensor under a mask, for the right side of products."""

    @abstractmethod
    def open_coded(self, name: str, *, owner: str, shape: tuple[int, int]) -> V:
        """Open a computing party's matrix of zeros and ones under a mask, from its codes."""

    def coded(self, name: str, *, owner: str, shape: tuple[int, int]) -> V:
        """Bring in a computing party's matrix of zeros and ones, which it has as `Codes`.

        It can be multiplied by `sum_coded` and `look_up_coded` and has no other use. It is opened
        under its mask once per session; its owner answers for it that it has not changed.

        Guarantee and cost: see `OpenCoded`.
        """
        if self.is_checked:
            raise InputError("'checked' has no coded matrices; bring the matrix in by `input`")
        known = self.find_opening(name, owner=owner, shape=shape, bound=1.0, frac_bits=0)
        if known is None:
            known = self.open_coded(name, owner=owner, shape=shape)
            self.keep_opening(name, known)
        return known

    def sum_coded(self, coded: V, rows: V) -> V:
        """Add up rows (n, w) for every column of a coded matrix (n, c): (c, w)."""
        return self._multiply_coded("sum", coded, self.factor(rows))

    def look_up_coded(self, coded: V, matrix: V) -> V:
        """Multiply a coded matrix (n, c) with (c, w)."""
        return self._multiply_coded("look up", coded, self.factor(matrix))

    def _multiply_coded(self, way: str, coded: V, other: V) -> V:
        self._open_missing((other,), "online")
        return self.apply(self.make("multiply_coded", way), coded, self._opening(other))

    def grow(
        self, fresh: Mapping[str, V], *, length: int, dim: int, beside: Sequence[V] = ()
    ) -> list[V]:
        """Open new entries of growing tensors under masks, and return the whole tensors so.

        Earlier entries stay open under the masks that they have, for the whole session; what
        meets them in a product has a mask of its own. Behind the new ones stand zeros, up to
        ``length``. Whatever stands ``beside`` is opened in the same message.

        Guarantee: an entry is opened once, under a mask that masks nothing else. Cost: 1 round of 8
        bytes per new element each way, however many entries there are.
        """
        if self.is_checked:
            raise InputError("'checked' has no tensors that grow; use protocol 'sealed'")
        openings = self.opened(*fresh.values(), *beside)
        return [
            self.join(name, opening, length=length, dim=dim)
            for name, opening in zip(fresh, openings, strict=False)
        ]

    @property
    @abstractmethod
    def is_checked(self) -> bool:
        """Tell whether every message has a tag, so that shares of inputs need tags as well."""

    def entered(self, *values: V) -> tuple[V, ...]:
        """Make shares with tags of those values that are inputs and have not been shared yet."""
        if not self.is_checked:
            return values
        return tuple(self._enter(one) if self.notes.get(one, "raw") else one for one in values)

    def _enter(self, value: V) -> V:
        known: V | None = self.notes.get(value, "share")
        if known is not None:
            return known
        self._open_missing((value,), "online")
        opening = self._opening(value)
        share = self.apply(Enter(), opening)
        self.notes.put(share, "opening", opening)
        self.notes.put(value, "share", share)
        return share

    def opened(
        self, *values: V, is_exact: bool = False, frac_bits: tuple[int | None, ...] = ()
    ) -> list[V]:
        """Open values as they are under masks, all in one message, and return the openings.

        What a product has left too precise is rescaled on the way: without a carry at its top, for
        products whose result is known to fit the smaller ring; or ``is_exact``, for products
        element by element. See `tacit.mpc.arithmetic.rescaled`. Each may keep other ``frac_bits``
        than the usual.

        Guarantee: that of `OpenMasked`. Cost: 1 round; nothing for what is open already.
        """
        return self._begin(values, is_exact=is_exact, frac_bits=frac_bits, is_posted=False)()

    def post(
        self, *values: V, is_exact: bool = False, frac_bits: tuple[int | None, ...] = ()
    ) -> Callable[[], list[V]]:
        """Begin what `opened` does, in the round of whatever is sent next.

        Returns:
            What waits, and is to be called before anything reads these values.

        Guarantee: that of `OpenMasked`. Cost: no round, if another message is waited for between. A
        plan may count a round too many, never one too few, where of several things that were posted
        some are waited for long before the others.
        """
        posts = not self.is_checked
        return self._begin(values, is_exact=is_exact, frac_bits=frac_bits, is_posted=posts)

    def _begin(
        self,
        values: tuple[V, ...],
        *,
        is_exact: bool,
        frac_bits: tuple[int | None, ...],
        is_posted: bool,
    ) -> Callable[[], list[V]]:
        kept = frac_bits or (None,) * len(values)
        hows = {
            id(one): self.rescaling(one, is_exact=is_exact, frac_bits=bits)
            for one, bits in zip(values, kept, strict=True)
        }
        keys = {id(one): _key(hows[id(one)]) for one in values}
        missing = {
            id(one): one
            for one in values
            if not self.is_opening(one) and self.notes.get(one, keys[id(one)]) is None
        }
        if missing:
            owners = tuple(
                self.notes.get(one, "owner") if hows[at] is None else None
                for at, one in missing.items()
            )
            rescalings = tuple(hows[at] for at in missing)
            if not any(rescalings):
                rescalings = ()
            parts = tuple(missing.values())
            wait = self.open_masked(parts, owners, "online", rescalings, is_posted=is_posted)

        def complete() -> list[V]:
            if missing:
                for (at, one), opening in zip(missing.items(), wait(), strict=True):
                    self.notes.put(one, keys[at], opening)
            return [self._opening(one, keys[id(one)]) for one in values]

        return complete

    def cache_openings(self, *values: V) -> None:
        """Open weights under masks, before any query, so that no later product has to.

        Guarantee: see `tacit.mpc.arithmetic.opening.OpenMasked`. Cost: 1 round for all of them
        together, counted as offline; nothing for a value that has an opening already, from this
        run or, in an `OpeningCache`, from an earlier one.
        """
        normalised = tuple(map(self.factor, values))
        for one in normalised:
            known = self.recall(one)
            if known is not None:
                self.notes.put(one, "opening", known)
        self._open_missing(normalised, "offline")

    def _open_missing(self, values: tuple[V, ...], phase: Phase) -> None:
        distinct = {
            id(one): one
            for one in values
            if not self.is_opening(one) and self.notes.get(one, "opening") is None
        }
        missing = tuple(distinct.values())
        if not missing:
            return
        owners = tuple(self.notes.get(one, "owner") for one in missing)
        for one, opening in zip(missing, self.open_masked(missing, owners, phase)(), strict=True):
            self.notes.put(one, "opening", opening)
            name = self.notes.get(one, "name")
            if name is not None and phase == "offline":
                self.keep_opening(name, opening)

    def multiply(self, product: Product, x: V, y: V, *, bound: float | None = None) -> V:
        """Multiply two secrets as they are, opening under masks what has not been opened yet.

        A ``bound`` of the product may be known that is less than its operands say.
        """
        self._open_missing((x, y), "online")
        return self.apply(self.make("multiply", product, bound), self._opening(x), self._opening(y))

    def _opening(self, value: V, key: Hashable = "opening") -> V:
        if self.is_opening(value):
            return value
        opening: V | None = self.notes.get(value, key)
        assert opening is not None  # noqa: S101 - `_open_missing` has seen to it
        return opening

    def note_input(self, value: V, name: str, owner: Party | None) -> None:
        """Note the name of an input of a computing party, and which party that is."""
        if self.is_checked and owner is not None:
            self.notes.put(value, "raw", True)
        # Somebody else's input has other shares in every run: nobody can see whether it changed.
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
        """Note at which step an input of P0 was shared: P1's share of it is drawn."""
        if self.notes.get(value, "owner") == "first":
            self.notes.put(value, "entered", step)

    def note_layout(self, value: V, view: View, out: V) -> None:
        """Note about a value in another layout what is known about the value."""
        self.note_owner(out, self.notes.get(value, "owner"))
        opening = self.notes.get(value, "opening")
        if opening is not None:
            self.notes.put(out, "opening", self.laid_out(opening, view, self.shape(out)))

    def once(self, value: V, key: Hashable, work: Callable[[], V]) -> V:
        """Do some work about a value the first time, and remember the result."""
        known: V | None = self.notes.get(value, key)
        if known is not None:
            return known
        made = work()
        # A note about itself would keep a value alive for ever.
        return made if made is value else self.notes.put(value, key, made)
