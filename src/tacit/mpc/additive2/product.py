"""Products of two secrets, with a Beaver triple from the dealer."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.mpc.additive2.local import half, numeric
from tacit.mpc.boundary import WORD_BYTES
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.cost import exchange
from tacit.mpc.products import Product
from tacit.mpc.randomness import Parts, Triple, unpack
from tacit.mpc.share import AnyShare, AnySpec, Share, Spec
from tacit.ring import Prg


@dataclass(frozen=True)
class Multiply:
    """Multiply two secrets, element-wise, as matrices or by convolution (Beaver 1991).

    The result has the fraction bits of both factors together; `Rescale` brings them down when
    they are in the way, and not before.

    Guarantee: the parties see x - a and y - b for uniform a and b, and nothing else.
    Cost: 1 round; 8 bytes for every element of both operands, each way.
    """

    product: Product

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out and what is sent."""
        x, y = (numeric(spec, "multiplying") for spec in operands)
        size = WORD_BYTES * (x.elements + y.elements)
        return Declaration(
            out=self._out(x, y),
            needs=(Triple(self.product, x.shape, y.shape),),
            rounds=(exchange(*roles.computing, size),),
        )

    def _out(self, x: Spec, y: Spec) -> Spec:
        shape = self.product.shape(x.shape, y.shape)
        terms = self.product.terms(x.shape, y.shape)
        frac_bits = x.frac_bits + y.frac_bits
        return Spec(shape=shape, frac_bits=frac_bits, largest=terms * x.largest * y.largest)

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Open the masked operands and combine them with my part of the triple."""
        x, y = (half(operand) for operand in operands)
        ((a, b, c),) = material
        e, d = self._open(channel, x.words, y.words, a, b)
        # z = (e + a)(d + b) = e·d + e·b + a·d + c; P0 adds the public term e·d.
        b = b + d if channel.is_first else b
        z = self.product.multiply(e, b) + self.product.multiply(a, d) + c
        return Share(z, self._out(x.spec, y.spec))

    def _open(
        self, channel: Channel, x: Tensor, y: Tensor, a: Tensor, b: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Reveal x - a and y - b to both, written straight into one message."""
        mine = torch.empty(x.numel() + y.numel(), dtype=torch.int64, device=x.device)
        left, right = unpack(mine, (tuple(x.shape), tuple(y.shape)))
        torch.sub(x, a, out=left)
        torch.sub(y, b, out=right)
        e, d = unpack(mine + channel.exchange(mine), (tuple(x.shape), tuple(y.shape)))
        return e, d


@dataclass(frozen=True)
class SquareMask:
    """A uniform a and its square, in additive halves."""

    shape: tuple[int, ...]

    def first(self, prg: Prg) -> Parts:
        """Draw the first halves of a and a²."""
        return prg.words(self.shape), prg.words(self.shape)

    def second(self, prg: Prg) -> Parts:
        """Draw the second half of a."""
        return (prg.words(self.shape),)

    def correction(self, first: Parts, second: Parts) -> Parts:
        """Compute the second half of a²."""
        a = first[0] + second[0]
        return (a * a - first[1],)

    def correction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of a²."""
        return (self.shape,)


@dataclass(frozen=True)
class Square:
    """Multiply a secret by itself, which takes half the bytes of a product of two.

    Guarantee: the parties see x - a for a uniform a, and nothing else.
    Cost: 1 round; 8 bytes per element, each way.
    """

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out and what is sent."""
        x = numeric(operands[0], "squaring")
        return Declaration(
            out=self._out(x),
            needs=(SquareMask(x.shape),),
            rounds=(exchange(*roles.computing, WORD_BYTES * x.elements),),
        )

    def _out(self, x: Spec) -> Spec:
        return Spec(shape=x.shape, frac_bits=2 * x.frac_bits, largest=x.largest**2)

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Open the masked operand and expand (e + a)²."""
        x = half(operands[0])
        ((a, square),) = material
        mine = x.words - a
        e = mine + channel.exchange(mine)
        z = 2 * e * a + square
        return Share(z + e * e if channel.is_first else z, self._out(x.spec))
