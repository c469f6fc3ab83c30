"""Rescaling that cannot fail and shows nothing.

Seed protocols truncate their halves locally, which is wrong with a small probability (Mohassel
and Zhang 2017), or repair that by telling the other party which elements were in danger, which
leaks their range. With a dealer neither is needed: open z + r for a uniform r, of which the
dealer has shared r >> bits and the top bit. Because |z| < 2^62, whether z + 2^62 + r wrapped is
the public top bit of the sum against the shared top bit of r, so it is corrected locally
(the argument of Escudero et al. 2020, section 5, for inputs with a known top bit).
"""

from dataclasses import dataclass, replace

from tacit.mpc.additive2.local import half, numeric
from tacit.mpc.boundary import WORD_BYTES
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.cost import exchange
from tacit.mpc.randomness import Parts, RescaleMask
from tacit.mpc.share import HEADROOM_BITS, AnyShare, AnySpec, Share, Spec


@dataclass(frozen=True)
class Rescale:
    """Drop fraction bits of a secret.

    Guarantee: the parties see z + r for a uniform r, and nothing else. The result differs from
    z / 2^bits by less than one unit in the last place, always: `Spec` has refused every |z|
    that could reach 2^62.
    Cost: 1 round; 8 bytes per element each way.
    """

    bits: int

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out and what is sent."""
        x = numeric(operands[0], "rescaling")
        return Declaration(
            out=self._out(x),
            needs=(RescaleMask(x.shape, self.bits),),
            rounds=(exchange(*roles.computing, WORD_BYTES * x.elements),),
        )

    def _out(self, x: Spec) -> Spec:
        frac_bits = x.frac_bits - self.bits
        # The result is less than one unit away from the quotient.
        return replace(x, frac_bits=frac_bits, largest=(x.largest >> self.bits) + 1)

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Open the masked value, shift it, and take the shifted mask off again."""
        z = half(operands[0])
        ((r, undo, carry),) = material
        mine = r.add_(z.words)
        if channel.is_first:
            mine -= 1 << HEADROOM_BITS
        # c = z + 2^62 + r + 2^63: its sign bit is the complement of the top bit of z + 2^62 + r,
        # and shifting with the sign is shifting without it, 2^(63 - bits) too low.
        c = channel.exchange(mine).add_(mine)
        # r carried past 2^64 exactly where its top bit is set and that of z + 2^62 + r is not.
        words = undo.add_(carry.bitwise_and_(c >> 63))
        if channel.is_first:
            words += c.bitwise_right_shift_(self.bits)
        return Share(words, self._out(z.spec))
