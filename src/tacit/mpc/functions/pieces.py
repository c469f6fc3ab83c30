"""Piecewise polynomials that a caller gives: what they are in the clear, and how large."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite

import numpy as np
import torch
from torch import Tensor

from tacit.errors import InputError

Coefficients = tuple[float, ...]


@dataclass(frozen=True)
class Pieces:
    """A function made of polynomials: piece k holds from breakpoint k - 1 up to breakpoint k.

    Attributes:
        breaks: increasing; a breakpoint belongs to the piece above it.
        polynomials: one more than breakpoints; coefficients of x, lowest first.
    """

    breaks: tuple[float, ...]
    polynomials: tuple[Coefficients, ...]

    def __post_init__(self) -> None:
        if not self.breaks or len(self.polynomials) != len(self.breaks) + 1:
            raise InputError(
                f"wanted at least one breakpoint and one polynomial more than breakpoints, got "
                f"{len(self.breaks)} and {len(self.polynomials)}"
            )
        if any(low >= high for low, high in pairwise(self.breaks)):
            raise InputError(f"breakpoints must increase, got {self.breaks}")
        numbers = (*self.breaks, *(a for one in self.polynomials for a in one))
        if not all(isfinite(number) for number in numbers) or not all(self.polynomials):
            raise InputError("breakpoints and coefficients must be finite, with one at least")

    @property
    def degree(self) -> int:
        """Return the largest degree of a piece."""
        return max(len(one) for one in self.polynomials) - 1

    def intervals(self, bound: float) -> list[tuple[float, float]]:
        """Return where each piece holds, for arguments of at most that size; some may be empty."""
        edges = [-bound, *(min(max(edge, -bound), bound) for edge in self.breaks), bound]
        return list(pairwise(edges))

    def largest(self, bound: float) -> float:
        """Return how large a value can be, given how large the argument can be."""
        reach = bound + 2.0**-8  # a breakpoint may be rounded towards the argument
        starts, ends = (-inf, *self.breaks), (*self.breaks, inf)
        parts = zip(self.polynomials, self.intervals(bound), starts, ends, strict=True)
        return max(
            largest_on(one, low, high)
            for one, (low, high), start, end in parts
            if start <= reach and end >= -reach
        )

    def plain(self, x: Tensor) -> Tensor:
        """Evaluate in the clear."""
        at = torch.bucketize(x, torch.tensor(self.breaks, dtype=x.dtype), right=True)
        result = torch.zeros_like(x)
        for number, coefficients in enumerate(self.polynomials):
            value = torch.zeros_like(x)
            for a in reversed(coefficients):
                value = value * x + a
            result = torch.where(at == number, value, result)
        return result


def pieces_of(breaks: Sequence[float], polynomials: Sequence[Sequence[float]]) -> Pieces:
    """Make pieces from what a caller wrote."""
    return Pieces(
        tuple(float(edge) for edge in breaks),
        tuple(tuple(float(a) for a in one) for one in polynomials),
    )


def largest_on(coefficients: Coefficients, low: float, high: float) -> float:
    """Return the largest |value| of a polynomial on an interval: at its ends or where it turns."""
    polynomial = np.polynomial.Polynomial(coefficients)
    turns = polynomial.deriv().roots() if len(coefficients) > 2 else np.array([])
    inside = [float(t.real) for t in turns if abs(t.imag) < 1e-9 and low < t.real < high]
    return max(abs(float(polynomial(x))) for x in (low, high, *inside))
