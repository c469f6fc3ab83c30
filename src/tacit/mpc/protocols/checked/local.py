"""What each party does on its own shares, done to tags and keys as well.

A kernel of `arithmetic` that sends nothing and needs nothing from the dealer is a linear function
of shares with whole coefficients, plus public numbers that P0 adds. So it can be applied, as it is
written, to every limb of a wide number; and once more to zeros, as P0, it gives what P0 adds.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.mpc.arithmetic.local import Add
from tacit.mpc.contract import Channel, Declaration, Kernel, Roles
from tacit.mpc.material.randomness import Parts
from tacit.mpc.protocols.checked import wide
from tacit.mpc.protocols.checked.pending import Pending, TaggedShare
from tacit.mpc.protocols.checked.proofs import proofs_of
from tacit.mpc.protocols.checked.tags import add_public
from tacit.mpc.share import AnyShare, AnySpec, Share, Spec


@dataclass(frozen=True)
class TaggedLocal:
    """A local kernel that carries tags along.

    Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes; about 25 times the work of the kernel.
    """

    kernel: Kernel

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out, as the kernel does."""
        declared = self.kernel.declare(roles, *operands)
        if declared.needs or declared.rounds or declared.offline:
            raise InputError(
                f"{type(self.kernel).__name__} sends messages that 'checked' has no tags for; use "
                "protocol 'sealed', which assumes that all parties follow it"
            )
        return declared

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Do it to my share, to its tag and to the key."""
        out = self._apply(channel, [_words(one) for one in operands], operands)
        tagged = [one for one in operands if isinstance(one, TaggedShare)]
        later = self._pending(out.spec, tagged)
        numbers = wide.map_linear(
            lambda *limbs: self._apply(_Role(channel, False), limbs, operands).words,
            [one.proof.dense if one is later else one.numbers for one in tagged],  # type: ignore[union-attr]
            largest=_coefficients(out.spec, [one.spec for one in operands]),
        )
        zeros = [torch.zeros_like(one.words) for one in tagged]
        added = self._apply(_Role(channel, True), zeros, operands).words
        if bool(added.any()):
            numbers = add_public(numbers, added, proofs_of(channel).keys)
        if later is not None and isinstance(later.proof, Pending):
            return TaggedShare(out.words, out.spec, replace(later.proof, dense=numbers))
        return TaggedShare(out.words, out.spec, numbers)

    def _pending(self, out: Spec, operands: list[TaggedShare]) -> TaggedShare | None:
        """Find a product that is only added to, such as one that gets a bias: it can wait."""
        if not isinstance(self.kernel, Add):
            return None
        for one in operands[: 1 if self.kernel.sign < 0 else None]:
            facts = one.spec.shape, one.spec.frac_bits
            if isinstance(one.proof, Pending) and facts == (out.shape, out.frac_bits):
                return one
        return None

    def _apply(self, channel: Any, words: Any, operands: tuple[AnyShare, ...]) -> Share:
        """Run the kernel on other words in place of those that have tags."""
        given = iter(words)
        changed = [
            Share(next(given), one.spec) if isinstance(one, TaggedShare) else one
            for one in operands
        ]
        out = self.kernel.run(channel, (), *changed)
        assert isinstance(out, Share)  # noqa: S101 - there are no secret bits here
        return out


class _Role:
    """My channel, as the party that adds public numbers, or as the one that does not."""

    def __init__(self, channel: Channel, is_first: bool) -> None:
        self._channel = channel
        self.is_first = is_first

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)


def _words(operand: AnyShare) -> Tensor:
    assert isinstance(operand, Share)  # noqa: S101
    return operand.words


def _coefficients(out: Spec, operands: list[AnySpec]) -> int:
    """Bound the sum of the coefficients of a result, by how large it can become."""
    # Coefficients that add up to C make C·largest of an operand, so C is at most the quotient of
    # the two bounds. Too small a number would let limbs overflow, and accuse an honest party.
    # A sum may state a smaller bound than its parts have; it has no more terms than elements.
    known = [one for one in operands if isinstance(one, Spec)]
    terms = [one.elements if out.elements < one.elements else 1 for one in known]
    return sum(
        out.largest // max(1, one.largest) + count + 1
        for one, count in zip(known, terms, strict=True)
    )
