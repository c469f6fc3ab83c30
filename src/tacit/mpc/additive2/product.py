"""Products of two secrets opened under masks, with the product of the masks from the dealer."""

from dataclasses import dataclass

from torch import Tensor

from tacit.errors import InputError
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.products import Product
from tacit.mpc.randomness import OpeningTriple, Parts
from tacit.mpc.share import AnyShare, AnySpec, MaskedOpening, OpeningSpec, Share, Spec


@dataclass(frozen=True)
class Multiply:
    """Multiply two secrets opened under masks: element-wise, as matrices or by convolution.

    With e = x - a and d = y - b public, x·y = e·d + e·b + a·d + a·b, and the dealer has shared
    the last. Where y is a party's own, that party takes (e + a_mine)·y at once and the other
    a_other·d; the dealer shares a_other·b.

    Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes.
    """

    product: Product

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out and what is needed."""
        x, y = (_opening_spec(spec) for spec in operands)
        out = self._out(x, y)
        triple = OpeningTriple(self.product, x.mask, y.mask, out.shape)
        return Declaration(out=out, needs=(triple,))

    def _out(self, x: OpeningSpec, y: OpeningSpec) -> Spec:
        terms = self.product.terms(x.shape, y.shape)
        return Spec(
            shape=self.product.shape(x.shape, y.shape),
            frac_bits=x.frac_bits + y.frac_bits,
            largest=terms * x.largest * y.largest,
        )

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Combine what is open with my part of the masks."""
        x, y = (_opening(operand) for operand in operands)
        ((c,),) = material
        terms = [
            self.product.multiply(left, right)
            for left, right in _pairs(x, y, is_first=channel.is_first)
        ]
        for term in terms:
            c = term.add_(c)
        return Share(c, self._out(x.spec, y.spec))


def _pairs(x: MaskedOpening, y: MaskedOpening, *, is_first: bool) -> list[tuple[Tensor, Tensor]]:
    """List the products that this party computes."""
    if y.spec.mask.holder is not None:
        if y.clear is not None:
            return [(_with_mask(x), y.clear)]
        return [] if x.mask_share is None else [(x.mask_share, y.opened)]
    if x.spec.mask.holder is not None:
        if x.clear is not None:
            return [(x.clear, _with_mask(y))]
        return [] if y.mask_share is None else [(x.opened, y.mask_share)]
    a, b = x.mask_share, y.mask_share
    assert a is not None and b is not None  # noqa: S101, PT018 - nobody is the holder
    return [(x.opened, b + y.opened if is_first else b), (a, y.opened)]


def _with_mask(value: MaskedOpening) -> Tensor:
    return value.opened if value.mask_share is None else value.opened + value.mask_share


def _opening_spec(spec: AnySpec) -> OpeningSpec:
    if not isinstance(spec, OpeningSpec):
        raise InputError(f"multiplying wants masked openings, got {type(spec).__name__}")
    return spec


def _opening(share: AnyShare) -> MaskedOpening:
    assert isinstance(share, MaskedOpening)  # noqa: S101 - `declare` has refused everything else
    return share
