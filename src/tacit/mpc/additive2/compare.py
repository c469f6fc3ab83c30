"""Comparison with zero: open a masked value, then find the borrow with a bit-sliced circuit.

x = c - r, where c = x + r is public and the dealer has shared the bits of r. The sign of x is
the top bits of c and r and the borrow from below, which asks whether the lower 63 bits of c are
less than those of r. A tree over the bits answers that: a block knows whether it decides
"less" (G) and whether it is equal and leaves the decision to the block below (P).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit import ring
from tacit.mpc.additive2.local import half, numeric
from tacit.mpc.boundary import WORD_BYTES
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.cost import exchange
from tacit.mpc.randomness import BitTriple, CompareMask, Parts
from tacit.mpc.share import AnyShare, AnySpec, BitShare, BitSpec

_WORD_BITS = 64
_LEVELS = 6


def _gates(level: int) -> int:
    """Return the AND gates per element in a level: G and P of each pair, but no P at the last."""
    pairs = _WORD_BITS >> (level + 1)
    return 2 * pairs if level < _LEVELS - 1 else 1


@dataclass(frozen=True)
class IsPositive:
    """Give a secret bit that is 1 where x >= 0.

    Guarantee: the parties see x + r for a uniform r and AND operands masked by uniform words,
    and nothing else; exact for every x.
    Cost: 7 rounds; 8 bytes + 250 bits per element each way (bits travel in whole words per
    64 elements).
    """

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out and what is sent."""
        x = numeric(operands[0], "comparing")
        out = BitSpec(shape=x.shape)
        sizes = [x.elements] + [2 * _gates(level) * out.words for level in range(_LEVELS)]
        return Declaration(
            out=out,
            needs=(
                CompareMask(x.elements),
                *(BitTriple((_gates(level), out.words)) for level in range(_LEVELS)),
            ),
            rounds=tuple(exchange(*roles.computing, WORD_BYTES * size) for size in sizes),
        )

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Open x + r, run the circuit, and combine."""
        x = half(operands[0])
        (r, r_bits), triples = material[0], material[1:]
        mine = x.words.reshape(-1) + r
        c_bits = ring.to_planes(mine + channel.exchange(mine))
        sign = r_bits[_WORD_BITS - 1] ^ _borrow(channel, c_bits, r_bits, triples)
        if channel.is_first:
            sign = ~(sign ^ c_bits[_WORD_BITS - 1])
        return BitShare(sign, BitSpec(shape=x.spec.shape))


def _borrow(channel: Channel, c_bits: Tensor, r_bits: Tensor, triples: tuple[Parts, ...]) -> Tensor:
    """Share whether the lower 63 bits of the public c are less than those of the shared r."""
    g = r_bits & ~c_bits
    p = ~(r_bits ^ c_bits) if channel.is_first else r_bits.clone()
    # The top bit does not take part: it decides nothing and passes the decision on.
    g[-1] = 0
    p[-1] = -1 if channel.is_first else 0
    for level, triple in enumerate(triples):
        low_g, high_g, low_p, high_p = g[0::2], g[1::2], p[0::2], p[1::2]
        if level == _LEVELS - 1:
            return high_g[0] ^ _and(channel, high_p, low_g, triple)[0]
        both = _and(channel, torch.cat((high_p, high_p)), torch.cat((low_g, low_p)), triple)
        pairs = len(high_p)
        g, p = high_g ^ both[:pairs], both[pairs:]
    raise AssertionError("unreachable: the last level returns")


def _and(channel: Channel, x: Tensor, y: Tensor, triple: Parts) -> Tensor:
    """Multiply packed secret bits with a triple (Beaver 1991, over Z_2)."""
    a, b, c = triple
    mine = torch.stack((x ^ a, y ^ b))
    opened = mine ^ channel.exchange(mine)
    d, e = opened[0], opened[1]
    z = c ^ (d & b) ^ (e & a)
    return z ^ (d & e) if channel.is_first else z
