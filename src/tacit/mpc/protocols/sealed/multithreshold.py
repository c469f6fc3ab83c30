"""Many thresholds for a few numbers, and thresholds on a coarse grid: less than a tree for each.

The dealer's unary codes belong to the mask r, not to a threshold: with blocks wide enough for a
tree of one level they cost little if many thresholds read them (`MultiThreshold`). And a threshold
need not be sharp where the pieces on both sides of it hold: whoever says how far a piece reaches
below its threshold has the lowest blocks left out. If what is then left above them is a block of a
few bits, the dealer's shares of [r_block > v] for all v answer all thresholds locally, without a
tree (`OneBlock`).
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby

import torch
from torch import Tensor

from tacit import ring
from tacit.mpc import tables
from tacit.mpc.contract import Channel, Roles
from tacit.mpc.functions.curves import ONE_BLOCK_BITS
from tacit.mpc.material.randomness import Parts
from tacit.mpc.narrow import bits_size
from tacit.mpc.protocols.sealed.conjunction import (
    ConjunctionMask,
    Group,
    joined_blocks,
    masked_blocks,
)
from tacit.mpc.protocols.sealed.unary import BLOCK_BITS, Blocks
from tacit.party.cost import Round, exchange

FEW_ELEMENTS = 4096
MANY_THRESHOLDS = 8
_BLOCKS = 4  # a tree of one level
_WIDEST_BITS = 10


@dataclass(frozen=True)
class Band:
    """Neighbouring thresholds that leave out equally many blocks."""

    start: int
    stop: int
    skipped: int
    group: Group

    @property
    def count(self) -> int:
        """Return how many thresholds there are."""
        return self.stop - self.start


@dataclass(frozen=True)
class MultiThreshold:
    """How many numbers are compared in how many bits, and how sharp each threshold has to be.

    Attributes:
        elements: how many numbers.
        bits: that hold a number less a threshold, plus its 2^m below, with their sign.
        slack: of every threshold t, the number m of low bits that may be ignored: the answer to
            x >= t may then be yes for any x above t - 2^m, and is for every x from t on.
    """

    elements: int
    bits: int
    slack: tuple[int, ...]

    @property
    def thresholds(self) -> int:
        """Return the number of thresholds."""
        return len(self.slack)

    @property
    def words(self) -> int:
        """Return the words that hold one bit of every element."""
        return (self.elements + 63) // 64

    @cached_property
    def blocks(self) -> Blocks:
        """Return how the bits below the top one are cut."""
        return Blocks(self.bits - 1, _width(self.bits))

    @cached_property
    def bands(self) -> tuple[Band, ...]:
        """Return the thresholds by how many blocks they leave out."""
        return _bands(self.slack, self.blocks.width, len(self.blocks.widths()))

    def needs(self) -> tuple[ConjunctionMask, ...]:
        """Return the masks of the tree."""
        return tuple(ConjunctionMask(band.group, (band.count, self.words)) for band in self.bands)

    def rounds(self, roles: Roles) -> tuple[Round, ...]:
        """Return the one message each way."""
        rows = sum(len(band.group.variables()) * band.count for band in self.bands)
        return (exchange(*roles.computing, bits_size(rows * self.words, self.elements)),)

    def run(
        self, channel: Channel, c: Tensor, thresholds: Tensor, bits: Tensor, tree: tuple[Parts, ...]
    ) -> Tensor:
        """Share [x >= t] for every threshold, as `Comparison.run` does, within the slack.

        Cost: 1 round; for a threshold that leaves none, one or two of four blocks out 6, 4 or 2
        bits per element each way.
        """
        apart = c - thresholds[:, None]
        steps = _steps(bits[:-1], self.blocks, self.elements, is_first=channel.is_first)
        blocks = [self._compare(apart[band.start : band.stop], steps, band) for band in self.bands]
        mine = [
            masked_blocks(band.group, g, p, masks)
            for band, (g, p), (masks, _) in zip(self.bands, blocks, tree, strict=True)
        ]
        flat = torch.cat([one.view(-1) for one in mine])
        opened = flat ^ channel.exchange_bits(flat, self.elements)
        parts = opened.split_with_sizes([one.numel() for one in mine])
        ones = -1 if channel.is_first else 0
        borrows = [
            joined_blocks(band.group, g, p, part.view(one.shape), material, ones)[0]
            for band, (g, p), part, one, material in zip(
                self.bands, blocks, parts, mine, tree, strict=True
            )
        ]
        negative = torch.cat(borrows) ^ bits[-1]
        if not channel.is_first:
            return negative
        top = ((apart >> (self.bits - 1)) & 1).to(torch.uint8)
        return ~(negative ^ packed_rows(top, self.words))

    def _compare(self, apart: Tensor, steps: Tensor, band: Band) -> tuple[Tensor, Tensor]:
        """Look shares of g = [c < r] and p = [c == r] up, each (blocks, thresholds, words)."""
        digits = _digit_tables(self.blocks, band.skipped, apart.device)
        shifts, masks, first = tables.kept(*digits)
        rows = (apart >> shifts).bitwise_and_(masks).add_(first)
        at = rows.mul_(self.elements).add_(torch.arange(self.elements, device=apart.device))
        at_least = steps.take(at)
        less = steps.take(at.add_(self.elements))
        g, p = packed_rows(torch.stack((less, at_least.bitwise_xor_(less))), self.words)
        return g, p


@lru_cache(maxsize=256)
def _digit_tables(
    blocks: Blocks, skipped: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Say of every block how far to shift, which bits to keep, and where its steps begin."""
    widths = blocks.widths()[skipped:]
    numbers = torch.arange(skipped, skipped + len(widths))
    masks = torch.tensor([(1 << width) - 1 for width in widths])
    parts = (numbers * blocks.width, masks, numbers * ((1 << blocks.width) + 1))
    shifts, masks, first = (tables.laid_out(one[:, None, None], device) for one in parts)
    return shifts, masks, first


@lru_cache(maxsize=256)
def _bands(slack: tuple[int, ...], width: int, blocks: int) -> tuple[Band, ...]:
    # Without the lowest blocks their borrow counts as none: x - t then passes for at least 0 from
    # 1 - 2^(skipped · width) on, which is within the slack. One block at least is compared.
    at, found = 0, []
    for skipped, some in groupby(min(bits // width, blocks - 1) for bits in slack):
        stop = at + len(list(some))
        found.append(Band(at, stop, skipped, Group(blocks - skipped, is_last=True)))
        at = stop
    return tuple(found)


def _width(bits: int) -> int:
    return max(BLOCK_BITS, -(-(bits - 1) // _BLOCKS))


def fits_multi_threshold(elements: int, bits: int, thresholds: int) -> bool:
    """Tell whether numbers are so few, and thresholds so many, that this is the better way."""
    is_wide = _width(bits) > _WIDEST_BITS
    return elements <= FEW_ELEMENTS and thresholds >= MANY_THRESHOLDS and not is_wide


def _steps(codes: Tensor, blocks: Blocks, count: int, *, is_first: bool) -> Tensor:
    """Lay shares of [r_block >= v] out for v = 0 … 2^width, (blocks, v, elements) in bytes.

    [r >= 0] is one and [r >= 2^width] zero; between them are the unary codes, as r > v - 1.
    """
    rows = ring.unpack_bits(codes.contiguous().view(torch.uint8), 64 * codes.numel())
    rows = rows.view(len(codes), -1)[:, :count]
    widths, height = blocks.widths(), (1 << blocks.width) + 1
    steps = rows.new_zeros((len(widths), height, count))
    steps[:, 0] = int(is_first)
    at = 0
    for block, width in enumerate(widths):
        size = (1 << width) - 1
        steps[block, 1 : 1 + size] = rows[at : at + size]
        at += size
    return steps


def packed_rows(bits: Tensor, words: int) -> Tensor:
    """Pack rows of bits into rows of words."""
    padded = bits
    if bits.shape[-1] < 64 * words:
        padded = bits.new_zeros((*bits.shape[:-1], 64 * words))
        padded[..., : bits.shape[-1]] = bits
    return ring.pack_bits(padded).view(torch.int64).view(*bits.shape[:-1], words)


@dataclass(frozen=True)
class OneBlock:
    """How many numbers are compared with how many thresholds, in which bits.

    Attributes:
        elements: how many numbers.
        bits: that hold a number less a threshold, plus 2^low, with their sign.
        low: of every threshold t, how many low bits are zero and ignored: the answer to x >= t may
            be yes for any x above t - 2^low, and is for every x from t on.
        thresholds: how many.
    """

    elements: int
    bits: int
    low: int
    thresholds: int

    @property
    def words(self) -> int:
        """Return the words that hold one bit of every element."""
        return (self.elements + 63) // 64

    @property
    def blocks(self) -> Blocks:
        """Return the one block."""
        return Blocks(self.bits - self.low, self.bits - self.low)

    def needs(self) -> tuple[ConjunctionMask, ...]:
        """Return nothing: there is no tree."""
        return ()

    def rounds(self, roles: Roles) -> tuple[Round, ...]:
        """Return nothing."""
        return ()

    def run(
        self, channel: Channel, c: Tensor, thresholds: Tensor, bits: Tensor, tree: tuple[Parts, ...]
    ) -> Tensor:
        """Share [x >= t] for every threshold, as `Comparison.run` does, within the slack.

        x - t is negative where the block of c - t less that of r has its top bit: where r lies in
        one half of the circle behind it. Cost: nothing is sent.
        """
        # Negative where r is one of at + 1, …, at + size/2 on the circle, which is
        # [r > at] ⊕ [r > at + size/2], or its complement if they go past zero. [r > size - 1] is
        # zero, the row that is added.
        size = 1 << (self.bits - self.low)
        at = (c[None] - thresholds[:, None]) >> self.low & (size - 1)
        codes = torch.cat((bits[:-1], bits.new_zeros((1, self.words)))).view(-1)
        columns = torch.arange(self.elements, device=c.device)
        # Words are looked up where they lie packed: most of the bits are never asked for.
        word, place = columns >> 6, columns & 63
        other = ((at + size // 2) & (size - 1)).mul_(self.words).add_(word)
        looked_up = codes.take(at * self.words + word) ^ codes.take(other)
        found = looked_up >> place & 1
        if channel.is_first:
            found ^= at < size // 2  # with "not negative" in the same constant
        return packed_rows(found.to(torch.uint8), self.words)


def fits_one_block(bits: int, slack: tuple[int, ...]) -> bool:
    """Tell whether thresholds leave out so much that one block is left."""
    return len(set(slack)) == 1 and 2 <= bits - slack[0] <= ONE_BLOCK_BITS
