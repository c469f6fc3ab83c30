"""Operations with public positions: joining, picking, windows. Nothing is sent, nothing leaks."""

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.mpc import shapes, tables
from tacit.mpc.arithmetic.local import lift, numeric, numeric_share
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.material.randomness import Parts
from tacit.mpc.share import AnyShare, AnySpec, Share, Spec

Pair = tuple[int, int]


@dataclass(frozen=True)
class Concatenate:
    """Join secrets along a dimension. Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes."""

    dim: int

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out."""
        return Declaration(out=self._out([numeric(one, "joining") for one in operands]))

    def _out(self, specs: list[Spec]) -> Spec:
        axis = shapes.axis(specs[0].shape, self.dim)
        others = {one.shape[:axis] + one.shape[axis + 1 :] for one in specs}
        if len(others) != 1:
            raise InputError(
                f"cannot join {', '.join(str(one.shape) for one in specs)} along dimension "
                f"{self.dim}: the other dimensions differ"
            )
        frac_bits = max(one.frac_bits for one in specs)
        shape = list(specs[0].shape)
        shape[axis] = sum(one.shape[axis] for one in specs)
        largest = max(one.largest << (frac_bits - one.frac_bits) for one in specs)
        return Spec(shape=tuple(shape), frac_bits=frac_bits, largest=largest)

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Join my shares."""
        shares = [numeric_share(operand) for operand in operands]
        out = self._out([one.spec for one in shares])
        words = [lift(one.words, one.spec, out.frac_bits) for one in shares]
        return Share(torch.cat(words, dim=self.dim), out)


@dataclass(frozen=True)
class Take:
    """Pick public positions of a dimension, in any order and as often as wanted.

    Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes.
    """

    dim: int
    positions: tuple[int, ...] | range

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out."""
        return Declaration(out=self._out(numeric(operands[0], "picking", any_ring=True)))

    def _out(self, x: Spec) -> Spec:
        axis = shapes.axis(x.shape, self.dim)
        ends = (min(self.positions), max(self.positions)) if self.positions else ()
        beyond = [at for at in ends if not 0 <= at < x.shape[axis]]
        if beyond:
            raise InputError(f"{x.shape} has no position {beyond[0]} in dimension {self.dim}")
        shape = (*x.shape[:axis], len(self.positions), *x.shape[axis + 1 :])
        return replace(x, shape=shape)

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Pick from my share."""
        x = numeric_share(operands[0])
        out = self._out(x.spec)
        if isinstance(self.positions, range) and self.positions.step == 1 and self.positions:
            words = x.words.narrow(self.dim, self.positions.start, len(self.positions))
            return Share(words, out)
        (at,) = tables.kept(_places(tuple(self.positions), x.words.device))
        return Share(x.words.index_select(self.dim, at), out)


@lru_cache(maxsize=256)
def _places(positions: tuple[int, ...], device: torch.device) -> Tensor:
    """Lay positions out where they are read, once: a copy to an accelerator is a wait."""
    return tables.laid_out(torch.tensor(positions, dtype=torch.int64), device)


@dataclass(frozen=True)
class Windows:
    """Lay the windows of images (n, c, h, w) out as (n, c, window, out h, out w).

    What is beyond the edge is 0, or the least number that can occur if ``edge_is_least``.

    Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes.
    """

    size: Pair
    stride: Pair
    padding: Pair
    edge_is_least: bool

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out."""
        return Declaration(out=self._out(numeric(operands[0], "pooling")))

    def _out(self, x: Spec) -> Spec:
        if len(x.shape) != 4:
            raise InputError(f"pooling wants images (n, channels, height, width), got {x.shape}")
        if any(2 * pad > size for pad, size in zip(self.padding, self.size, strict=True)):
            raise InputError(f"padding {self.padding} is more than half of windows {self.size}")
        sides = tuple(
            (side + 2 * pad - size) // step + 1
            for side, size, step, pad in zip(
                x.shape[2:], self.size, self.stride, self.padding, strict=True
            )
        )
        if min(sides) < 1:
            raise InputError(f"windows of {self.size} do not fit into images {x.shape}")
        return replace(x, shape=(*x.shape[:2], self.size[0] * self.size[1], *sides))

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Lay out my share."""
        x = numeric_share(operands[0])
        out = self._out(x.spec)
        edge = -x.spec.largest if self.edge_is_least and channel.is_first else 0
        (down, right), (height, width) = self.padding, x.spec.shape[2:]
        sides = height + 2 * down, width + 2 * right
        words = x.words.new_full((*x.spec.shape[:2], *sides), edge)
        words[:, :, down : down + height, right : right + width] = x.words
        words = words.unfold(2, self.size[0], self.stride[0])
        words = words.unfold(3, self.size[1], self.stride[1])  # (n, c, oh, ow, h, w)
        return Share(words.permute(0, 1, 4, 5, 2, 3).reshape(out.shape), out)


@dataclass(frozen=True)
class Dropout:
    """Set each element to zero with a public probability, and scale up the rest.

    The mask is drawn from the generator of the two computing parties. They may know it: it does
    not depend on any secret, and which neurons rest says nothing about what they hold.

    Guarantee: nothing is sent; nobody but the computing parties can predict the mask.
    Cost: 0 rounds, 0 bytes; the result has ``frac_bits`` more.
    """

    rate: float
    frac_bits: int

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out."""
        return Declaration(out=self._out(numeric(operands[0], "dropping out")))

    def _out(self, x: Spec) -> Spec:
        if not 0 <= self.rate < 1:
            raise InputError(f"a dropout rate must be at least 0 and below 1, got {self.rate}")
        frac_bits = x.frac_bits + self.frac_bits
        return replace(x, frac_bits=frac_bits, largest=x.largest * self._factor())

    def _factor(self) -> int:
        return round((1 << self.frac_bits) / (1 - self.rate))

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Draw the common mask and apply it to my share."""
        x = numeric_share(operands[0])
        out = self._out(x.spec)
        words = channel.shared(channel.other).words(x.spec.shape)
        threshold = round(self.rate * 2**64) - 2**63
        kept = (words >= threshold).to(words.dtype).to(x.words.device)
        return Share(x.words * (kept * self._factor()), out)
