"""Non-negative integers below 2^120 in two limbs of 60 bits, as far as the samplers need them."""

from typing import NamedTuple

import torch
from torch import Tensor

from tacit.ring.prg import Prg

LIMB_BITS = 60
_LOW = (1 << LIMB_BITS) - 1
_HALF = LIMB_BITS // 2
_HALF_LOW = (1 << _HALF) - 1


class Wide(NamedTuple):
    """An array of integers high · 2^60 + low, with 0 ≤ low < 2^60 and 0 ≤ high < 2^60."""

    high: Tensor
    low: Tensor

    def at(self, index: Tensor) -> "Wide":
        """Pick elements by index or mask."""
        return Wide(self.high[index], self.low[index])

    def is_below(self, other: "Wide") -> Tensor:
        """Compare element by element."""
        return (self.high < other.high) | ((self.high == other.high) & (self.low < other.low))

    def is_below_integer(self, bound: int) -> Tensor:
        """Compare every element with one integer."""
        high, low = bound >> LIMB_BITS, bound & _LOW
        return (self.high < high) | ((self.high == high) & (self.low < low))

    def minus(self, amount: int) -> "Wide":
        """Subtract one integer that is not larger than any element."""
        low = self.low - (amount & _LOW)
        borrow = low >> 63  # −1 where the low limb went below zero
        return Wide(self.high - (amount >> LIMB_BITS) + borrow, low & _LOW)


def square(values: Tensor) -> Wide:
    """Square integers below 2^60 in magnitude."""
    size = values.abs()
    a, b = size >> _HALF, size & _HALF_LOW
    cross = 2 * a * b
    low = ((cross & _HALF_LOW) << _HALF) + b * b
    return Wide(a * a + (cross >> _HALF) + (low >> LIMB_BITS), low & _LOW)


def below_wide(prg: Prg, bound: int, count: int) -> Wide:
    """Draw integers uniform in [0, bound), for bounds up to 2^120.

    Guarantee: exactly uniform if the stream is: a draw that is too large is drawn again.
    """
    bits = (bound - 1).bit_length()
    drawn = _random_bits(prg, bits, count)
    bad = torch.nonzero(~drawn.is_below_integer(bound)).view(-1)
    while bad.numel() > 0:
        fresh = _random_bits(prg, bits, bad.numel())
        drawn.high[bad], drawn.low[bad] = fresh.high, fresh.low
        bad = bad[~fresh.is_below_integer(bound)]
    return drawn


def _random_bits(prg: Prg, bits: int, count: int) -> Wide:
    low = prg.below(1 << min(bits, LIMB_BITS), count)
    if bits <= LIMB_BITS:
        return Wide(torch.zeros_like(low), low)
    return Wide(prg.below(1 << (bits - LIMB_BITS), count), low)
