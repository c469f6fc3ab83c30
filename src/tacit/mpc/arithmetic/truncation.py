"""Truncation that cannot fail and shows nothing.

Seed protocols truncate their shares locally, which is wrong with a small probability (Mohassel
and Zhang 2017), or repair that by telling the other party which elements were in danger, which
leaks their range. Neither is needed. Read z + 2^62 as c - r, where c is in P0's hands and r, the
negative of P1's share, in P1's. Because |z| < 2^62 the difference borrowed exactly where the top
bit of r is set and that of c is not (the argument of Escudero et al. 2020, section 5, for values
with a known top bit). That is a product of one bit of each party: shifting is local, and one
masked bit each way puts it right, without ever opening the value (after Rathee et al. 2021).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit import ring
from tacit.mpc.arithmetic.local import numeric, numeric_share
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.material.randomness import BorrowMask, Parts, packed_words, read_lanes
from tacit.mpc.narrow import WORD_BYTES, bits_size
from tacit.mpc.share import (
    HEADROOM_BITS,
    SPARE_BITS,
    WORD_BITS,
    AnyShare,
    AnySpec,
    Share,
    Spec,
)
from tacit.party.cost import exchange

# Of a million words, the passes over fresh memory took five times as long as the same in parts.
_PART = 1 << 15


@dataclass(frozen=True)
class Truncate:
    """Drop fraction bits of a secret, and bring it from a smaller ring to that of words.

    Guarantee: each party sees one bit per element, masked by a uniform bit that it does not know,
    and nothing else. The result differs from z / 2^bits by less than one unit in the last place,
    always: `Spec` has refused every |z| that could reach a quarter of its ring.
    Cost: 1 round; 1 bit per element each way, in whole words or, of up to 32, in bytes.
    """

    bits: int

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out and what is sent."""
        x = numeric(operands[0], "truncation", any_ring=True)
        size = bits_size(packed_words(x.elements), x.elements)
        return Declaration(
            out=self._out(x),
            needs=(BorrowMask(x.elements, self._lost(x)),),
            rounds=(exchange(*roles.computing, size),),
        )

    def _out(self, x: Spec) -> Spec:
        frac_bits = x.frac_bits - self.bits
        # The result is less than one unit away from the quotient.
        largest = (x.largest >> self.bits) + 1
        return replace(x, frac_bits=frac_bits, largest=largest, ring_bits=WORD_BITS)

    def _lost(self, x: Spec) -> int:
        """Return how many bits at the top of the result have to be put right."""
        return WORD_BITS - x.ring_bits + self.bits

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Shift my share, and take my part of the borrow."""
        z = numeric_share(operands[0])
        ((mask, lanes),) = material
        first = channel.is_first
        words = z.words.reshape(-1)
        # P0's c, or P1's r; the bit is one where c allows a borrow, or where r asks for it.
        ring_bits, lost = z.spec.ring_bits, self._lost(z.spec)
        words = words + (1 << (ring_bits - SPARE_BITS)) if first else -words
        if ring_bits < WORD_BITS:  # the top of the ring goes to the top of the word
            words <<= WORD_BITS - ring_bits
        bit = words >= 0 if first else words < 0
        masked = _packed(bit, len(mask)).bitwise_xor_(mask)
        channel.send_bits(masked, len(words))
        shared = []  # until theirs is here, all that does not wait for it
        for part in _parts(words):
            words[part] = self._shifted(words[part], lost, is_first=first)
            shared.append(read_lanes(lanes, lost, len(words), part))
        theirs = channel.recv_bits(masked.shape, len(words))
        turns = masked ^ theirs
        for part, product in zip(_parts(words), shared, strict=True):
            turned, public = _bits(turns, part), _bits(theirs, part)
            borrow = _borrow(bit[part], turned, public, product, is_first=first)
            words[part] += borrow.to(torch.int64).bitwise_left_shift_(WORD_BITS - lost)
        return Share(words.view(z.spec.shape), self._out(z.spec))

    def _shifted(self, words: Tensor, lost: int, *, is_first: bool) -> Tensor:
        """Shift my c or r, and take back what was added to it."""
        shifted = ring.shift_right(words, lost)
        return shifted.sub_(1 << (HEADROOM_BITS - lost)) if is_first else shifted.neg_()


def _borrow(
    own: Tensor, turned: Tensor, public: Tensor, shared: Tensor, *, is_first: bool
) -> Tensor:
    """Give my share of u·v modulo 2^bits, for P0's bit u = e ⊕ α and P1's bit v = f ⊕ β.

    It is u·f + e·(v - f) + αβ, the last with its sign turned where e ⊕ f. P0 adds the first
    term, P1 the second, and the dealer has shared αβ.
    """
    # u·v = u·f + (1 - 2f)·u·β, and u·β = e·β + (1 - 2e)·αβ; (1 - 2f)·β is v - f, which P1 knows.
    turns, seen = turned.view(torch.int8), public.view(torch.int8)
    term = own.view(torch.int8)
    term = term & seen if is_first else (term - (turns ^ seen)).mul_(seen)
    sign = 1 - (turns << 1)  # small numbers, as long as they are small
    return (shared * sign.to(shared.dtype)).add_(term.to(shared.dtype))


def _parts(words: Tensor) -> Iterator[slice]:
    """Cut a processor's work into parts that stay in its cache; an accelerator gets all at once."""
    size = len(words) if words.device.type == "cuda" else _PART
    for start in range(0, len(words), max(1, size)):
        yield slice(start, min(start + size, len(words)))


def _bits(packed: Tensor, part: slice) -> Tensor:
    """Unpack a part, which begins with a byte."""
    octets = packed.view(torch.uint8)[part.start // 8 : -(-part.stop // 8)]
    return ring.unpack_bits(octets, part.stop - part.start)


def _packed(bits: Tensor, words: int) -> Tensor:
    """Pack bits into so many words."""
    octets = ring.pack_bits(bits)
    padded = torch.zeros(WORD_BYTES * words, dtype=torch.uint8, device=octets.device)
    padded[: len(octets)] = octets
    return padded.view(torch.int64)
