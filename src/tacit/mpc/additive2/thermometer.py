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
    """
    less, equal, at, bit = [], [], 0, 0
    for width in block_widths(bits):
        steps = (1 << width) - 1
        part = thermometers[at : at + steps]
        ends = torch.zeros_like(part[:1]), torch.full_like(part[:1], -1 if is_first else 0)
        choices = torch.stack((torch.cat((part, ends[0])), torch.cat((ends[1], part))))
        picked = _pick(choices, c_planes[..., bit : bit + width, :])
        less.append(picked[0])
        equal.append(picked[0] ^ picked[1])
        at, bit = at + steps, bit + width
    return torch.stack(less), torch.stack(equal)


def _pick(choices: Tensor, bits: Tensor) -> Tensor:
    """Take choice number c of (2, 2^width, words) by the public bits (…, width, words) of c."""
    width = bits.shape[-2]
    lead = bits.dim() - 2
    table = choices.reshape(2, *(1,) * lead, *choices.shape[1:])
    for position in range(width - 1, -1, -1):
        half = table.shape[-2] // 2
        low, high = table[..., :half, :], table[..., half:, :]
        select = bits[..., position : position + 1, :]
        table = low ^ (select & (low ^ high))
    return table[..., 0, :]
