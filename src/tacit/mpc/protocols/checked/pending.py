"""Shares with tags, and products whose tags are never computed in full (after Freivalds 1977).

The tags of a product e·b take a product of wide numbers, many times as long as the product itself.
But a product is opened, and a check of an opened matrix U wants no more than P·U·Q for random bits
P and Q: then (P·e)·(b·Q) is enough, which takes products with 42 rows and columns. What is public
in it is taken modulo 2^64: the result is another number, alike for both, with the same low word.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from torch import Tensor

from tacit import ring
from tacit.mpc.products import MatMul
from tacit.mpc.protocols.checked import wide
from tacit.mpc.protocols.checked.tags import TagKeys, add_public
from tacit.mpc.share import MaskedOpening, Share, View

SIDE = 42
"""How many rows and columns of bits: of a matrix that is not 0, all are blind with chance 2^-42."""
_LEAST_SIDE = 64  # 42 sums of fewer rows than this save nothing
_LEAST_THIN = 10  # of so few rows the product takes less than projecting the other matrix
_LEAST_WORK = 1 << 18  # of smaller products the calls take longer than the arithmetic


@dataclass(frozen=True, eq=False, repr=False)
class PendingProduct:
    """A product of a public matrix of words with one of wide numbers (limbs, components, …)."""

    public: Tensor
    numbers: Tensor
    is_public_left: bool

    def full(self) -> Tensor:
        """Multiply."""
        return wide.matmul(self.public, self.numbers, is_public_left=self.is_public_left)

    def projected(self, rows: Tensor | None, columns: Tensor | None, part: slice) -> Tensor:
        """Return P·(left·right)·Q of some components."""
        numbers, public, is_left = self.numbers[:, part], self.public, self.is_public_left
        thin = public.shape[-2] if is_left else public.shape[-1]
        if thin < _LEAST_THIN:  # then the product itself is less work than a projection of numbers
            product = wide.matmul(public, numbers, is_public_left=is_left)
            return project(product, rows, columns)
        if is_left:
            public, numbers = _rows_of(rows, public), project(numbers, None, columns)
        else:
            public, numbers = _columns_of(public, columns), project(numbers, rows, None)
        return wide.matmul(public, numbers, is_public_left=is_left)


@dataclass(frozen=True, eq=False, repr=False)
class Pending:
    """A matrix of wide numbers (limbs, components, …) plus products that are not computed yet.

    Of two public matrices, ``known``, the product is added as what is public.
    """

    dense: Tensor
    terms: tuple[PendingProduct, ...]
    known: tuple[Tensor, Tensor]
    keys: TagKeys

    def full(self) -> Tensor:
        """Compute all of it."""
        total = self.dense.clone()
        for term in self.terms:
            total += term.full()
        return add_public(wide.carry(total), MatMul().multiply(*self.known), self.keys)

    def change(self, work: Callable[[Tensor], Tensor]) -> "Pending":
        """Change the computed part."""
        return replace(self, dense=work(self.dense))

    def projected(self, rows: Tensor | None, columns: Tensor | None, part: slice) -> Tensor:
        """Return P·U·Q of some components, (limbs, components, …)."""
        total = project(self.dense[:, part], rows, columns)
        for term in self.terms:
            total = total + term.projected(rows, columns, part)
        left, right = self.known
        public = ring.matmul(_rows_of(rows, left), _columns_of(right, columns))
        return add_public(wide.carry(total), public, self.keys, part)


def project(numbers: Tensor, rows: Tensor | None, columns: Tensor | None) -> Tensor:
    """Return P·U·Q of matrices of wide numbers."""
    numbers = numbers if rows is None else wide.add_rows(rows, numbers)
    return numbers if columns is None else wide.add_columns(numbers, columns)


def project_words(words: Tensor, rows: Tensor | None, columns: Tensor | None) -> Tensor:
    """Return P·U·Q of matrices of words, modulo 2^64."""
    return _columns_of(_rows_of(rows, words), columns)


def _rows_of(rows: Tensor | None, words: Tensor) -> Tensor:
    return words if rows is None else ring.matmul(rows, words)


def _columns_of(words: Tensor, columns: Tensor | None) -> Tensor:
    return words if columns is None else ring.matmul(words, columns)


def is_worth_it(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    """Tell whether a product of matrices is so large that it is better projected."""
    if len(left) < 2 or len(right) < 2:
        return False
    height, inner, width = left[-2], left[-1], right[-1]
    is_large = height * inner * width >= _LEAST_WORK
    return is_large and (height >= _LEAST_SIDE or width >= _LEAST_SIDE)


def sides(shape: tuple[int, ...]) -> tuple[bool, bool]:
    """Tell which sides of a matrix are projected: those that are long enough."""
    return shape[-2] >= _LEAST_SIDE, shape[-1] >= _LEAST_SIDE


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
