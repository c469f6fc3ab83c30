"""Correlated randomness: what a kernel needs from the dealer, and how each side gets its part.

The first party draws its whole part from a generator it shares with the dealer, the second party
draws what it can from its own, and the dealer sends the second party only the correction that
makes both parts fit. Dealer and parties run the same functions, so that they cannot drift apart.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product as iterproduct
from math import prod
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from tacit import ring
from tacit.mpc.narrow import WORD_BYTES, cut, uncut
from tacit.mpc.products import Product
from tacit.mpc.share import WORD_BITS, Mask, Party, SharePair
from tacit.ring import Factor, Prg

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


@runtime_checkable
class Wrapping(Protocol):
    """A need around another one, whose correction is made with what the dealer and P0, P1 share."""

    @property
    def inner(self) -> Need:
        """Return the need inside."""
        ...

    def wrap(self, first: Parts, second: Parts, inner: Parts, shared: tuple[Prg, Prg]) -> Parts:
        """Compute what the dealer sends to the second party, around what the inner need sends."""
        ...


def correction_bytes(needs: tuple[Need, ...]) -> int:
    """Return the size of the dealer's message for one step."""
    return WORD_BYTES * sum(prod(shape) for need in needs for shape in need.correction_shapes())


def has_corrections(needs: tuple[Need, ...]) -> bool:
    """Tell whether the dealer sends anything for a step."""
    return any(need.correction_shapes() for need in needs)


@dataclass(frozen=True)
class OpeningMask:
    """A uniform mask for one operand, known to its holder alone or in two uniform shares.

    It is drawn from a generator of its own, so that the dealer can draw it again for every
    product in which the operand takes part.
    """

    place: int
    shape: tuple[int, ...]
    holder: Party | None

    def first(self, prg: Prg) -> Parts:
        """Draw the first party's share, if it has one."""
        return () if self.holder == "second" else (self._draw(prg),)

    def second(self, prg: Prg) -> Parts:
        """Draw the second party's share, if it has one."""
        return () if self.holder == "first" else (self._draw(prg),)

    def correction(self, first: Parts, second: Parts) -> Parts:
        """Return nothing: the shares are independent."""
        return ()

    def correction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return nothing."""
        return ()

    def panels(self, prg: Prg, nbytes: int) -> Iterator[Tensor]:
        """Draw the mask of its holder in panels of rows, of at most so many bytes."""
        prg = prg.fork(f"mask {self.place}")
        for rows in ring.panel_rows(self.shape, nbytes):
            yield prg.words((rows, *self.shape[1:]))

    def _draw(self, prg: Prg) -> Tensor:
        return prg.fork(f"mask {self.place}").words(self.shape)


@dataclass(frozen=True)
class OpeningTriple:
    """Shares of the product of two masks that are in use already (after Beaver 1991).

    Where one party holds a whole mask, it adds its own share of the other mask's product itself:
    only what the other party has is left to be shared.
    """

    product: Product
    left: Mask
    right: Mask
    shape: tuple[int, ...]
    rescaled: tuple[tuple[int, int] | None, tuple[int, int] | None] = (None, None)

    def first(self, prg: Prg) -> Parts:
        """Draw c0, one for each pair of readings of the masks."""
        return (prg.words(self._shape()),)

    def second(self, prg: Prg) -> Parts:
        """Draw nothing."""
        return ()

    def correction(self, first: Parts, second: Parts) -> Parts:
        """Refuse: this needs the masks, see `correct`."""
        raise TypeError("an OpeningTriple is corrected with the masks of its operands")

    def correct(self, first: Parts, left: SharePair, right: SharePair) -> Parts:
        """Compute c1 = a·b - c0, without the terms that a holder adds itself."""
        if self.right.holder is not None:
            left = _without(left, self.right.holder)
        elif self.left.holder is not None:
            right = _without(right, self.left.holder)
        a, b = _total(left), _total(right)
        if a is None or b is None:
            return (-first[0],)
        if self.readings == 1:
            return (self.product.multiply(a, b).sub_(first[0]),)
        lefts, rights = (
            [one] if how is None else list(readings(one, *how))
            for one, how in zip((a, b), self.rescaled, strict=True)
        )
        pairs = zip(lefts, rights, strict=True) if self.is_square else iterproduct(lefts, rights)
        return (torch.stack([self.product.multiply(x, y) for x, y in pairs]).sub_(first[0]),)

    def correct_panels(self, first: Parts, left: SharePair, right: Iterable[Tensor]) -> Parts:
        """Do as `correct`, for a matrix of its holder whose mask comes in panels of rows."""
        assert self.right.holder is not None  # noqa: S101 - the dealer has looked
        a = _total(_without(left, self.right.holder))
        if a is None:
            return (-first[0],)
        return (ring.multiply_panels(a, right, self.right.shape[1]).sub_(first[0]),)

    def correct_factor(self, first: Parts, left: SharePair, right: Factor) -> Parts:
        """Do as `correct`, for a matrix of its holder whose mask is prepared for an accelerator."""
        assert self.right.holder is not None  # noqa: S101 - the dealer has looked
        a = _total(_without(left, self.right.holder))
        return (-first[0] if a is None else ring.matmul(a, right).sub_(first[0]),)

    @property
    def is_square(self) -> bool:
        """Tell whether both operands are one, so that their masks are read alike."""
        return self.left == self.right and self.rescaled[0] is not None

    @property
    def readings(self) -> int:
        """Return how many pairs of readings the two masks have."""
        if self.is_square:
            return 2
        return prod(1 if how is None else 2 for how in self.rescaled)

    def correction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of c1."""
        return (self._shape(),)

    def _shape(self) -> tuple[int, ...]:
        return self.shape if self.readings == 1 else (self.readings, *self.shape)


def readings(words: Tensor, ring_bits: int, drop: int) -> Tensor:
    """Read the lowest bits of words with their sign and without it, and drop the lowest of them."""
    high = words << (WORD_BITS - ring_bits)
    lost = WORD_BITS - ring_bits + drop
    return torch.stack((high >> lost, ring.shift_right(high, lost)))


def _without(shares: SharePair, holder: Party) -> SharePair:
    return (None, shares[1]) if holder == "first" else (shares[0], None)


def _total(shares: SharePair) -> Tensor | None:
    first, second = shares
    if first is None or second is None:
        return second if first is None else first
    return first + second


@dataclass(frozen=True)
class BorrowMask:
    """A uniform bit for each party and element, and shares of their product modulo 2^bits.

    Bits are packed into words, and so are the shares, in lanes of as few bytes as hold them.
    """

    elements: int
    bits: int

    def first(self, prg: Prg) -> Parts:
        """Draw the first party's bits, and its share of the products."""
        return prg.words((packed_words(self.elements),)), prg.words(self._lanes())

    def second(self, prg: Prg) -> Parts:
        """Draw the second party's bits."""
        return (prg.words((packed_words(self.elements),)),)

    def correction(self, first: Parts, second: Parts) -> Parts:
        """Compute the second share of the products."""
        both = ring.unpack_bits((first[0] & second[0]).view(torch.uint8), self.elements)
        lanes = read_lanes(first[1], self.bits, self.elements)
        return (write_lanes(both.to(lanes.dtype).sub_(lanes), self.bits),)

    def correction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of the lanes."""
        return (self._lanes(),)

    def _lanes(self) -> tuple[int, ...]:
        return (-(-self.elements * lane_bytes(self.bits) // WORD_BYTES),)


def packed_words(bits: int) -> int:
    """Return how many words so many bits fill."""
    return -(-bits // 64)


def lane_bytes(bits: int) -> int:
    """Return how many bytes hold a number modulo 2^bits."""
    return -(-bits // 8)


_LANES = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def read_lanes(words: Tensor, bits: int, count: int, part: slice = slice(None)) -> Tensor:
    """Read some of so many numbers modulo 2^bits; what is above is meaningless."""
    size = lane_bytes(bits)
    lane = _LANES.get(size) or (torch.int32 if size < 4 else torch.int64)
    if not count:  # an empty tensor may not be viewed as another type
        return torch.zeros(0, dtype=lane, device=words.device)
    octets = words.view(torch.uint8)[: size * count]
    return octets.view(lane)[part] if size in _LANES else uncut(octets, size, part, lane)


def write_lanes(numbers: Tensor, bits: int) -> Tensor:
    """Pack numbers modulo 2^bits into words."""
    size = lane_bytes(bits)
    if not len(numbers):
        return torch.zeros(0, dtype=torch.int64, device=numbers.device)
    octets = numbers.view(torch.uint8) if size in _LANES else cut(numbers, size)
    words = torch.zeros(-(-len(octets) // WORD_BYTES), dtype=torch.int64, device=numbers.device)
    words.view(torch.uint8)[: len(octets)] = octets
    return words


def pack(parts: Parts) -> Tensor:
    """Lay tensors end to end, as they travel."""
    return torch.cat([part.reshape(-1) for part in parts])


def unpack(words: Tensor, layout: tuple[tuple[int, ...], ...]) -> Parts:
    """Undo `pack`, without copying."""
    sizes = [prod(shape) for shape in layout]
    return tuple(
        part.view(shape) for part, shape in zip(words.split_with_sizes(sizes), layout, strict=True)
    )
