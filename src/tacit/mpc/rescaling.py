"""Verbs that rescale their operands in the round that opens them."""

from abc import ABC
from collections.abc import Callable
from typing import TypeVar

from tacit.mpc.contract import Begun, Kernel, takes_role
from tacit.mpc.functions.curves import CUT_FOR_MANY, argument_bits
from tacit.mpc.primitives import MANY, Primitives
from tacit.mpc.products import Hadamard, MatMul
from tacit.mpc.share import SPARE_BITS, WORD_BITS, OpeningSpec, Spec, words_of

V = TypeVar("V")


class RescalingVerbs(Primitives[V], ABC):
    """Products and functions of what other products left too precise; see `arithmetic.rescaled`."""

    def mul_rescaling(
        self,
        x: V,
        y: V,
        *,
        bound: float | None = None,
        frac_bits: tuple[int | None, int | None] = (None, None),
    ) -> V:
        """Multiply element-wise, broadcasting, and rescale both operands as they are opened.

        For operands that products and functions left too precise: one round where truncating them
        first takes two. A ``bound`` of the product may be known, and each operand may keep other
        ``frac_bits`` than the usual.

        Guarantee: that of `OpenMasked`. Error: of each operand less than one unit in the last
        place. Cost: 1 round, and from the dealer up to 64 bytes per element.
        """
        if not self.rescales_openings:
            product = self.mul(x, y)
            return product if bound is None else self.restate(product, bound=bound)
        x, y = self.ready(x), self.ready(y)
        left, right = self.opened(x, y, is_exact=True, frac_bits=frac_bits)
        return self.apply(self.make("multiply", Hadamard(), bound), left, right)

    def rescaled(self, x: V, *, frac_bits: int | None = None) -> V:
        """Give a number without the fraction bits that its opening drops, as a whole word.

        Where it is opened with this precision anyway, it is truncated so for nothing.

        Guarantee: that of `OpenMasked`. Error: up to one and a half units in the last place. Cost:
        1 round, and nothing for what is open already.
        """
        if not self.rescales_openings:
            return self.normalise_scale(x)
        if self.rescaling(x, is_exact=True, frac_bits=frac_bits) is None:
            return x
        (opening,) = self.opened(x, is_exact=True, frac_bits=(frac_bits,))
        return self.once(opening, "share", lambda: self.apply(self.make("from_opening"), opening))

    def matmul_within(self, x: V, y: V, *, bound: float) -> V:
        """Multiply matrices whose product is known to be at most ``bound``.

        Operands that are too precise are cut as they are opened, where the product fits the ring
        that is left, and truncated first where it does not.

        Guarantee: that of `OpenMasked`. Cost: 1 round for what is not open yet.
        """
        if not self.rescales_openings:
            return self.restate(self.matmul(x, y), bound=bound)
        x, y = self.ready(x), self.ready(y)
        if not self._fits(x, y, bound):
            x, y = self.normalise_scale(x), self.normalise_scale(y)
        left, right = self.opened(x, y)
        return self.apply(self.make("multiply", MatMul(), bound), left, right)

    def _fits(self, x: V, y: V, bound: float) -> bool:
        """Tell whether a product fits the ring that is left if both operands are cut."""
        ring_bits, frac_bits = WORD_BITS, 0
        for one in (x, y):
            spec, how = self.spec(one), self.rescaling(one, is_exact=False)
            assert isinstance(spec, Spec | OpeningSpec)  # noqa: S101 - bits are no operands
            drop = 0 if how is None else how.drop
            ring_bits = min(ring_bits, spec.ring_bits - drop)
            frac_bits += spec.frac_bits - drop
        return words_of(bound, frac_bits) < 1 << (ring_bits - SPARE_BITS)

    def elementwise_rescaling(
        self, name: str, x: V, *, bound: float | None = None, gain: float = 1.0
    ) -> V:
        """Apply a function that does not jump to numbers as they are, times a public number.

        What is too precise, or of a smaller ring, is rescaled by the opening that the function
        takes anyway. A ``bound`` of the argument may be known.
        """
        return self.begin_rescaling(name, x, bound=bound, gain=gain)()

    def begin_rescaling(
        self, name: str, x: V, *, bound: float | None = None, gain: float = 1.0
    ) -> Callable[[], V]:
        """Begin what `elementwise_rescaling` does, in the round of whatever is sent next."""
        is_many = self.number(x, name).elements > MANY and name in CUT_FOR_MANY
        if self.has("rowwise") or is_many:
            applied = self.scale(self.elementwise(name, x), gain)
            return lambda: applied
        if not self.rescales_openings:
            x = self.normalise_scale(x)
        x, drop, most = self._as_it_is(name, x, bound)
        kept = argument_bits(name, self.frac_bits, most) if drop else self.frac_bits
        drop += self.frac_bits - kept
        return self._begun(self.make("elementwise", name, kept, most, drop, gain), x)

    def begin_flagged(
        self, name: str, x: V, *, bound: float, gain: float = 1.0
    ) -> Callable[[], tuple[V, V]]:
        """Do as `begin_rescaling`; beside it give 1 where x is too small, and 0 elsewhere.

        For functions with a pole, under a protocol that has ``flagged``; what is beside it is a
        whole number. Cost: nothing more.
        """
        x, drop, most = self._as_it_is(name, x, bound)
        wait = self._begun(self.make("flagged", name, self.frac_bits, most, drop, gain), x)

        def complete() -> tuple[V, V]:
            both = wait()
            value, flag = self.part(both, 0), self.part(both, 1)
            # The unit in the last place is read as a one: nothing is to be truncated.
            bits = self.number(flag, name).frac_bits
            whole = self.apply(self.make("scale", 2.0**bits, -bits), flag)
            return value, self.restate(whole, bound=1.0)

        return complete

    def _begun(self, kernel: Kernel, x: V) -> Callable[[], V]:
        if self.rescales_openings and takes_role(kernel, Begun):
            assert isinstance(kernel, Begun)  # noqa: S101 - its type says so
            return self.begin(kernel, x)
        applied = self.apply(kernel, x)
        return lambda: applied

    def _as_it_is(self, name: str, x: V, bound: float | None) -> tuple[V, int, float]:
        """Return an argument, how many bits its opening drops, and how large it then can be."""
        x = self.ready(x)
        spec = self.number(x, name)
        if spec.frac_bits < self.frac_bits:
            x = self.normalise_scale(x)
        if bound is not None and bound < spec.bound:
            x = self.restate(x, bound=bound)
        spec = self.number(x, name)
        drop = spec.frac_bits - self.frac_bits
        return x, drop, spec.truncated(self.frac_bits).bound if drop else spec.bound
