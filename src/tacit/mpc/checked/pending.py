"""Products of matrices whose tags are never computed in full (after Freivalds 1977).

The tags of a product e·b take a product of wide numbers, many times as long as the product itself.
But a product is opened, and a check of an opened matrix U wants no more than P·U·Q for random bits
P and Q: then (P·e)·(b·Q) is enough, which takes products with 42 rows and columns.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.mpc.checked import wide
from tacit.mpc.products import MatMul

SIDE = 42
"""How many rows and columns of bits: of a matrix that is not 0, all are blind with chance 2^-42."""
_DIGIT = 27  # bits times 2^26 such digits are added up exactly by a double
_LEAST_SIDE = 64
_LEAST_WORK = 1 << 18


@dataclass(frozen=True, eq=False, repr=False)
class Term:
    """A product of a public matrix of words with one of wide numbers (limbs, components, …)."""

    public: Tensor
    numbers: Tensor
    is_public_left: bool

    def full(self) -> Tensor:
        """Multiply."""
        multiply = MatMul().multiply
        terms = self.public.shape[-1 if self.is_public_left else -2]
        if self.is_public_left:
            return wide.map_bilinear(multiply, self.public, self.numbers, terms=terms)
        return wide.map_bilinear(
            lambda d, a: multiply(a, d), self.public, self.numbers, terms=terms
        )

    def projected(self, rows: Tensor | None, columns: Tensor | None, part: slice) -> Tensor:
        """Return P·(left·right)·Q of some components."""
        numbers, public = self.numbers[:, part], wide.split(self.public)[:, None]
        left, right = (public, numbers) if self.is_public_left else (numbers, public)
        return wide.multiply_wide(_left(rows, left), _right(right, columns))


@dataclass(frozen=True, eq=False, repr=False)
class Pending:
    """A matrix of wide numbers (limbs, components, …) plus products that are not computed yet."""

    dense: Tensor
    terms: tuple[Term, ...]

    def full(self) -> Tensor:
        """Compute all of it."""
        total = self.dense
        for term in self.terms:
            total = total + term.full()
        return wide.carry(total)

    def change(self, work: Callable[[Tensor], Tensor]) -> "Pending":
        """Change the computed part."""
        return replace(self, dense=work(self.dense))

    def projected(self, rows: Tensor | None, columns: Tensor | None, part: slice) -> Tensor:
        """Return P·U·Q of some components, (limbs, components, …)."""
        total = project(self.dense[:, part], rows, columns)
        for term in self.terms:
            total = total + term.projected(rows, columns, part)
        return wide.carry(total)


def project(numbers: Tensor, rows: Tensor | None, columns: Tensor | None) -> Tensor:
    """Return P·U·Q of matrices of wide numbers."""
    return _right(_left(rows, numbers), columns)


def _left(rows: Tensor | None, numbers: Tensor) -> Tensor:
    if rows is None:
        return numbers
    parts = wide.digits(numbers, _DIGIT).to(torch.float64)
    return wide.joined(torch.matmul(rows, parts).to(torch.int64), _DIGIT)


def _right(numbers: Tensor, columns: Tensor | None) -> Tensor:
    if columns is None:
        return numbers
    parts = wide.digits(numbers, _DIGIT).to(torch.float64)
    return wide.joined(torch.matmul(parts, columns).to(torch.int64), _DIGIT)


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
