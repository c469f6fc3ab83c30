"""Secrets have a type: one party's share of a number, or a bit, and the public facts about it."""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import ceil, inf, isfinite, nextafter, prod
from typing import Literal, NoReturn

from torch import Tensor

from tacit.errors import RangeError
from tacit.ring import Factor

WORD_BITS = 64
SPARE_BITS = 2
"""A value leaves this many bits of its ring free, so that the top bit of its sum with half of the
rest is known."""
HEADROOM_BITS = WORD_BITS - SPARE_BITS
"""A product may use this many bits of the word: below 2^62 `arithmetic.truncation` is exact."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What everyone may know about a secret tensor: shape, precision and how large it can be.

    ``largest`` is the largest |word| that can occur, with every rounding counted in. It starts
    as a promise of the owner of an input (checked when the input is encoded) and is carried
    through every operation as an integer, so that a result that could wrap around the ring is
    refused when the job is planned instead of being wrong when it runs.

    ``deferred`` names a function that the receiver applies after opening. Only a strictly
    increasing function may wait like this: whoever gets its value can compute the argument, so
    opening the argument reveals nothing more.

    ``ring_bits`` says modulo which power of two the shares add up to the value: what a party drops
    at the low end of its share is lost at the high end, unless a message puts it right. Few kernels
    read such values, see `tacit.mpc.arithmetic.rescaled`.
    """

    shape: tuple[int, ...]
    frac_bits: int
    largest: int
    deferred: str | None = None
    ring_bits: int = WORD_BITS

    def __post_init__(self) -> None:
        most = self.ring_bits - SPARE_BITS
        if self.largest >= 1 << most:
            raise RangeError(
                f"values up to ±{self.bound:.6g} with {self.frac_bits} fraction bits need more "
                f"than {most} bits; lower frac_bits or the bounds of the inputs"
            )

    @classmethod
    def of(cls, *, shape: tuple[int, ...], frac_bits: int, bound: float) -> "Spec":
        """Describe real numbers of at most ``bound`` in size."""
        return cls(shape=shape, frac_bits=frac_bits, largest=words_of(bound, frac_bits))

    @cached_property
    def bound(self) -> float:
        """Return the largest size as a real number, rounded up."""
        return _rounded_up(self.largest, self.frac_bits)

    @cached_property
    def elements(self) -> int:
        """Return the number of values."""
        return prod(self.shape)

    def truncated(self, frac_bits: int) -> "Spec":
        """Describe a value after its truncation, which is less than one unit off."""
        bits = self.frac_bits - frac_bits
        return replace(self, frac_bits=frac_bits, largest=(self.largest >> bits) + 1)


@dataclass(frozen=True, kw_only=True)
class BitSpec:
    """What everyone may know about a tensor of secret bits: its shape."""

    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Return the number of bits."""
        return prod(self.shape)

    @property
    def words(self) -> int:
        """Return how many 64-bit words hold the bits."""
        return (self.elements + 63) // 64


Party = Literal["first", "second"]
"""One of the two computing parties, by its role."""


@dataclass(frozen=True)
class Swap:
    """Two dimensions swapped."""

    first: int
    second: int

    def __call__(self, words: Tensor) -> Tensor:
        """Swap them."""
        return words.transpose(self.first, self.second)


@dataclass(frozen=True)
class Fold:
    """The same elements in another shape."""

    shape: tuple[int, ...]

    def __call__(self, words: Tensor) -> Tensor:
        """Give them that shape."""
        return words.reshape(self.shape)


View = Swap | Fold


@dataclass(frozen=True, kw_only=True)
class Mask:
    """A mask that the dealer can draw again: where it was first drawn, and how it lies now.

    ``holder`` is the party that knows all of it, or None if both have a uniform share. ``run`` is
    the run of the session in which it was drawn; None is this one. If ``behind`` names a growing
    tensor, then along ``dim`` kept entries lie in front of what is drawn, and zeros behind it, up
    to ``length``; how many are kept is told for every run by `OpeningCache.place`.
    """

    step: int
    place: int
    shape: tuple[int, ...]
    holder: Party | None
    views: tuple[View, ...] = ()
    run: int | None = None
    behind: str = ""
    length: int = 0
    dim: int = 0
    is_weight: bool = False
    """Whether it masks a weight, which stands on the right of products and nowhere else."""


@dataclass(frozen=True, kw_only=True)
class OpeningSpec:
    """What everyone may know about a secret whose masked value has been opened.

    Products of it are right modulo 2^ring_bits. ``rescaled``, if any, is the ring of the masked
    number and how many of its low bits were dropped after it was opened: its mask then has two
    readings, and which of them holds is public.
    """

    shape: tuple[int, ...]
    frac_bits: int
    largest: int
    mask: Mask
    ring_bits: int = WORD_BITS
    rescaled: tuple[int, int] | None = None

    @property
    def elements(self) -> int:
        """Return the number of values."""
        return prod(self.shape)

    @property
    def bound(self) -> float:
        """Return the largest size as a real number, rounded up."""
        return _rounded_up(self.largest, self.frac_bits)

    def grown(self, name: str, *, length: int, dim: int) -> "OpeningSpec":
        """Describe a growing secret of which these are the newest entries."""
        shape = list(self.shape)
        shape[dim] = length
        mask = replace(self.mask, behind=name, length=length, dim=dim)
        return replace(self, shape=tuple(shape), mask=mask)

    def view(self, view: View, shape: tuple[int, ...]) -> "OpeningSpec":
        """Describe the same secret in another layout."""
        mask = replace(self.mask, views=(*self.mask.views, view))
        return replace(self, shape=shape, mask=mask)


def _rounded_up(word: int, frac_bits: int) -> float:
    exact = Fraction(word, 1 << frac_bits)
    near = float(exact)
    return near if Fraction(near) >= exact else nextafter(near, inf)


def words_of(bound: float, frac_bits: int) -> int:
    """Return the largest |word| that a real number of at most ``bound`` is rounded to."""
    if not isfinite(bound):
        raise RangeError(f"a bound must be a number, got {bound}; lower frac_bits or scale")
    if frac_bits < 0:
        raise RangeError(f"values up to ±{bound:g} leave no room for units; scale them")
    return ceil(Fraction(bound) * (1 << frac_bits))


class _Secret:
    """Refuse everything by which a secret could slip into plain arithmetic."""

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(f"{self!r} is one share of a secret; open it with ops.open(to=…, why=…)")

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self!r} has no truth value: a branch on a secret would reveal it")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __array__
    __matmul__ = __rmatmul__ = __truediv__ = __float__ = __int__ = __len__ = __array__
    __iter__ = __getitem__ = __array__
    __torch_function__ = classmethod(lambda cls, *_: _refuse(cls))


def _refuse(kind: type) -> NoReturn:
    raise TypeError(f"a {kind.__name__} cannot be used as a torch tensor; use the ops of a session")


@dataclass(frozen=True, eq=False, repr=False)
class Share(_Secret):
    """One party's additive share of a fixed-point tensor modulo 2^64.

    Guarantee: a single share is uniform and says nothing about the value.
    """

    words: Tensor
    spec: Spec

    def __repr__(self) -> str:
        return f"Share(shape={self.spec.shape}, frac_bits={self.spec.frac_bits})"


@dataclass(frozen=True, eq=False, repr=False)
class BitShare(_Secret):
    """One party's XOR share of a tensor of bits, packed 64 to a word (1-D)."""

    words: Tensor
    spec: BitSpec

    def __repr__(self) -> str:
        return f"BitShare(shape={self.spec.shape})"


@dataclass(frozen=True, eq=False, repr=False)
class MaskedOpening(_Secret):
    """A secret x as x - a, which is public, and what this party has of the mask a.

    Attributes:
        opened: x - a.
        mask_share: my share of a, or all of it if I am its holder; None if I have nothing of it.
        clear: x itself, if I am the holder of a, whose own input x is.
        spec: the public facts.
        top: of a rescaled opening, where the unsigned reading of the mask holds; public.
        factor: of a weight on an accelerator, what I multiply with, prepared for it; ``opened`` is
            then empty.

    Guarantee: a is uniform and masks x alone, so x - a says nothing about x, however often it is
    used; see `tacit.mpc.arithmetic.opening`.
    """

    opened: Tensor
    mask_share: Tensor | None
    clear: Tensor | None
    spec: OpeningSpec
    top: Tensor | None = None
    factor: Factor | None = None

    def __repr__(self) -> str:
        return f"MaskedOpening(shape={self.spec.shape}, frac_bits={self.spec.frac_bits})"

    def view(self, view: View, shape: tuple[int, ...]) -> "MaskedOpening":
        """Lay the same secret out differently."""
        mask, clear, top = (
            None if one is None else view(one) for one in (self.mask_share, self.clear, self.top)
        )
        return MaskedOpening(view(self.opened), mask, clear, self.spec.view(view, shape), top)


SharePair = tuple[Tensor | None, Tensor | None]
"""The first and the second party's part of a mask, as the dealer draws them again."""

AnySpec = Spec | BitSpec | OpeningSpec
AnyShare = Share | BitShare | MaskedOpening
