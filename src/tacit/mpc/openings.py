"""Products of secrets that are opened under a mask once, and the notes that make it once."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from tacit.mpc.arithmetic.coded import OpenCoded
from tacit.mpc.arithmetic.opening import OpenMasked
from tacit.mpc.arithmetic.rescaled import Rescaling
from tacit.mpc.arithmetic.weights import OpenWeight
from tacit.mpc.interpreter import Interpreter
from tacit.mpc.products import Product
from tacit.mpc.share import WORD_BITS, Party, Spec, View
from tacit.result import Phase

V = TypeVar("V")


class MaskedOpenings(Interpreter[V], ABC):
    """Keep track of what is known about values: their owners, their masked openings, their views.

    Notes are made alike while planning and while running, because both walk the same program.
    """

    @abstractmethod
    def open_masked(self, values: tuple[V, ...], step: OpenMasked) -> Callable[[], tuple[V, ...]]:
        """Open values under masks; what comes back waits for them, and returns the openings."""

    @abstractmethod
    def recall(self, value: V) -> V | None:
        """Return the opening of a value from an earlier run of the session, if there is one."""

    @abstractmethod
    def keep_opening(self, name: str, opening: V) -> None:
        """Keep the opening of an input for later runs."""

    @abstractmethod
    def find_opening(self, name: str, spec: Spec, owner: Party | None) -> V | None:
        """Return the opening of an input of an earlier run, by its name and public facts."""

    def laid_out(self, opening: Any, view: View, shape: tuple[int, ...]) -> V:
        """Lay an opening out differently, in that shape."""
        found: V = opening.view(view, shape)  # of specs and of shares alike
        return found

    @abstractmethod
    def join(self, name: str, fresh: V, *, length: int, dim: int) -> V:
        """Put an opening behind the openings of the entries so far, and keep them all."""

    def rescaling(
        self, value: V, *, is_exact: bool, frac_bits: int | None = None
    ) -> Rescaling | None:
        """Return what a value has to lose when it is opened as it is; None if nothing."""
        spec = self.spec(value)
        if not isinstance(spec, Spec):
            return None
        drop = max(0, spec.frac_bits - (self.frac_bits if frac_bits is None else frac_bits))
        return Rescaling(drop, is_exact) if drop or spec.ring_bits < WORD_BITS else None

    def weight(self, name: str, *, owner: str, shape: tuple[int, ...], bound: float) -> V:
        """Bring in a computing party's tensor that later runs use again, on the right of products.

        Its owner keeps the words alone, in as few bytes as hold them, the other party the masked
        ones, 8 bytes each; the dealer draws the mask when it is used, and remembers some. It is
        opened under its mask in the first run of a session, offline. Later runs of an
        `OpeningCache` read nothing: their owner answers for it that it has not changed.

        Guarantee and cost: see `OpenWeight`.
        """
        self.protocol.boundary.refuse("weights that are kept narrow; bring it in by `input`")
        spec = self.stated(shape, bound)
        known = self.find_opening(name, spec, self.roles.role(owner))
        if known is None:
            known = self.hear(OpenWeight(owner, name, spec))
            self.keep_opening(name, known)
        return known

    def coded(self, name: str, *, owner: str, shape: tuple[int, int]) -> V:
        """Bring in a computing party's matrix of zeros and ones, which it has as `Codes`.

        It can be multiplied by `sum_coded` and `look_up_coded` and has no other use. It is opened
        under its mask once per session; its owner answers for it that it has not changed.

        Guarantee and cost: see `OpenCoded`.
        """
        self.protocol.boundary.refuse("coded matrices; bring the matrix in by `input`")
        spec = self.stated(shape, 1.0, 0)
        known = self.find_opening(name, spec, self.roles.role(owner))
        if known is None:
            known = self.hear(OpenCoded(owner, name, shape))
            self.keep_opening(name, known)
        return known

    def sum_coded(self, coded: V, rows: V) -> V:
        """Add up rows (n, w) for every column of a coded matrix (n, c): (c, w)."""
        return self._multiply_coded("sum", coded, self.factor(rows))

    def look_up_coded(self, coded: V, matrix: V) -> V:
        """Multiply a coded matrix (n, c) with (c, w)."""
        return self._multiply_coded("look up", coded, self.factor(matrix))

    def _multiply_coded(self, way: str, coded: V, other: V) -> V:
        return self.apply(self.make("multiply_coded", way), coded, self.opening_of(other))

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
        self.protocol.boundary.refuse("tensors that grow; use protocol 'sealed'")
        openings = self.opened(*fresh.values(), *beside)
        return [
            self.join(name, opening, length=length, dim=dim)
            for name, opening in zip(fresh, openings, strict=False)
        ]

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
        return self._begin(values, self._rescalings(values, frac_bits, is_exact=is_exact))()

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
        hows = self._rescalings(values, frac_bits, is_exact=is_exact)
        return self._begin(values, hows, is_posted=not self.is_checked)

    def _rescalings(
        self, values: tuple[V, ...], frac_bits: tuple[int | None, ...], *, is_exact: bool
    ) -> list[Rescaling | None]:
        kept = frac_bits or (None,) * len(values)
        return [
            self.rescaling(one, is_exact=is_exact, frac_bits=bits)
            for one, bits in zip(values, kept, strict=True)
        ]

    def _begin(
        self,
        values: tuple[V, ...],
        hows: Sequence[Rescaling | None],
        *,
        phase: Phase = "online",
        is_posted: bool = False,
    ) -> Callable[[], list[V]]:
        # The note under which an opening is found again.
        keys: dict[int, Hashable] = {
            id(one): how or "opening" for one, how in zip(values, hows, strict=True)
        }
        missing = {
            id(one): (one, how)
            for one, how in zip(values, hows, strict=True)
            if not self.is_opening(one) and self.notes.get(one, keys[id(one)]) is None
        }
        if missing:
            parts, rescalings = zip(*missing.values(), strict=True)
            owners = tuple(
                None if how else self.notes.get(one, "owner") for one, how in missing.values()
            )
            rescalings = rescalings if any(rescalings) else ()
            step = self.protocol.boundary.opening(owners, phase, rescalings, is_posted)
            wait = self.open_masked(parts, step)

        def complete() -> list[V]:
            if missing:
                for (one, _), opening in zip(missing.values(), wait(), strict=True):
                    self.notes.put(one, keys[id(one)], opening)
            return [self._opening(one, keys[id(one)]) for one in values]

        return complete

    def cache_openings(self, *values: V) -> None:
        """Open weights under masks, before any query, so that no later product has to.

        Guarantee: see `OpenMasked`. Cost: 1 round for all of them
        together, counted as offline; nothing for a value that has an opening already, from this
        run or, in an `OpeningCache`, from an earlier one.
        """
        fresh: dict[int, V] = {}
        normalised = tuple(map(self.factor, values))
        for one in normalised:
            known = self.recall(one)
            if known is not None:
                self.notes.put(one, "opening", known)
            elif not self.is_opening(one) and self.notes.get(one, "opening") is None:
                fresh[id(one)] = one
        self._opened(*normalised, phase="offline")
        for one in fresh.values():
            name = self.notes.get(one, "name")
            if name is not None:
                self.keep_opening(name, self._opening(one))

    def _opened(self, *values: V, phase: Phase = "online") -> list[V]:
        """Open values with all their bits, unless they are open, and return the openings."""
        return self._begin(values, (None,) * len(values), phase=phase)()

    def multiply(self, product: Product, x: V, y: V, *, bound: float | None = None) -> V:
        """Multiply two secrets as they are, opening under masks what has not been opened yet.

        A ``bound`` of the product may be known that is less than its operands say.
        """
        return self.apply(self.make("multiply", product, bound), *self._opened(x, y))

    def opening_of(self, value: V) -> V:
        """Open a value under a mask, unless it is open, and return the opening."""
        return self._opened(value)[0]

    def _opening(self, value: V, key: Hashable = "opening") -> V:
        if self.is_opening(value):
            return value
        opening: V | None = self.notes.get(value, key)
        assert opening is not None  # noqa: S101 - `_begin` has seen to it
        return opening

    def note_layout(self, value: V, view: View, out: V) -> None:
        """Note about a value in another layout what is known about the value."""
        owner = self.notes.get(value, "owner")
        if owner is not None:
            self.notes.put(out, "owner", owner)
        opening = self.notes.get(value, "opening")
        if opening is not None:
            self.notes.put(out, "opening", self.laid_out(opening, view, self.shape(out)))
