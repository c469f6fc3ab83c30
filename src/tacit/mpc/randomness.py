"""Correlated randomness: what a kernel needs from the dealer, and how each side gets its part.

The first party draws its whole part from a generator it shares with the dealer, the second party
draws what it can from its own, and the dealer sends the second party only the correction that
makes both parts fit. Dealer and parties run the same functions, so that they cannot drift apart.
"""

from dataclasses import dataclass
from math import prod
from typing import Protocol

import torch
from torch import Tensor

from tacit import ring
from tacit.mpc.products import Product
from tacit.mpc.share import HEADROOM_BITS, Mask, Party
from tacit.ring import Prg

Parts = tuple[Tensor, ...]


class Need(Protocol):
    """One piece of correlated randomness, described by public sizes."""

    def first(self, prg: Prg) -> Parts:
        """Draw the first party's part."""
        ...

    def second(self, prg: Prg) -> Parts:
        """Draw what the second party can make without the dealer."""
        ...

    def correction(self, first: Parts, second: Parts) -> Parts:
        """Compute what the dealer sends to the second party."""
        ...

    def correction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the correction, which the second party checks."""
        ...


@dataclass(frozen=True)
class HoldMask:
    """A uniform mask for one operand, known to its holder alone or in two uniform halves.

    It is drawn from a generator of its own, so that the dealer can draw it again for every
    product in which the operand takes part.
    """

    place: int
    shape: tuple[int, ...]
    holder: Party | None

    def first(self, prg: Prg) -> Parts:
        """Draw the first party's half, if it has one."""
        return () if self.holder == "second" else (self._draw(prg),)

    def second(self, prg: Prg) -> Parts:
        """Draw the second party's half, if it has one."""
        return () if self.holder == "first" else (self._draw(prg),)

    def correction(self, first: Parts, second: Parts) -> Parts:
        """Return nothing: the halves are independent."""
        return ()

    def correction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return nothing."""
        return ()

    def _draw(self, prg: Prg) -> Tensor:
        return prg.fork(f"mask {self.place}").words(self.shape)


Halves = tuple[Tensor | None, Tensor | None]
"""The first and the second party's part of a mask, as the dealer draws them again."""


@dataclass(frozen=True)
class HeldTriple:
    """Halves of the product of two masks that are in use already (after Beaver 1991).

    Where one party holds a whole mask, it adds its own share of the other mask's product itself:
    only what the other party has is left to be shared.
    """

    product: Product
    left: Mask
    right: Mask
    shape: tuple[int, ...]

    def first(self, prg: Prg) -> Parts:
        """Draw c0."""
        return (prg.words(self.shape),)

    def second(self, prg: Prg) -> Parts:
        """Draw nothing."""
        return ()

    def correction(self, first: Parts, second: Parts) -> Parts:
        """Refuse: this needs the masks, see `correct`."""
        raise TypeError("a HeldTriple is corrected with the masks of its operands")

    def correct(self, first: Parts, left: Halves, right: Halves) -> Parts:
        """Compute c1 = a·b - c0, without the terms that a holder adds itself."""
        if self.right.holder is not None:
            left = _without(left, self.right.holder)
        elif self.left.holder is not None:
            right = _without(right, self.left.holder)
        a, b = _total(left), _total(right)
        if a is None or b is None:
            return (-first[0],)
        return (self.product.multiply(a, b).sub_(first[0]),)

    def correction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of c1."""
        return (self.shape,)


def _without(halves: Halves, holder: Party) -> Halves:
    return (None, halves[1]) if holder == "first" else (halves[0], None)


def _total(halves: Halves) -> Tensor | None:
    first, second = halves
    if first is None or second is None:
        return second if first is None else first
    return first + second


@dataclass(frozen=True)
class RescaleMask:
    """A uniform word r, with what it takes to undo it after a shift by ``bits``.

    Halves of r, of the offset less the shifted r, and of its top bit where it would carry to:
    r >> 63 << (64 - bits).
    """

    shape: tuple[int, ...]
    bits: int

    def first(self, prg: Prg) -> Parts:
        """Draw the first halves of all three."""
        return prg.words(self.shape), prg.words(self.shape), prg.words(self.shape)

    def second(self, prg: Prg) -> Parts:
        """Draw the second half of r."""
        return (prg.words(self.shape),)

    def correction(self, first: Parts, second: Parts) -> Parts:
        """Compute the second halves of the other two."""
        r = first[0] + second[0]
        undo = (1 << (HEADROOM_BITS - self.bits)) - ring.shift_right(r, self.bits)
        carry = ring.shift_right(r, 63) << (64 - self.bits)
        return undo.sub_(first[1]), carry.sub_(first[2])

    def correction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the two halves."""
        return self.shape, self.shape


def pack(parts: Parts) -> Tensor:
    """Lay tensors end to end, as they travel."""
    return torch.cat([part.reshape(-1) for part in parts])


def unpack(words: Tensor, layout: tuple[tuple[int, ...], ...]) -> Parts:
    """Undo `pack`, without copying."""
    sizes = [prod(shape) for shape in layout]
    return tuple(
        part.view(shape) for part, shape in zip(words.split_with_sizes(sizes), layout, strict=True)
    )
