"""Fused truncate-and-compare: a ReLU of a product needs no round of its own for truncation.

The truncation of z opens z + r, and so does its comparison. With one r that serves both, the
truncated z' is a public number, plus shared ones that depend on r alone, plus one of them where the
sum carried, which is public. All of it can be shared once more, multiplied by the random bits that
select a piece.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from tacit import ring
from tacit.mpc import narrow
from tacit.mpc.arithmetic.local import numeric, numeric_share
from tacit.mpc.boundary import WORD_BYTES
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.functions.curve import PiecewiseCurve, unpacked
from tacit.mpc.material.randomness import Parts
from tacit.mpc.narrow import bits_size
from tacit.mpc.protocols.sealed.compare import CompareMask, Comparison
from tacit.mpc.share import HEADROOM_BITS, AnyShare, AnySpec, Share, Spec
from tacit.party.cost import exchange
from tacit.ring import Prg


@dataclass(frozen=True)
class FusedMask:
    """A uniform r, its comparable bits, and what it takes to undo it after a shift, selected.

    Undo is the offset less the shifted r, carry the top bit of r where it would carry to. There is
    for every breakpoint a uniform bit ρ in XOR shares, and there are additive shares of undo,
    carry and, for every ρ, of ρ, ρ·undo and ρ·carry.
    """

    compare: CompareMask
    breaks: int
    bits: int

    def first(self, prg: Prg) -> Parts:
        """Draw the first shares of everything: r, ρ, the bits of r and the rows."""
        r, codes = self.compare.first(prg)
        return r, prg.words(self._bits()), codes, prg.words(self._rows())

    def second(self, prg: Prg) -> Parts:
        """Draw the second shares of r and of the bits ρ."""
        return (*self.compare.second(prg), prg.words(self._bits()))

    def correction(self, first: Parts, second: Parts) -> Parts:
        """Compute the second shares of the bits of r and of what undoes it."""
        r = first[0] + second[0]
        undo, carry = undo_and_carry(r, self.bits)
        rho = unpacked(first[1] ^ second[1], self.compare.elements)
        plain = torch.stack((torch.ones_like(r), undo, carry))
        rows = torch.cat((plain[1:], (rho[:, None] * plain).flatten(0, 1)))
        return (self.compare.codes(r) ^ first[2], rows.sub_(first[3]))

    def correction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the bits and of the rows."""
        return (*self.compare.correction_shapes(), self._rows())

    def _bits(self) -> tuple[int, ...]:
        return self.breaks, (self.compare.elements + 63) // 64

    def _rows(self) -> tuple[int, ...]:
        return 2 + 3 * self.breaks, self.compare.elements


def undo_and_carry(r: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Return what undoes a mask after a shift by so many bits, and what more where it carried."""
    # With y = z + 2^62, from 0 to 2^63, s = y + r modulo 2^64 has wrapped exactly where the top
    # bit of r is set and that of s is not (as in `truncation`). Then y / 2^bits is, but for a
    # unit, (s >> bits) - (r >> bits), and 2^(64 - bits) more where it wrapped. c, as a signed
    # word, is s - 2^63: the two offsets, 2^63 back and 2^62 off, leave 2^62 >> bits.
    undo = (1 << (HEADROOM_BITS - bits)) - ring.shift_right(r, bits)
    return undo, ring.shift_right(r, 63) << (64 - bits)


@dataclass(frozen=True)
class FusedTruncateCompare:
    """Apply a function of constants and whole slopes to a value that is truncated on the way.

    Guarantee: the parties see z + r for a uniform r and bits masked by uniform bits, and nothing
    else. Pieces are chosen by z itself; the result is that of z / 2^bits up to one unit in the
    last place times the slope, always.
    Cost: 2 rounds of 8 bytes and K bits per element, and the rounds of K comparisons between.
    """

    name: str
    curve: PiecewiseCurve
    bits: int

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out and what is sent."""
        z = numeric(operands[0], self.name)
        comparison = self._comparison(z)
        mask = CompareMask(z.elements, comparison.blocks)
        return Declaration(
            out=self._out(z),
            needs=(FusedMask(mask, comparison.thresholds, self.bits), *comparison.needs()),
            rounds=(
                exchange(*roles.computing, WORD_BYTES * z.elements),
                *comparison.rounds(roles),
                exchange(
                    *roles.computing,
                    bits_size(comparison.thresholds * comparison.words, z.elements),
                ),
            ),
        )

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Open z + r, compare, shift, and select."""
        z = numeric_share(operands[0])
        (r, rho, bits, rows), tree = material[0], material[1:]
        mine = r.add_(z.words.reshape(-1))
        if channel.is_first:
            # c = z + 2^62 + r + 2^63: its sign bit is the complement of that of z + 2^62 + r, and
            # shifting with the sign is shifting without it, 2^(63 - bits) too low.
            mine -= 1 << HEADROOM_BITS
        c = channel.exchange(mine).add_(mine)
        breaks = self.curve.edges(c.device) << self.bits
        offset = c + (1 << HEADROOM_BITS)
        masked = self._comparison(z.spec).run(channel, offset, breaks, bits, tree) ^ rho
        tau = unpacked(masked ^ channel.exchange_bits(masked, len(c)), len(c))
        words = self._select(c, tau, rows, is_first=channel.is_first)
        out = self._out(z.spec)
        return Share(words.view(out.shape), out)

    def _select(self, c: Tensor, tau: Tensor, rows: Tensor, *, is_first: bool) -> Tensor:
        """Add up p_0(z') + Σ_k b_k·(p_k - p_{k-1})(z'), for b_k = τ_k ⊕ ρ_k.

        b_k·y is τ_k·y + (1 - 2τ_k)·ρ_k·y, for y = 1 and for y = z' = (c >> bits) + undo + carry,
        the last where c is negative.
        """
        carried = c >> 63  # all ones where the sum carried
        high = c >> self.bits
        value = rows[0] + (carried & rows[1])
        if is_first:
            value += high
        pieces = [(*piece, 0)[:2] for piece in self.curve.pieces]
        total = value * pieces[0][1]
        if is_first:
            total += pieces[0][0]
        chosen = zip(pairwise(pieces), tau, rows[2:].view(-1, 3, len(c)), strict=True)
        for (old, new), bit, (one, undo, carry) in chosen:
            sign = 1 - 2 * bit
            constant, slope = new[0] - old[0], new[1] - old[1]
            if constant:
                total += (sign * one + (bit if is_first else 0)) * constant
            if slope:
                total += (sign * (high * one + undo + (carried & carry)) + bit * value) * slope
        return total

    def _comparison(self, z: Spec) -> Comparison:
        breaks = self.curve.breaks
        bits = narrow.bits_of(z.largest + (max(abs(edge) for edge in breaks) << self.bits))
        return Comparison(z.elements, bits, len(breaks))

    def _out(self, z: Spec) -> Spec:
        frac_bits = self.curve.frac_bits
        return Spec.of(shape=z.shape, frac_bits=frac_bits, bound=self.curve.bound)
