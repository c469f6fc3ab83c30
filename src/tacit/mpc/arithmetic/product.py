"""Products of two secrets opened under masks, with the product of the masks from the dealer."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit import ring
from tacit.errors import InputError
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.material.randomness import OpeningTriple, Parts
from tacit.mpc.products import Hadamard, Product
from tacit.mpc.share import AnyShare, AnySpec, MaskedOpening, OpeningSpec, Share, Spec, words_of


@dataclass(frozen=True)
class Multiply:
    """Multiply two secrets opened under masks: element-wise, as matrices or by convolution.

    With e = x - a and d = y - b public, x·y = e·d + e·b + a·d + a·b, and the dealer has shared
    the last (Beaver 1991). Where y is a party's own, that party takes (e + a_mine)·y at once and
    the other a_other·d; the dealer shares a_other·b.

    Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes.
    """

    product: Product
    bound: float | None = None
    """What the result is known to be at most, if that is less than its operands say."""

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out and what is needed."""
        x, y = (_opening_spec(spec) for spec in operands)
        out = self._out(x, y)
        triple = OpeningTriple(self.product, x.mask, y.mask, out.shape, (x.rescaled, y.rescaled))
        return Declaration(out=out, needs=(triple,))

    def _out(self, x: OpeningSpec, y: OpeningSpec) -> Spec:
        if (x.rescaled or y.rescaled) and not isinstance(self.product, Hadamard):
            raise InputError(
                "what was rescaled while it was opened is multiplied element-wise only"
            )
        if (x.rescaled and y.mask.holder) or (y.rescaled and x.mask.holder):
            raise InputError("what is rescaled is not multiplied with a party's own input")
        frac_bits = x.frac_bits + y.frac_bits
        largest = self.product.terms(x.shape, y.shape) * x.largest * y.largest
        if self.bound is not None:
            largest = min(largest, words_of(self.bound, frac_bits))
        return Spec(
            shape=self.product.shape(x.shape, y.shape),
            frac_bits=frac_bits,
            largest=largest,
            ring_bits=min(x.ring_bits, y.ring_bits),
        )

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Combine what is open with my part of the masks."""
        x, y = (_opening(operand) for operand in operands)
        ((c,),) = material
        c = _chosen(c, x, y)
        if y.factor is not None:
            left = _left_of_weight(x, y, is_first=channel.is_first)
            terms = [] if left is None else [ring.matmul(left, y.factor)]
        else:
            terms = [
                self.product.multiply(left, right)
                for left, right in _pairs(x, y, is_first=channel.is_first)
            ]
        for term in terms:
            c = term.add_(c)
        return Share(c, self._out(x.spec, y.spec))


def _chosen(c: Tensor, x: MaskedOpening, y: MaskedOpening) -> Tensor:
    """Take the product of the masks' readings that hold, element by element."""
    if x.top is None and y.top is None:
        return c
    if x.top is None or y.top is None or x.spec.mask == y.spec.mask:
        top = y.top if x.top is None else x.top
        assert top is not None  # noqa: S101 - one of them is rescaled
        return torch.where(top, c[1], c[0])
    return torch.where(x.top, torch.where(y.top, c[3], c[2]), torch.where(y.top, c[1], c[0]))


def _pairs(x: MaskedOpening, y: MaskedOpening, *, is_first: bool) -> list[tuple[Tensor, Tensor]]:
    """List the products that this party computes."""
    if y.spec.mask.holder is not None:
        if y.clear is not None:
            return [(_with_mask(x), y.clear)]
        if x.clear is not None and x.mask_share is None:
            raise InputError("a weight that is kept stands on the right of products")
        return [] if x.mask_share is None else [(x.mask_share, y.opened)]
    if x.spec.mask.holder is not None:
        if x.clear is not None:
            return [(x.clear, _with_mask(y))]
        return [] if y.mask_share is None else [(x.opened, y.mask_share)]
    a, b = x.mask_share, y.mask_share
    assert a is not None and b is not None  # noqa: S101, PT018 - nobody is the holder
    # e·(b + d) + a·d: e·d enters once, with P0.
    return [(x.opened, b + y.opened if is_first else b), (a, y.opened)]


def _left_of_weight(x: MaskedOpening, y: MaskedOpening, *, is_first: bool) -> Tensor | None:
    """Say what stands on the left of a weight that is prepared: at its owner, x less its mask."""
    is_mine = y.spec.mask.holder == ("first" if is_first else "second")
    return _with_mask(x) if is_mine else x.mask_share


def _with_mask(value: MaskedOpening) -> Tensor:
    return value.opened if value.mask_share is None else value.opened + value.mask_share


def _opening_spec(spec: AnySpec) -> OpeningSpec:
    if not isinstance(spec, OpeningSpec):
        raise InputError(f"multiplying wants masked openings, got {type(spec).__name__}")
    return spec


def _opening(share: AnyShare) -> MaskedOpening:
    assert isinstance(share, MaskedOpening)  # noqa: S101 - `declare` has refused everything else
    return share
