"""Openings that rescale: what a product left too precise is not truncated before it is opened.

A share of z modulo 2^m without its lowest bits is a share of z without them, modulo a smaller power
of two: the carry at the top is lost, and nothing is sent. A product whose result fits that ring
needs no more (*cut*). Where the whole word is wanted, z itself is opened under its mask, z = e + a:
as |z| is less than a quarter of the ring, e + 2^(m-2) and a wrapped around exactly where a top bit
is set in one of them. So behind the public part of e stands a if that bit of e is set, and a with
its sign if not: the dealer shares both readings, shifted, and which of them holds is public
(*exact*).
"""

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from tacit import ring
from tacit.mpc.material.randomness import (
    OpeningMask,
    Parts,
    lane_bytes,
    read_lanes,
    readings,
    write_lanes,
)
from tacit.mpc.narrow import WORD_BYTES
from tacit.mpc.share import SPARE_BITS, WORD_BITS, Spec
from tacit.ring import Prg


@dataclass(frozen=True)
class Rescaling:
    """How many low bits an opening drops, and whether its products are wanted modulo 2^64."""

    drop: int
    is_exact: bool

    def ring_bits(self, z: Spec) -> int:
        """Return the ring of what is opened."""
        return z.ring_bits if self.is_exact else z.ring_bits - self.drop


@dataclass(frozen=True)
class ShiftedMask:
    """A uniform mask a in two shares, and shares of its two readings without the lowest bits.

    The second reading is there as by how much it is more than the first, in lanes of as few bytes
    as hold it: a multiple of the ring that is left.
    """

    place: int
    shape: tuple[int, ...]
    ring_bits: int
    drop: int

    def first(self, prg: Prg) -> Parts:
        """Draw the first shares of a and of its readings."""
        return (*self._mask().first(prg), prg.words(self.shape), prg.words(self._lanes()))

    def second(self, prg: Prg) -> Parts:
        """Draw the second share of a."""
        return self._mask().second(prg)

    def correction(self, first: Parts, second: Parts) -> Parts:
        """Compute the second shares of the readings."""
        signed, unsigned = readings(first[0] + second[0], self.ring_bits, self.drop)
        gaps = ((unsigned - signed) >> (WORD_BITS - self._gap_bits)).reshape(-1)
        lanes = read_lanes(first[2], self._gap_bits, len(gaps))
        other = write_lanes(gaps.to(lanes.dtype).sub_(lanes), self._gap_bits)
        return signed - first[1], other

    def correction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the first reading, and of what the second is more."""
        return self.shape, self._lanes()

    def read(self, parts: Parts, top: Tensor) -> Tensor:
        """Take my share of the reading that holds: the second where a public bit is set."""
        _, signed, lanes = parts
        gaps = read_lanes(lanes, self._gap_bits, signed.numel()).to(torch.int64)
        return signed + (gaps << (WORD_BITS - self._gap_bits)).view(self.shape) * top

    @property
    def _gap_bits(self) -> int:
        return WORD_BITS - self.ring_bits + self.drop

    def _lanes(self) -> tuple[int, ...]:
        return (-(-prod(self.shape) * lane_bytes(self._gap_bits) // WORD_BYTES),)

    def _mask(self) -> OpeningMask:
        return OpeningMask(self.place, self.shape, None)


def cut_share(words: Tensor, ring_bits: int, drop: int, *, is_first: bool) -> Tensor:
    """Drop the lowest bits of my share: together they lose less than one unit in the last place."""
    # Of z = c - r, P0 has c and P1 r: (c >> drop) - (r >> drop) is away from z / 2^drop by the
    # difference of two fractions. What wraps around is a multiple of the ring that is left.
    if is_first:
        offset = 1 << (ring_bits - SPARE_BITS)
        high = (words + offset) << (WORD_BITS - ring_bits)
        return ring.shift_right(high, WORD_BITS - ring_bits + drop).sub_(offset >> drop)
    high = -words << (WORD_BITS - ring_bits)
    return ring.shift_right(high, WORD_BITS - ring_bits + drop).neg_()


def public_part(
    opened: Tensor, ring_bits: int, drop: int, *, borrows: bool = False
) -> tuple[Tensor, Tensor]:
    """Return what stands in front of a reading of the mask, and where the unsigned one holds.

    With ``borrows`` the number is what is open less its mask, not plus: it is then the difference
    that wraps around, where the mask has its top bit and what is open has not.
    """
    # Half a unit, so that what both shifts lose is as often too much as too little. It comes on top
    # of z + 2^(m-2), which must stay below 2^(m-1) for the top bits to tell: where z is within half
    # a unit of 2^(m-2), up to 2^(drop-m) of the masks make the result wrong by 2^(m-drop).
    half = (1 << drop) >> 1
    moved = opened + (1 << (ring_bits - SPARE_BITS)) + (0 if borrows else half)
    signed, unsigned = readings(moved, ring_bits, drop)
    top = signed < 0
    wrapped = torch.zeros_like(moved)
    if not borrows:
        wrapped = top.to(torch.int64) << (ring_bits - drop)
    return unsigned - wrapped - (1 << (ring_bits - SPARE_BITS - drop)), top
