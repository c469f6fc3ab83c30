"""Is a public number less than a shared one? Blocks of a few bits are answered without a message.

The dealer shares, for every block of four bits of r, the fifteen bits [r_block > v]. A party that
knows the public block c_block picks [r_block > c_block] and [r_block >= c_block] locally, which
are the two things the tree over the blocks wants to know.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK_BITS = 4
"""Of 15 bits from the dealer for a block; 63 bits are 16 blocks, which two levels of four join."""
WIDEST_BITS = 8
"""Of 255 bits: four such blocks compare 32 bits in one level; a bit more costs twice that."""
FEW = 4096
"""So few comparisons get blocks as wide as it takes for a tree of one level."""


@dataclass(frozen=True)
class Blocks:
    """How the lowest bits of a number are cut: blocks of one width, the highest perhaps narrower.

    Four blocks take one level of the tree, sixteen take two. A block of w bits costs 2^w - 1
    bits from the dealer.
    """

    bits: int
    width: int

    @classmethod
    def of(cls, bits: int, *, lanes: int) -> "Blocks":
        """Choose the width for so many comparisons of so many bits."""
        wide = max(BLOCK_BITS, -(-bits // 4))
        return cls(bits, wide if lanes <= FEW and wide <= WIDEST_BITS else BLOCK_BITS)

    def widths(self) -> tuple[int, ...]:
        """Return the width of every block, the lowest first."""
        full, rest = divmod(self.bits, self.width)
        return (self.width,) * full + ((rest,) if rest else ())

    def planes(self) -> int:
        """Return how many bits the dealer shares for each number."""
        return sum((1 << width) - 1 for width in self.widths())


def encode_unary(planes: Tensor, blocks: Blocks) -> Tensor:
    """Turn the lowest planes of r into unary codes: [r_block > v] for every block and v."""
    return torch.cat([_unary(block) for block in _cut(planes, blocks)])


def _cut(planes: Tensor, blocks: Blocks) -> Iterator[Tensor]:
    at = 0
    for width in blocks.widths():
        yield planes[at : at + width]
        at += width


def _unary(block: Tensor) -> Tensor:
    """Build [value > v] for v = 0 … 2^width - 2, adding one bit at a time from the lowest."""
    known = block[:1]
    for high in block[1:]:
        known = torch.cat((known | high, high[None], known & high))
    return known


def compare_blocks(
    c_planes: Tensor, codes: Tensor, blocks: Blocks, *, is_first: bool
) -> tuple[Tensor, Tensor]:
    """Pick, for each block, shares of g = [c < r] and p = [c == r] by the public c.

    Args:
        c_planes: the bits of the public numbers, (…, bits, words).
        codes: my XOR share of the unary codes of r, (planes, words); one r for all leading
            dimensions of c.
        blocks: how the bits that are compared are cut.
        is_first: whether I hold the constant of the pair.

    Returns:
        g and p, each (blocks, …, words), the lowest block first.
    """
    less, equal, at, bit = [], [], 0, 0
    full, rest = divmod(blocks.bits, blocks.width)
    for count, width in ((full, blocks.width), (1, rest)):  # all full blocks at once
        if count * width == 0:
            continue
        steps = (1 << width) - 1
        part = codes[at : at + count * steps].view(count, steps, -1)
        digits = c_planes[..., bit : bit + count * width, :]
        digits = digits.reshape(*digits.shape[:-2], count, width, -1)
        g, at_least = _pick(part, digits, is_first=is_first)
        less.append(g)
        equal.append(g ^ at_least)
        at, bit = at + count * steps, bit + count * width
    return torch.cat(less, dim=-2).movedim(-2, 0), torch.cat(equal, dim=-2).movedim(-2, 0)


def _pick(part: Tensor, digits: Tensor, *, is_first: bool) -> tuple[Tensor, Tensor]:
    """Take [r > c] and [r >= c] out of [r > v] (blocks, v, words) by the public digits of c.

    The digits are (…, blocks, width, words); one bit of them halves the choices that are left.
    """
    zeros = torch.zeros_like(part[:, :1])
    ones = torch.full_like(zeros, -1 if is_first else 0)
    table = torch.stack((torch.cat((part, zeros), 1), torch.cat((ones, part), 1)))
    table = table.reshape(2, *(1,) * (digits.dim() - 3), *part.shape[:1], -1, part.shape[-1])
    for position in range(digits.shape[-2] - 1, -1, -1):
        half = table.shape[-2] // 2
        low, high = table[..., :half, :], table[..., half:, :]
        select = digits[..., position : position + 1, :]
        table = low ^ (select & (low ^ high))
    return table[0, ..., 0, :], table[1, ..., 0, :]
