"""Comparison with thresholds on a coarse grid: one block of bits answers it, without a tree.

A threshold need not be sharp where the pieces on both sides of it hold. If that reaches down to the
next multiple of 2^low, the lowest bits need not be compared; and if what is left above them is a
block of a few bits, the dealer's shares of [r_block > v] for all v answer all thresholds locally.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.mpc.contract import Channel, Roles
from tacit.mpc.functions.curves import ONE_BLOCK_BITS
from tacit.mpc.material.randomness import Parts
from tacit.mpc.protocols.sealed.conjunction import ConjunctionMask
from tacit.mpc.protocols.sealed.multithreshold import packed_rows
from tacit.mpc.protocols.sealed.unary import Blocks
from tacit.party.cost import Round


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
