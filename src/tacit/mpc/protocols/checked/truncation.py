"""Truncation by an opening: what `sealed` does with a bit of its own share has no tag."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.mpc.arithmetic.local import numeric
from tacit.mpc.arithmetic.truncation import Truncate
from tacit.mpc.boundary import WORD_BYTES
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.material.randomness import Parts
from tacit.mpc.protocols.checked import wide
from tacit.mpc.protocols.checked.pending import Pending, TaggedShare, tagged
from tacit.mpc.protocols.checked.proofs import proofs_of
from tacit.mpc.protocols.checked.tags import PartPair, Tagged, add_public
from tacit.mpc.protocols.sealed.fused import undo_and_carry
from tacit.mpc.share import HEADROOM_BITS, AnyShare, AnySpec
from tacit.party.cost import exchange
from tacit.ring import Prg


@dataclass(frozen=True)
class TruncationPair:
    """A uniform r, and shares of what undoes it after a shift: see `sealed.fused`.

    The truncation pair of ABY3 (Mohassel and Rindal 2018); with the carry it is exact.
    """

    elements: int
    bits: int

    def first(self, prg: Prg) -> Parts:
        """Draw the first shares."""
        return prg.words((self.elements,)), prg.words((2, self.elements))

    def second(self, prg: Prg) -> Parts:
        """Draw the second share of r."""
        return (prg.words((self.elements,)),)

    def correction(self, first: Parts, second: Parts) -> Parts:
        """Compute the second shares of undo and carry."""
        return (torch.stack(undo_and_carry(first[0] + second[0], self.bits)).sub_(first[1]),)

    def correction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of undo and carry."""
        return ((2, self.elements),)


@dataclass(frozen=True)
class TruncateTagged(Truncate):
    """Drop fraction bits of a secret, with tags.

    Guarantee: the parties see z + r for a uniform r, and nothing else. The result differs from
    z / 2^bits by less than one unit in the last place, always.
    Cost: 1 round; 8 bytes per element each way.
    """

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out and what is sent."""
        x = numeric(operands[0], "truncation")
        return Declaration(
            out=self._out(x),
            needs=(self._need(x.elements),),
            rounds=(exchange(*roles.computing, WORD_BYTES * x.elements),),
        )

    def _need(self, elements: int) -> Tagged:
        items = (PartPair(0, 0, (elements,)), PartPair(1, 1, (2, elements)))
        return Tagged(TruncationPair(elements, self.bits), items)

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Open z + r, shift it, and undo r."""
        z, first, keys = tagged(operands[0]), channel.is_first, proofs_of(channel).keys
        need = self._need(z.spec.elements)
        (r, rows), (r_tags, row_tags) = need.read(material[0], is_first=first)
        mine = z.words.reshape(-1) + r
        if first:  # the offset of `FusedTruncateCompare`
            mine -= 1 << HEADROOM_BITS
        theirs = channel.exchange(mine)
        c = theirs + mine
        offset = -(1 << HEADROOM_BITS)
        shape = z.spec.shape

        def masked(numbers: Tensor) -> Tensor:
            sent = wide.carry(numbers + r_tags.wide().view_as(numbers))
            return add_public(sent, offset, keys)

        sent = z.proof.change(masked) if isinstance(z.proof, Pending) else masked(z.proof)
        proofs_of(channel).exchanged(sent, theirs.view(shape))
        carried, high = c >> 63, c >> self.bits
        words = rows[0] + (carried & rows[1])
        if first:
            words += high
        numbers = row_tags.wide()
        numbers = wide.carry(numbers[:, :, 0] + (numbers[:, :, 1] & carried))
        numbers = add_public(numbers, high, keys)
        return TaggedShare(
            words.view(shape), self._out(z.spec), numbers.view(*numbers.shape[:2], *shape)
        )
