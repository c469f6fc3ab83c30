"""Operations that each party does on its own shares: nothing is sent, nothing can leak."""

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.mpc import shapes, tables
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.material.randomness import Parts
from tacit.mpc.share import WORD_BITS, AnyShare, AnySpec, Share, Spec, words_of

Pair = tuple[int, int]


def numeric(spec: AnySpec, operation: str, *, any_ring: bool = False) -> Spec:
    """Return the spec of a number that may take part in arithmetic, or say why it may not."""
    if not isinstance(spec, Spec):
        raise InputError(f"{operation} wants numbers, got secret bits; only opening is possible")
    if spec.deferred:
        raise InputError(
            f"{operation} after {spec.deferred}: under this protocol {spec.deferred} is applied by "
            "the receiver once the value is opened, so nothing can be computed on it; open it, or "
            "use protocol 'permuted3', whose helper computes it on the way"
        )
    if spec.ring_bits != WORD_BITS and not any_ring:
        raise InputError(
            f"{operation} wants a number modulo 2^{WORD_BITS}, got one modulo 2^{spec.ring_bits}; "
            "truncate it first"
        )
    return spec


def numeric_share(share: AnyShare) -> Share:
    """Narrow an operand to a share of numbers; `declare` has refused everything else."""
    assert isinstance(share, Share)  # noqa: S101 - cannot happen after `numeric`
    return share


def lift(words: Tensor, spec: Spec, frac_bits: int) -> Tensor:
    """Bring a share to more fraction bits, exactly."""
    return words if spec.frac_bits == frac_bits else words * (1 << (frac_bits - spec.frac_bits))


class LocalKernel(ABC):
    """A kernel that each party carries out on its own shares.

    Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes.
    """

    operation: ClassVar[str]
    """What it does, in words, for errors."""
    any_ring: ClassVar[bool] = False
    """Whether it takes numbers of smaller rings, too."""
    # Each kernel has operands of its own number.
    out: Callable[..., Spec]
    """Gives the facts about the result, from those about the operands."""
    compute: Callable[..., Tensor]
    """Gives my words of the result, from the channel, the facts about it and my operands."""

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out."""
        specs = [numeric(one, self.operation, any_ring=self.any_ring) for one in operands]
        return Declaration(out=self.out(*specs))

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Do it to my shares."""
        out = self.out(*[one.spec for one in operands])
        return Share(self.compute(channel, out, *operands), out)


@dataclass(frozen=True)
class Add(LocalKernel):
    """Add or subtract two secrets. Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes."""

    sign: int = 1
    operation, any_ring = "adding", True

    def out(self, x: Spec, y: Spec) -> Spec:
        """Describe the sum."""
        shape = shapes.broadcast(x.shape, y.shape)
        frac_bits = max(x.frac_bits, y.frac_bits)
        largest = sum(one.largest << (frac_bits - one.frac_bits) for one in (x, y))
        ring_bits = min(x.ring_bits, y.ring_bits)
        return Spec(shape=shape, frac_bits=frac_bits, largest=largest, ring_bits=ring_bits)

    def compute(self, channel: Channel, out: Spec, x: Share, y: Share) -> Tensor:
        """Add my shares."""
        left, right = (lift(s.words, s.spec, out.frac_bits) for s in (x, y))
        return left + right if self.sign > 0 else left - right


@dataclass(frozen=True)
class Scale(LocalKernel):
    """Multiply a secret by a public number, which takes the given fraction bits.

    Fewer than none move the point to the right: a power of two then costs no room in the word.

    Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes. Error: that of rounding the factor.
    """

    factor: float
    frac_bits: int
    operation, any_ring = "scaling", True

    def out(self, x: Spec) -> Spec:
        """Describe the product."""
        # Keeps the encoded factor within a word even where x itself is tiny.
        factor = Spec(shape=(), frac_bits=self.frac_bits, largest=abs(self._word()))
        largest, frac_bits = x.largest * factor.largest, x.frac_bits + self.frac_bits
        return replace(x, frac_bits=frac_bits, largest=largest)

    def _word(self) -> int:
        return round(self.factor * 2.0**self.frac_bits)

    def compute(self, channel: Channel, out: Spec, x: Share) -> Tensor:
        """Scale my share."""
        return x.words * self._word()


@dataclass(frozen=True)
class Tune(LocalKernel):
    """Multiply a secret by a number that both parties know when it is time, but the plan does not.

    Both hold the number itself, not shares of it: whoever calls this answers for that.

    Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes. Error: that of rounding the number.
    """

    operation = "scaling"

    def out(self, x: Spec, number: Spec) -> Spec:
        """Describe the product."""
        frac_bits = x.frac_bits + number.frac_bits
        return Spec(shape=x.shape, frac_bits=frac_bits, largest=x.largest * number.largest)

    def compute(self, channel: Channel, out: Spec, x: Share, number: Share) -> Tensor:
        """Scale my share."""
        return x.words * number.words


@dataclass(frozen=True)
class Shift(LocalKernel):
    """Add a public number. Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes."""

    amount: float
    operation = "shifting"

    def out(self, x: Spec) -> Spec:
        """Describe the sum."""
        return replace(x, largest=x.largest + words_of(abs(self.amount), x.frac_bits))

    def compute(self, channel: Channel, out: Spec, x: Share) -> Tensor:
        """Add the number to P0's share."""
        return x.words + round(self.amount * 2.0**x.spec.frac_bits) if channel.is_first else x.words


@dataclass(frozen=True)
class Sum(LocalKernel):
    """Add up along a dimension. Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes.

    A ``bound`` of the sum may be known that is less than its terms say.
    """

    dim: int
    bound: float | None = None
    operation, any_ring = "summing", True

    def out(self, x: Spec) -> Spec:
        """Describe the sum."""
        shape = shapes.reduce(x.shape, self.dim)
        largest = x.largest * x.shape[self.dim]
        if self.bound is not None:
            largest = min(largest, words_of(self.bound, x.frac_bits))
        return replace(x, shape=shape, largest=largest)

    def compute(self, channel: Channel, out: Spec, x: Share) -> Tensor:
        """Sum my share."""
        return x.words.sum(dim=self.dim)


@dataclass(frozen=True)
class CumulativeSum(LocalKernel):
    """Give running sums along a dimension. Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes."""

    dim: int
    operation = "summing"

    def out(self, x: Spec) -> Spec:
        """Describe the sums."""
        return replace(x, largest=x.largest * x.shape[shapes.axis(x.shape, self.dim)])

    def compute(self, channel: Channel, out: Spec, x: Share) -> Tensor:
        """Sum my share."""
        return x.words.cumsum(dim=self.dim)


@dataclass(frozen=True)
class Reshape(LocalKernel):
    """Give the same elements another shape. Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes."""

    shape: tuple[int, ...]
    operation, any_ring = "reshaping", True

    def out(self, x: Spec) -> Spec:
        """Describe the same number in that shape."""
        return replace(x, shape=shapes.reshape(x.shape, self.shape))

    def compute(self, channel: Channel, out: Spec, x: Share) -> Tensor:
        """Reshape my share."""
        return x.words.reshape(out.shape)


@dataclass(frozen=True)
class Transpose(LocalKernel):
    """Swap two dimensions. Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes."""

    first: int
    second: int
    operation, any_ring = "transposing", True

    def out(self, x: Spec) -> Spec:
        """Describe the same number, swapped."""
        return replace(x, shape=shapes.transpose(x.shape, self.first, self.second))

    def compute(self, channel: Channel, out: Spec, x: Share) -> Tensor:
        """Transpose my share."""
        return x.words.transpose(self.first, self.second)


@dataclass(frozen=True)
class Pick(LocalKernel):
    """Take one index of the first dimension. Guarantee: nothing is sent. Cost: 0 rounds."""

    index: int
    operation = "taking a part"

    def out(self, x: Spec) -> Spec:
        """Describe the part."""
        if self.index not in range(x.shape[shapes.axis(x.shape, 0)]):
            raise InputError(f"{x.shape} has no part {self.index}")
        return replace(x, shape=x.shape[1:])

    def compute(self, channel: Channel, out: Spec, x: Share) -> Tensor:
        """Take the part of my share."""
        return x.words[self.index]


@dataclass(frozen=True)
class Halve(LocalKernel):
    """Take the first or the last half of a dimension; of an odd length both hold the middle.

    Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes.
    """

    dim: int
    takes_last: bool
    operation = "halving"

    def out(self, x: Spec) -> Spec:
        """Describe the half."""
        shape = list(x.shape)
        at = shapes.axis(x.shape, self.dim)
        shape[at] = -(-shape[at] // 2)
        return replace(x, shape=tuple(shape))

    def compute(self, channel: Channel, out: Spec, x: Share) -> Tensor:
        """Take that part of my share."""
        length = out.shape[self.dim]
        start = x.spec.shape[self.dim] - length if self.takes_last else 0
        return x.words.narrow(self.dim, start, length)


@dataclass(frozen=True)
class Restate(LocalKernel):
    """Replace the bound of a value by a smaller one that is known to hold.

    Guarantee: nothing is sent. Whoever calls this must know that the bound holds.
    Cost: 0 rounds, 0 bytes.
    """

    bound: float
    operation, any_ring = "restating", True

    def out(self, x: Spec) -> Spec:
        """Describe the same number with another bound."""
        return replace(x, largest=words_of(self.bound, x.frac_bits))

    def compute(self, channel: Channel, out: Spec, x: Share) -> Tensor:
        """Give the same share."""
        return x.words


@dataclass(frozen=True)
class Concatenate(LocalKernel):
    """Join secrets along a dimension. Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes."""

    dim: int
    operation = "joining"

    def out(self, *specs: Spec) -> Spec:
        """Describe what is joined, with the fraction bits of the most precise part."""
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

    def compute(self, channel: Channel, out: Spec, *shares: Share) -> Tensor:
        """Join my shares."""
        words = [lift(one.words, one.spec, out.frac_bits) for one in shares]
        return torch.cat(words, dim=self.dim)


@dataclass(frozen=True)
class Take(LocalKernel):
    """Pick public positions of a dimension, in any order and as often as wanted.

    Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes.
    """

    dim: int
    positions: tuple[int, ...] | range
    operation, any_ring = "picking", True

    def out(self, x: Spec) -> Spec:
        """Describe what is picked."""
        axis = shapes.axis(x.shape, self.dim)
        ends = (min(self.positions), max(self.positions)) if self.positions else ()
        beyond = [at for at in ends if not 0 <= at < x.shape[axis]]
        if beyond:
            raise InputError(f"{x.shape} has no position {beyond[0]} in dimension {self.dim}")
        shape = (*x.shape[:axis], len(self.positions), *x.shape[axis + 1 :])
        return replace(x, shape=shape)

    def compute(self, channel: Channel, out: Spec, x: Share) -> Tensor:
        """Pick from my share."""
        if isinstance(self.positions, range) and self.positions.step == 1 and self.positions:
            return x.words.narrow(self.dim, self.positions.start, len(self.positions))
        (at,) = tables.kept(_places(tuple(self.positions), x.words.device))
        return x.words.index_select(self.dim, at)


@lru_cache(maxsize=256)
def _places(positions: tuple[int, ...], device: torch.device) -> Tensor:
    """Lay positions out where they are read, once: a copy to an accelerator is a wait."""
    return tables.laid_out(torch.tensor(positions, dtype=torch.int64), device)


@dataclass(frozen=True)
class Windows(LocalKernel):
    """Lay the windows of images (n, c, h, w) out as (n, c, window, out h, out w).

    What is beyond the edge is 0, or the least number that can occur if ``edge_is_least``.

    Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes.
    """

    size: Pair
    stride: Pair
    padding: Pair
    edge_is_least: bool
    operation = "pooling"

    def out(self, x: Spec) -> Spec:
        """Describe the windows."""
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

    def compute(self, channel: Channel, out: Spec, x: Share) -> Tensor:
        """Lay out my share."""
        edge = -x.spec.largest if self.edge_is_least and channel.is_first else 0
        (down, right), (height, width) = self.padding, x.spec.shape[2:]
        sides = height + 2 * down, width + 2 * right
        words = x.words.new_full((*x.spec.shape[:2], *sides), edge)
        words[:, :, down : down + height, right : right + width] = x.words
        words = words.unfold(2, self.size[0], self.stride[0])
        words = words.unfold(3, self.size[1], self.stride[1])  # (n, c, oh, ow, h, w)
        return words.permute(0, 1, 4, 5, 2, 3).reshape(out.shape)


@dataclass(frozen=True)
class Dropout(LocalKernel):
    """Set each element to zero with a public probability, and scale up the rest.

    The mask is drawn from the generator of the two computing parties. They may know it: it does
    not depend on any secret, and which neurons rest says nothing about what they hold.

    Guarantee: nothing is sent; nobody but the computing parties can predict the mask.
    Cost: 0 rounds, 0 bytes; the result has ``frac_bits`` more.
    """

    rate: float
    frac_bits: int
    operation = "dropping out"

    def out(self, x: Spec) -> Spec:
        """Describe what is left."""
        if not 0 <= self.rate < 1:
            raise InputError(f"a dropout rate must be at least 0 and below 1, got {self.rate}")
        frac_bits = x.frac_bits + self.frac_bits
        return replace(x, frac_bits=frac_bits, largest=x.largest * self._factor())

    def _factor(self) -> int:
        return round((1 << self.frac_bits) / (1 - self.rate))

    def compute(self, channel: Channel, out: Spec, x: Share) -> Tensor:
        """Draw the common mask and apply it to my share."""
        words = channel.shared(channel.other).words(x.spec.shape)
        threshold = round(self.rate * 2**64) - 2**63
        kept = (words >= threshold).to(words.dtype).to(x.words.device)
        return x.words * (kept * self._factor())


@dataclass(frozen=True)
class DeferToReceiver:
    """Leave a strictly increasing function to whoever the value is opened to.

    Guarantee: nothing is sent; the receiver of f(x) could compute x from it, so opening x to it
    reveals the same. If something else is done with the result, it is computed after all.
    Cost: 0 rounds, 0 bytes; exact.
    """

    function: str

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out."""
        x = numeric(operands[0], self.function)
        return Declaration(out=replace(x, deferred=self.function))

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Mark the share."""
        x = numeric_share(operands[0])
        return Share(x.words, replace(x.spec, deferred=self.function))
