"""Shares and masked openings with the tags and keys that belong to them."""

from dataclasses import dataclass, field

from torch import Tensor

from tacit.mpc.protocols.checked.pending import Pending
from tacit.mpc.share import MaskedOpening, Share, View


@dataclass(frozen=True, eq=False, repr=False)
class TaggedShare(Share):
    """A share, and wide numbers (limbs, components, …): it, its tag and the key to the other one.

    Modulo 2^64 the first component is the share itself.
    """

    proof: Tensor | Pending

    @property
    def numbers(self) -> Tensor:
        """Return the wide numbers, computed in full."""
        return self.proof.full() if isinstance(self.proof, Pending) else self.proof

    __repr__ = Share.__repr__


@dataclass(frozen=True, eq=False, repr=False)
class TaggedOpening(MaskedOpening):
    """A masked opening, and its mask as wide numbers (limbs, components, …)."""

    numbers: Tensor = field(kw_only=True)

    __repr__ = MaskedOpening.__repr__

    def view(self, view: View, shape: tuple[int, ...]) -> "TaggedOpening":
        """Lay the same secret out differently."""
        plain = super().view(view, shape)
        limbs, components = self.numbers.shape[:2]
        flat = self.numbers.reshape(limbs * components, *self.numbers.shape[2:])
        numbers = flat.new_empty((len(flat), *shape))
        for at, one in enumerate(flat):
            numbers[at] = view(one)
        return TaggedOpening(
            plain.opened,
            plain.mask_share,
            plain.clear,
            plain.spec,
            numbers=numbers.view(limbs, components, *shape),
        )


def tagged(value: object) -> TaggedShare:
    """Narrow an operand to a share with tags; ops have seen to it that it has them."""
    assert isinstance(value, TaggedShare)  # noqa: S101 - inputs are entered, results are tagged
    return value
