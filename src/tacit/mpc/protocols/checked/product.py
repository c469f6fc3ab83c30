"""Masked openings and products with tags."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.mpc.arithmetic.local import numeric
from tacit.mpc.arithmetic.opening import OpenMasked
from tacit.mpc.arithmetic.product import Multiply
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.material.randomness import OpeningMask, OpeningTriple, Parts
from tacit.mpc.products import Hadamard, MatMul
from tacit.mpc.protocols.checked import wide
from tacit.mpc.protocols.checked.pending import (
    Pending,
    PendingProduct,
    TaggedOpening,
    TaggedShare,
    is_worth_it,
)
from tacit.mpc.protocols.checked.proofs import proofs_of
from tacit.mpc.protocols.checked.tags import PartPair, Tagged, add_public
from tacit.mpc.share import (
    AnyShare,
    AnySpec,
    MaskedOpening,
    OpeningSpec,
    Party,
    SharePair,
    Spec,
)


def tagged_mask(place: int, shape: tuple[int, ...], holder: Party | None) -> Tagged:
    """Describe a mask with tags."""
    parts = {None: (0, 0), "first": (0, None), "second": (None, 0)}[holder]
    return Tagged(OpeningMask(place, shape, holder), (PartPair(*parts, shape),))


@dataclass(frozen=True)
class OpenTagged(OpenMasked):
    """Open secrets under masks, with tags; an owner's input enters by this.

    Guarantee: that of `OpenMasked`; and a wrong word is noticed at the next check. An owner chooses
    its input by what it sends, so nothing that it sends is wrong.
    Cost: that of `OpenMasked`.
    """

    def _needs(self, operands: tuple[AnySpec, ...]) -> tuple[Tagged, ...]:
        if self.rescalings:
            raise InputError("'checked' has no openings that rescale; use protocol 'sealed'")
        return tuple(
            tagged_mask(place, numeric(spec, "multiplying").shape, owner)
            for place, (spec, owner) in enumerate(zip(operands, self.owners, strict=True))
        )

    def run(
        self,
        channel: Channel,
        material: tuple[Parts, ...],
        operands: tuple[AnyShare, ...],
        clear: tuple[Tensor | None, ...],
    ) -> tuple[MaskedOpening, ...]:
        """Open, and note what was sent."""
        needs = self._needs(tuple(one.spec for one in operands))
        read = [
            need.read(parts, is_first=channel.is_first)
            for need, parts in zip(needs, material, strict=True)
        ]
        opened = super().run(channel, tuple(own for own, _ in read), operands, clear)
        found = []
        for one, x, (_, (tags,)), owner in zip(opened, operands, read, self.owners, strict=True):
            mask = tags.wide()
            if owner is None:
                assert isinstance(x, TaggedShare)  # noqa: S101 - ops have entered every input
                assert one.mask_share is not None  # noqa: S101 - nobody is the holder
                sent = wide.carry(x.numbers - mask)
                proofs_of(channel).exchanged(sent, one.opened - x.words + one.mask_share)
            found.append(
                TaggedOpening(one.opened, one.mask_share, one.clear, one.spec, numbers=mask)
            )
        return tuple(found)


@dataclass(frozen=True)
class Enter:
    """Make a share of a value that was opened under a mask: the mask, and what is public.

    Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes.
    """

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out."""
        return Declaration(out=_number(operands[0]))

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Add what is public to P0's share of the mask."""
        (x,) = operands
        assert isinstance(x, TaggedOpening)  # noqa: S101 - `declare` has refused everything else
        words = x.mask_share if x.mask_share is not None else x.opened * 0
        first = channel.is_first
        numbers = add_public(x.numbers.clone(), x.opened, proofs_of(channel).keys)
        return TaggedShare(words + x.opened if first else words, _number(x.spec), numbers)


def _number(spec: AnySpec) -> Spec:
    assert isinstance(spec, OpeningSpec)  # noqa: S101 - ops give nothing else
    return Spec(shape=spec.shape, frac_bits=spec.frac_bits, largest=spec.largest)


@dataclass(frozen=True)
class WholeTriple(OpeningTriple):
    """Shares of the whole product of two masks, also where one party knows one of them.

    What a party would add by itself, its own a·b, is not linear in what it was dealt: no tag can be
    derived for it.
    """

    def correct(self, first: Parts, left: SharePair, right: SharePair) -> Parts:
        """Compute c1 = a·b - c0."""
        a, b = (
            torch.stack([one for one in pair if one is not None]).sum(0) for pair in (left, right)
        )
        return (self.product.multiply(a, b).sub_(first[0]),)


@dataclass(frozen=True)
class MultiplyTagged(Multiply):
    """Multiply two secrets opened under masks, with tags.

    Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes.
    """

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out and what is needed."""
        plain = super().declare(roles, *operands)
        (triple,) = plain.needs
        assert isinstance(triple, OpeningTriple)  # noqa: S101 - it is what a product needs
        whole = WholeTriple(triple.product, triple.left, triple.right, triple.shape)
        return Declaration(out=plain.out, needs=(_tagged_triple(whole),))

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Combine what is open with my part of the masks, and their tags alike."""
        x, y = operands
        assert isinstance(x, TaggedOpening)  # noqa: S101 - `declare` has refused everything else
        assert isinstance(y, TaggedOpening)  # noqa: S101
        out = self._out(x.spec, y.spec)
        triple = WholeTriple(self.product, x.spec.mask, y.spec.mask, out.shape)
        (c,), (tags,) = _tagged_triple(triple).read(material[0], is_first=channel.is_first)
        for left, right in _pairs(x, y, is_first=channel.is_first):
            c = c + self.product.multiply(left, right)
        e, d, keys = x.opened, y.opened, proofs_of(channel).keys
        if isinstance(self.product, MatMul) and is_worth_it(x.spec.shape, y.spec.shape):
            later = PendingProduct(e, y.numbers, True), PendingProduct(d, x.numbers, False)
            return TaggedShare(c, out, Pending(tags.wide(), later, (e, d), keys))
        numbers = tags.wide()
        if isinstance(self.product, Hadamard):
            numbers += wide.multiply(_laid_out(y.numbers, out.shape), e.expand(out.shape))
            numbers += wide.multiply(_laid_out(x.numbers, out.shape), d.expand(out.shape))
        elif isinstance(self.product, MatMul) and min(x.opened.dim(), y.opened.dim()) > 1:
            b, a = (_aligned(one.numbers, len(out.shape)) for one in (y, x))
            numbers += wide.matmul(e, b, is_public_left=True)
            numbers += wide.matmul(d, a, is_public_left=False)
        else:
            multiply, terms = self.product.multiply, self.product.terms(x.spec.shape, y.spec.shape)
            numbers += wide.map_bilinear(multiply, e, y.numbers, terms=terms)
            numbers += wide.map_bilinear(lambda d, a: multiply(a, d), d, x.numbers, terms=terms)
        public = self.product.multiply(e, d)
        return TaggedShare(c, out, add_public(wide.carry(numbers), public, keys))


def _laid_out(numbers: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Broadcast numbers (limbs, components, …) to a shape."""
    return _aligned(numbers, len(shape)).expand(*numbers.shape[:2], *shape)


def _aligned(numbers: Tensor, dims: int) -> Tensor:
    """Give numbers (limbs, components, …) so many dimensions more than these two."""
    front, own = numbers.shape[:2], numbers.shape[2:]
    return numbers.reshape(*front, *(1,) * (dims - len(own)), *own)


def _tagged_triple(triple: WholeTriple) -> Tagged:
    return Tagged(triple, (PartPair(0, 0, triple.shape),))


def _pairs(x: MaskedOpening, y: MaskedOpening, *, is_first: bool) -> list[tuple[Tensor, Tensor]]:
    """List the products that this party computes: e·(b + d) + a·d, d once, by P0.

    That is x·y = (e + a)·(d + b) less a·b, which the dealer shares (Beaver 1991). Where one party
    knows all of a or b, the other has nothing of it, and its products with it are left out.
    """
    a, b, e, d = x.mask_share, y.mask_share, x.opened, y.opened
    if b is None and is_first:
        return [(e if a is None else e + a, d)]
    left = [] if b is None else [(e, b + d if is_first else b)]
    return left if a is None else [*left, (a, d)]
