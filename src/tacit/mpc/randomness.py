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
class Triple:
    """A Beaver triple: uniform a, b and c = a·b, each in additive halves (Beaver 1991)."""

    product: Product
    left: tuple[int, ...]
    right: tuple[int, ...]

    def first(self, prg: Prg) -> Parts:
        """Draw a0, b0, c0."""
        return prg.words(self.left), prg.words(self.right), prg.words(self._out())

    def second(self, prg: Prg) -> Parts:
        """Draw a1, b1."""
        return prg.words(self.left), prg.words(self.right)

    def correction(self, first: Parts, second: Parts) -> Parts:
        """Compute c1 = (a0 + a1)·(b0 + b1) - c0."""
        a0, b0, c0 = first
        a1, b1 = second
        return (self.product.multiply(a0 + a1, b0 + b1) - c0,)

    def correction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of c1."""
        return (self._out(),)

    def _out(self) -> tuple[int, ...]:
        return self.product.shape(self.left, self.right)


@dataclass(frozen=True)
class RescaleMask:
    """A uniform word r with halves of r, of r shifted right by ``bits``, and of r's top bit."""

    shape: tuple[int, ...]
    bits: int

    def first(self, prg: Prg) -> Parts:
        """Draw the first halves of r, r >> bits and the top bit."""
        return prg.words(self.shape), prg.words(self.shape), prg.words(self.shape)

    def second(self, prg: Prg) -> Parts:
        """Draw the second half of r."""
        return (prg.words(self.shape),)

    def correction(self, first: Parts, second: Parts) -> Parts:
        """Compute the second halves of the shifted r and of its top bit."""
        r = first[0] + second[0]
        shifted = ring.shift_right(r, self.bits)
        return shifted - first[1], ring.shift_right(r, 63) - first[2]

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
