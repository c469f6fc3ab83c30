"""What a circuit is made of: values that are affine in vectors, and products of such values."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Affine:
    """Values that are affine in vectors: by vector, a matrix with a row for every value.

    Vector 0 is the input; the others are the products of a circuit, in order.
    """

    shape: tuple[int, ...]
    parts: Mapping[int, Any]  # scipy's sparse matrices have no types
    offset: Floats

    @property
    def size(self) -> int:
        """Return how many values there are."""
        return prod(self.shape)

    def picked(self, places: Places) -> "Affine":
        """Return the values at some places, in their shape; -1 is for zero."""
        at = places.reshape(-1)
        keeps = sparse().csr_matrix(
            (np.ones((at >= 0).sum()), (np.flatnonzero(at >= 0), at[at >= 0])),
            shape=(at.size, self.size),
        )
        return self.mapped(keeps, places.shape)

    def mapped(self, matrix: Any, shape: tuple[int, ...]) -> "Affine":
        """Apply a matrix to the values."""
        parts = {name: sparse().csr_matrix(matrix @ part) for name, part in self.parts.items()}
        return Affine(shape, parts, np.asarray(matrix @ self.offset))

    def plus(self, other: "Affine") -> "Affine":
        """Add values of one shape."""
        parts = dict(self.parts)
        for name, part in other.parts.items():
            parts[name] = parts[name] + part if name in parts else part
        return Affine(self.shape, parts, self.offset + other.offset)


@dataclass(frozen=True, eq=False)
class Product:
    """A vector that a circuit makes: two affine values multiplied, one by one."""

    left: Affine
    right: Affine

    @property
    def is_square(self) -> bool:
        """Tell whether both are the same."""
        return self.left is self.right


@dataclass(frozen=True, eq=False)
class Circuit:
    """A traced model of one row."""

    inputs: int
    products: tuple[Product, ...]
    out: Affine

    @property
    def depth(self) -> int:
        """Return how many products follow each other."""
        depths = [0]
        for one in self.products:
            below = (*one.left.parts, *one.right.parts)
            depths.append(1 + max((depths[at] for at in below), default=0))
        return max((depths[at] for at in self.out.parts), default=0)

    @property
    def values(self) -> tuple[Affine, ...]:
        """Return every affine value that is computed, in order, the output last."""
        found: list[Affine] = []
        for one in self.products:
            found += [one.left] if one.is_square else [one.left, one.right]
        return (*found, self.out)


def sparse() -> Any:  # it has no types
    """Return scipy's sparse matrices; they take a while to import."""
    from scipy import sparse as found

    return found
