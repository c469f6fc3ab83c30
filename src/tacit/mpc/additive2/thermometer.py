"""Is a public number less than a shared one? Blocks of four bits are answered without a message.

The dealer shares, for every block of four bits of r, the fifteen bits [r_block > v]. A party that
knows the public block c_block picks [r_block > c_block] and [r_block >= c_block] locally, which
are the two things the tree over the blocks wants to know.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

BLOCK_BITS = 4


def block_widths(bits: int) -> tuple[int, ...]:
    """Cut a number of bits into blocks, the lowest first; the highest may be narrower."""
    full, rest = divmod(bits, BLOCK_BITS)
    return (BLOCK_BITS,) * full + ((rest,) if rest else ())


def thermometer_planes(bits: int) -> int:
    """Return how many bits the dealer shares for each number."""
    return sum((1 << width) - 1 for width in block_widths(bits))


def encode_thermometers(planes: Tensor, bits: int) -> Tensor:
    """Turn the lowest ``bits`` planes of r into [r_block > v] for every block and v."""
    return torch.cat([_thermometer(block) for block in _blocks(planes, bits)])


def _blocks(planes: Tensor, bits: int) -> Iterator[Tensor]:
    at = 0
    for width in block_widths(bits):
        yield planes[at : at + width]
        at += width


def _thermometer(block: Tensor) -> Tensor:
    """Build [value > v] for v = 0 … 2^width - 2, adding one bit at a time from the lowest."""
    known = block[:1]
    for high in block[1:]:
        known = torch.cat((known | high, high[None], known & high))
    return known


def compare_blocks(
    c_planes: Tensor, thermometers: Tensor, bits: int, *, is_first: bool
) -> tuple[Tensor, Tensor]:
    """Pick, for each block, shares of g = [c < r] and p = [c == r] by the public c.

    Args:
        c_planes: the bits of the public numbers, (…, bits, words).
        thermometers: my XOR half for r, (planes, words); one r for all leading dimensions of c.
        bits: how many bits are compared.
        is_first: whether I hold the constant of the pair.

    Returns:
        g and p, each (blocks, …, words), the lowest block first.
    """
    less, equal, at, bit = [], [], 0, 0
    full, rest = divmod(bits, BLOCK_BITS)
    for count, width in ((full, BLOCK_BITS), (1, rest)):  # all full blocks at once
        if count * width == 0:
            continue
        steps = (1 << width) - 1
        part = thermometers[at : at + count * steps].view(count, steps, -1)
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
