"""Piecewise polynomials of a secret: every element-wise function of `sealed` is one of these.

The one masked opening c = x + r serves everything. All breakpoints are compared with it; and as
x = c - r with c public, every power of x is a public combination of powers of r, which the dealer
has shared — also multiplied by the random bits ρ that turn the comparisons' results into numbers.
So after the comparisons the whole function is local. What a piece gives outside its own interval
does not matter: it is multiplied by a zero that is exact modulo 2^64.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from tacit.mpc import narrow
from tacit.mpc.arithmetic.local import numeric_share
from tacit.mpc.arithmetic.rescaled import public_part
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.functions.curve import select_pieces, unpacked
from tacit.mpc.functions.piecewise import Pieced
from tacit.mpc.material.randomness import Parts, lane_bytes, read_lanes, readings, write_lanes
from tacit.mpc.narrow import bits_size
from tacit.mpc.protocols.sealed.compare import CompareMask, Comparison
from tacit.mpc.protocols.sealed.multithreshold import (
    MultiThreshold,
    OneBlock,
    fits_multi_threshold,
    fits_one_block,
)
from tacit.mpc.share import WORD_BITS, AnyShare, AnySpec, Share, Spec
from tacit.party.cost import exchange
from tacit.ring import Prg


@dataclass(frozen=True)
class SelectMask:
    """Everything a piecewise polynomial needs that depends on the mask r of its comparison.

    r comes from the `CompareMask` in ``compare``; besides it there are, for every breakpoint, a
    uniform bit ρ in XOR shares, and additive shares of r^i and of ρ·r^i (for i = 0 that is a daBit,
    Rotaru and Wood 2019). Where r has two readings,
    as of a number that is ``rescaled``, these are powers of the reading with a sign, and in lanes
    of as few bytes as hold it there is by how much those of the other are more.
    """

    compare: CompareMask
    breaks: int
    degree: int
    rescaled: tuple[int, int] | None = None

    def first(self, prg: Prg) -> Parts:
        """Draw the first shares: of r, of ρ, of the bits of r, of powers and of selected powers."""
        r, codes = self.compare.first(prg)
        drawn = r, prg.words(self._bits()), codes, prg.words(self._powers())
        return drawn if self.rescaled is None else (*drawn, prg.words(self._lanes()))

    def second(self, prg: Prg) -> Parts:
        """Draw the second shares of r and ρ."""
        return (*self.compare.second(prg), prg.words(self._bits()))

    def correction(self, first: Parts, second: Parts) -> Parts:
        """Compute the second shares of the bits of r and of all powers."""
        r, rho = first[0] + second[0], first[1] ^ second[1]
        chosen = unpacked(rho, self.compare.elements)[:, None]
        bits = (self.compare.codes(r) ^ first[2],)
        if self.rescaled is None:
            powers = _powers(r, self.degree)
            everything = torch.cat((powers[2:], (chosen * powers).flatten(0, 1)))
            return (*bits, everything - first[3])
        signed, unsigned = (_powers(one, self.degree) for one in readings(r, *self.rescaled))
        everything = torch.cat((signed[1:], (chosen * signed).flatten(0, 1)))
        gaps = ((unsigned - signed) >> (WORD_BITS - self._gap_bits))[1:]
        gaps = torch.cat((gaps, (chosen * gaps).flatten(0, 1))).view(-1)
        lanes = read_lanes(first[4], self._gap_bits, len(gaps))
        other = write_lanes(gaps.to(lanes.dtype).sub_(lanes), self._gap_bits)
        return (*bits, everything - first[3], other)

    def correction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the bits and of the powers."""
        shapes = (*self.compare.correction_shapes(), self._powers())
        return shapes if self.rescaled is None else (*shapes, self._lanes())

    def _bits(self) -> tuple[int, ...]:
        return self.breaks, (self.compare.elements + 63) // 64

    def _powers(self) -> tuple[int, ...]:
        plain = max(0, self.degree - 1) if self.rescaled is None else self.degree
        return plain + self.breaks * (self.degree + 1), self.compare.elements

    @property
    def _gap_bits(self) -> int:
        """Return in how many bits, at the top of a word, powers of the two readings differ.

        The readings themselves differ by a multiple of the ring that is left, so all powers do.
        """
        assert self.rescaled is not None  # noqa: S101 - else there is one reading
        ring_bits, drop = self.rescaled
        return WORD_BITS - ring_bits + drop

    def _lanes(self) -> tuple[int, ...]:
        count = self.degree * (1 + self.breaks) * self.compare.elements
        return (-(-count * lane_bytes(self._gap_bits) // narrow.WORD_BYTES),)

    def read(self, rows: Tensor, lanes: Tensor, top: Tensor) -> tuple[Tensor, Tensor]:
        """Take the powers of the reading that holds, and lay them out as without rescaling.

        Returns:
            My share of the reading itself, and of its higher powers and selected powers.
        """
        count, bits = self.degree, self._gap_bits
        sizes = (1 + self.breaks, count, self.compare.elements)
        gaps = read_lanes(lanes, bits, prod(sizes)).to(torch.int64).view(sizes)
        gaps = (gaps << (WORD_BITS - bits)) * top
        plain, selected = rows[:count] + gaps[0], rows[count:].view(self.breaks, count + 1, -1)
        selected = torch.cat((selected[:, :1], selected[:, 1:] + gaps[1:]), 1)
        return plain[0], torch.cat((plain[1:], selected.flatten(0, 1)))


def _powers(r: Tensor, degree: int) -> Tensor:
    powers = torch.ones_like(r).repeat(degree + 1, 1)
    for i in range(1, degree + 1):
        powers[i] = powers[i - 1] * r
    return powers


@dataclass(frozen=True)
class Piecewise(Pieced):
    """Apply a piecewise polynomial to every element, or several that share their breakpoints.

    Guarantee: the parties see x + r for a uniform r and bits masked by uniform bits, and nothing
    else. Within the bound of x the result is that of the pieces, exactly modulo 2^64; the pieces
    state how far they are from the function they stand for.
    Cost: 2 rounds of 8 bytes and K bits per element, and the rounds of K comparisons between.

    A number that has ``drop`` fraction bits more than the curves, or is one of a smaller ring, is
    rescaled by the same opening: the dealer shares both readings of its mask. Breakpoints are then
    met within one unit in the last place, which is for functions that do not jump.
    """

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out and what is sent."""
        x = self.argument(operands[0])
        comparison = self._comparison(x)
        return Declaration(
            out=self.out(x),
            needs=(self._mask(x), *comparison.needs()),
            rounds=(
                exchange(*roles.computing, narrow.size_for(x.ring_bits) * x.elements),
                *comparison.rounds(roles),
                exchange(
                    *roles.computing,
                    bits_size(comparison.thresholds * comparison.words, x.elements),
                ),
            ),
        )

    def _mask(self, x: Spec) -> SelectMask:
        comparison = self._comparison(x)
        low = comparison.low if isinstance(comparison, OneBlock) else 0
        mask = CompareMask(x.elements, comparison.blocks, self.drop + low)
        rescaled = (x.ring_bits, self.drop) if self._rescales(x) else None
        return SelectMask(mask, comparison.thresholds, self.curves[0].degree, rescaled)

    def _rescales(self, x: Spec) -> bool:
        is_whole = self.drop == 0 and x.ring_bits == WORD_BITS
        return not is_whole and self.curves[0].degree > 0

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Open x + r, compare with the breakpoints, select."""
        mine, spec = self._masked(channel, material, operands[0])
        return self._select(channel, material, spec, channel.exchange_low(mine, spec.ring_bits))

    def begin(
        self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare
    ) -> Callable[[], AnyShare]:
        """Post what opens x + r; what comes back waits for it, and does the rest."""
        mine, spec = self._masked(channel, material, operands[0])
        wait = channel.post_low(mine, spec.ring_bits)
        return lambda: self._select(channel, material, spec, wait())

    def _masked(
        self, channel: Channel, material: tuple[Parts, ...], operand: AnyShare
    ) -> tuple[Tensor, Spec]:
        r = material[0][0]
        return numeric_share(operand).words.reshape(-1) + r, self.argument(operand.spec)

    def _select(
        self, channel: Channel, material: tuple[Parts, ...], spec: Spec, c: Tensor
    ) -> AnyShare:
        (r, rho, bits, powers, *lanes), tree = material[0], material[1:]
        if self._rescales(spec):
            # z = c - r is e + a for e = c and a = -r, but it is r whose readings are shared: where
            # the top bit of c is not set the difference borrows, and r is read with its sign.
            front, top = public_part(c, spec.ring_bits, self.drop, borrows=True)
            r, powers = self._mask(spec).read(powers, lanes[0], top)
            c = (c << (WORD_BITS - spec.ring_bits)) >> (WORD_BITS - spec.ring_bits + self.drop)
        else:
            front = c
        breaks = self.curves[0].edges(c.device)
        masked = self._comparison(spec).run(channel, c, breaks, bits, tree) ^ rho
        tau = unpacked(masked ^ channel.exchange_bits(masked, len(c)), len(c))
        results = [
            select_pieces(curve, front, tau, r, powers, is_first=channel.is_first)
            for curve in self.curves
        ]
        out = self.out(spec)
        return Share(torch.stack(results).view(out.shape), out)

    def _comparison(self, x: Spec) -> Comparison | MultiThreshold | OneBlock:
        curve = self.curves[0]
        bits = narrow.bits_of((x.largest >> self.drop) + bool(self.drop) + curve.reach)
        if fits_one_block(bits, curve.slack):
            return OneBlock(x.elements, bits, curve.slack[0], len(curve.breaks))
        if fits_multi_threshold(x.elements, bits, len(curve.breaks)):
            return MultiThreshold(x.elements, bits, curve.slack or (0,) * len(curve.breaks))
        return Comparison(x.elements, bits, len(curve.breaks))
