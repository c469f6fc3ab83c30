"""Comparison with public numbers: one masked opening, blocks answered locally, a shallow tree.

x = c - r, where c = x + r is public and r is the dealer's. The sign of x - t is the top bits of
c - t and r and the borrow from below, which asks whether the lower bits of c - t are less than
those of r. As |x| is bounded, only as many bits take part as the bound needs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit import ring
from tacit.mpc import narrow
from tacit.mpc.arithmetic.local import numeric, numeric_share
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.material.randomness import Parts
from tacit.mpc.narrow import bits_size
from tacit.mpc.protocols.sealed.conjunction import ConjunctionMask, Group, merge_blocks, plan_tree
from tacit.mpc.protocols.sealed.unary import Blocks, compare_blocks, encode_unary
from tacit.mpc.share import AnyShare, AnySpec, BitShare, BitSpec, Spec
from tacit.party.cost import Round, exchange
from tacit.ring import Prg


@dataclass(frozen=True)
class CompareMask:
    """A uniform word r per element: shares of it, of its top bit and of its unary codes.

    Bits are counted from ``shift`` on, if the lowest ones are not compared.
    """

    elements: int
    blocks: Blocks
    shift: int = 0

    def first(self, prg: Prg) -> Parts:
        """Draw the first shares of r and of its bits."""
        return prg.words((self.elements,)), prg.words(self._planes())

    def second(self, prg: Prg) -> Parts:
        """Draw the second share of r."""
        return (prg.words((self.elements,)),)

    def correction(self, first: Parts, second: Parts) -> Parts:
        """Compute the second share of the bits of r = r0 + r1."""
        return (self.codes(first[0] + second[0]) ^ first[1],)

    def codes(self, r: Tensor) -> Tensor:
        """Return the unary codes of words and then their top bit, packed."""
        planes = ring.to_planes(r >> self.shift)
        top = planes[self.blocks.bits : self.blocks.bits + 1]
        return torch.cat((encode_unary(planes, self.blocks), top))

    def correction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of the bits."""
        return (self._planes(),)

    def _planes(self) -> tuple[int, ...]:
        return self.blocks.planes() + 1, (self.elements + 63) // 64


@dataclass(frozen=True)
class Comparison:
    """How many numbers are compared with how many thresholds, and in how many bits."""

    elements: int
    bits: int
    thresholds: int

    @property
    def words(self) -> int:
        """Return the words that hold one bit of every element."""
        return (self.elements + 63) // 64

    @property
    def blocks(self) -> Blocks:
        """Return how the bits below the top one are cut."""
        return Blocks.of(self.bits - 1, lanes=self.elements * self.thresholds)

    def levels(self) -> list[tuple[Group, int]]:
        """Return the groups of every level of the tree and how many of them there are."""
        blocks, found = len(self.blocks.widths()), []
        for group in plan_tree(blocks):
            blocks = -(-blocks // group.fan_in)
            found.append((group, blocks))
        return found

    def needs(self) -> tuple[ConjunctionMask, ...]:
        """Return the masks of the tree."""
        return tuple(
            ConjunctionMask(group, (count, self.thresholds, self.words))
            for group, count in self.levels()
        )

    def rounds(self, roles: Roles) -> tuple[Round, ...]:
        """Return the messages of the tree."""
        lanes = self.thresholds * self.words
        return tuple(
            exchange(
                *roles.computing, bits_size(len(group.variables()) * count * lanes, self.elements)
            )
            for group, count in self.levels()
        )

    def run(
        self, channel: Channel, c: Tensor, thresholds: Tensor, bits: Tensor, tree: tuple[Parts, ...]
    ) -> Tensor:
        """Share [x >= t] for every threshold: packed bits (thresholds, words).

        Args:
            channel: where to exchange the masked bits of the tree.
            c: the public x + r, flat; only its lowest ``bits`` bits matter.
            thresholds: public words t.
            bits: my share of the unary codes and of the top bit of r.
            tree: the material of each level.
        """
        # x - t = (c - t) - r: its sign is that of c - t, of r, and the borrow from below, added up.
        planes = self._planes(c, thresholds)
        low = self.bits - 1
        g, p = compare_blocks(planes[:, :low], bits[:-1], self.blocks, is_first=channel.is_first)
        for (group, count), material in zip(self.levels(), tree, strict=True):
            g = group_blocks(g, group.fan_in, count, filler=0)
            p = group_blocks(p, group.fan_in, count, filler=-1 if channel.is_first else 0)
            g, p = merge_blocks(channel, group, g, p, material, self.elements)
        negative = g[0] ^ bits[-1]  # the public top bit of c - t is added by P0 alone
        return ~(negative ^ planes[:, low]) if channel.is_first else negative

    def _planes(self, c: Tensor, thresholds: Tensor) -> Tensor:
        """Slice c - t into bits, (thresholds, bits, words), in one go."""
        shifted = c.new_zeros((len(thresholds), 64 * self.words))
        torch.sub(c, thresholds[:, None], out=shifted[:, : len(c)])
        planes = ring.to_planes(shifted.view(-1))[: self.bits]
        return planes.view(self.bits, len(thresholds), -1).transpose(0, 1)


def group_blocks(blocks: Tensor, fan_in: int, count: int, *, filler: int) -> Tensor:
    """Lay blocks (n, …) out as (fan_in, count, …), filled up at the top."""
    missing = fan_in * count - len(blocks)
    if missing:
        # A missing block decides nothing and passes the decision on: g = 0 and p = 1.
        blocks = torch.cat((blocks, blocks.new_full((missing, *blocks.shape[1:]), filler)))
    return blocks.view(count, fan_in, *blocks.shape[1:]).transpose(0, 1)


@dataclass(frozen=True)
class IsPositive:
    """Give a secret bit that is 1 where x >= 0.

    Guarantee: the parties see x + r for a uniform r and bits masked by uniform bits, and nothing
    else; exact for every x within its bound.
    Cost, for x of b bits: 1 round of ⌈b/8⌉ bytes (8 for 7) per element each way, and at most 2
    rounds of at most 34 bits per element (fewer for smaller bounds; 1 round for a few thousand
    elements of at most 33 bits), packed.
    """

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out and what is sent."""
        x = numeric(operands[0], "comparing")
        comparison = _comparison(x)
        return Declaration(
            out=BitSpec(shape=x.shape),
            needs=(CompareMask(x.elements, comparison.blocks), *comparison.needs()),
            rounds=(
                exchange(*roles.computing, x.elements * narrow.size_for(comparison.bits)),
                *comparison.rounds(roles),
            ),
        )

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Open x + r and compare."""
        x = numeric_share(operands[0])
        comparison = _comparison(x.spec)
        (r, bits), tree = material[0], material[1:]
        c = channel.exchange_low(x.words.reshape(-1) + r, comparison.bits)
        zero = torch.zeros(1, dtype=torch.int64, device=c.device)
        sign = comparison.run(channel, c, zero, bits, tree)
        return BitShare(sign[0], BitSpec(shape=x.spec.shape))


def _comparison(x: Spec) -> Comparison:
    return Comparison(x.elements, narrow.bits_of(x.largest), 1)
