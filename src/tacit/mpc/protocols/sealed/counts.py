"""How many elements of a row reach each of a few levels: one opening, and no comparison.

The dealer shares which of 2^n cells of a circle a uniform r is in. Once x + r is public, in cells,
a party turns its share of that by as many cells, and has a share of the cell of x. Shares of cells
can be added up along a row, and a running sum from the top counts how many elements reach a cell.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.mpc import narrow
from tacit.mpc.arithmetic.local import numeric, numeric_share
from tacit.mpc.arithmetic.public import Public, PublicInput
from tacit.mpc.arithmetic.rescaled import cut_share
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.material.randomness import Parts, read_lanes, write_lanes
from tacit.mpc.narrow import WORD_BYTES
from tacit.mpc.share import SPARE_BITS, AnyShare, AnySpec, Share, Spec
from tacit.party.cost import exchange
from tacit.ring import Prg


@dataclass(frozen=True)
class CellMask:
    """A uniform r of so many bits per element, and shares of which value it has, in lanes."""

    elements: int
    bits: int
    lane_bits: int

    def first(self, prg: Prg) -> Parts:
        """Draw the first shares."""
        return prg.words((self.elements,)), prg.words(self._lanes())

    def second(self, prg: Prg) -> Parts:
        """Draw the second share of r."""
        return (prg.words((self.elements,)),)

    def correction(self, first: Parts, second: Parts) -> Parts:
        """Compute the second shares of the cells."""
        at = (first[0] + second[0]) & ((1 << self.bits) - 1)
        lanes = read_lanes(first[1], self.lane_bits, self.elements << self.bits)
        cells = torch.zeros_like(lanes).view(self.elements, -1).scatter_(1, at[:, None], 1)
        return (write_lanes(cells.view(-1) - lanes, self.lane_bits),)

    def correction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of the lanes."""
        return (self._lanes(),)

    def _lanes(self) -> tuple[int, ...]:
        return (-(-(self.elements << self.bits) * (self.lane_bits // 8) // WORD_BYTES),)


@dataclass(frozen=True)
class CountReaching:
    """Count, for every row and level, the elements that reach the level, within one unit.

    Levels are ``levels`` multiples of 2^unit around zero, beginning below all that can occur;
    element j of a row counts where ``seen`` says so. What lies up to one unit below a level may
    count, what reaches it does.

    Guarantee: the parties see cells of x under a uniform mask each, and nothing else.
    Cost: 1 round of 1 or 2 bytes per element each way; from the dealer 2^n or 2^(n+1) bytes per
    element, for levels of n bits.
    """

    unit: int
    levels: int
    seen: Public | PublicInput

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out and what is sent."""
        x = numeric(operands[0], "counting")
        size = narrow.size_for(self._bits())
        return Declaration(
            out=self._out(x),
            needs=(CellMask(x.elements, self._bits(), self._lane_bits(x)),),
            rounds=(exchange(*roles.computing, size * x.elements),),
        )

    def _bits(self) -> int:
        """Return how many bits tell the cells apart, one more below the lowest level."""
        return (self.levels + 1).bit_length()

    def _lane_bits(self, x: Spec) -> int:
        # A count is at most the length of a row, and must stay below a quarter of its ring.
        return 8 if x.shape[-1] < 1 << (8 - SPARE_BITS) else 16

    def _out(self, x: Spec) -> Spec:
        shape = (*x.shape[:-1], self.levels)
        return Spec(shape=shape, frac_bits=0, largest=x.shape[-1], ring_bits=self._lane_bits(x))

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Open the cells under their masks, turn, add up along rows, and from the top."""
        x = numeric_share(operands[0])
        ((r, lanes),) = material
        bits, spec = self._bits(), x.spec
        drop = self.unit + spec.frac_bits
        cells = cut_share(x.words.reshape(-1), spec.ring_bits, drop, is_first=channel.is_first)
        c = channel.exchange_low(cells + r, bits) & ((1 << bits) - 1)
        table = read_lanes(lanes, self._lane_bits(spec), spec.elements << bits)
        counts = self._turned(c, table.view(spec.elements, -1), spec, self.seen.at(channel))
        out = self._out(spec)
        return Share(counts.flip(-1).cumsum(-1).flip(-1).view(out.shape), out)

    def _turned(self, c: Tensor, table: Tensor, spec: Spec, seen: Tensor) -> Tensor:
        """Share in which rows how many elements lie in the cell of each level."""
        size, lowest = table.shape[1], -(self.levels // 2)
        wanted = torch.arange(lowest, lowest + self.levels, device=c.device)
        # x = c - r lies in a cell w exactly where r is c - w: there is my share of that.
        at = (c[:, None] - wanted) & (size - 1)
        found = table.gather(1, at).view(*spec.shape, self.levels)
        return (found * seen.to(found.dtype)[..., None]).sum(-2, dtype=torch.int64)
