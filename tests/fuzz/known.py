"""What is known of a value of a program: its number in double precision, and how far off it may be.

An error is stated where a function's page states it (docs/reference/functions.md), and is carried
through what comes after it by how steep that is. Infinity says that nothing is promised.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

POLE = 2.0**-8  # functions with a pole want arguments from here on
NOWHERE = math.inf


@dataclass(frozen=True)
class Known:
    """Numbers, the largest error of each, and the bound that the plan has for all of them."""

    v: Tensor
    e: Tensor
    bound: float = math.inf

    @classmethod
    def exact(cls, v: Tensor) -> "Known":
        """Make numbers that a private value equals."""
        return cls(v, torch.zeros_like(v))

    @property
    def worst(self) -> float:
        """Return the largest error of any."""
        return float(self.e.max()) if self.e.numel() else 0.0

    def moved(self, how: Callable[[Tensor], Tensor]) -> "Known":
        """Move numbers and their errors alike."""
        return Known(how(self.v), how(self.e))

    def rows_e(self, dim: int = -1) -> Tensor:
        """Return the largest error along a dimension, for each number of it."""
        return self.e.amax(dim, keepdim=True).expand_as(self.e) if self.e.numel() else self.e


def clean(e: Tensor) -> Tensor:
    """Replace what is no number, as 0 times infinity, by infinity."""
    return torch.nan_to_num(e, nan=NOWHERE, posinf=NOWHERE)


def product(x: Known, y: Known, combine: Callable[[Tensor, Tensor], Tensor], slip: float) -> Known:
    """Combine two values by anything that is linear in each, and round the result."""
    off = combine(x.v.abs(), y.e) + combine(x.e, y.v.abs()) + combine(x.e, y.e)
    return Known(combine(x.v, y.v), clean(off) + slip)


def smooth(x: Known, f: Callable[[Tensor], Tensor], slope: float, stated: float) -> Known:
    """Apply a curve that is nowhere steeper than a slope."""
    return Known(f(x.v), slope * x.e + stated)


def above_pole(
    x: Known,
    f: Callable[[Tensor], Tensor],
    slope: Callable[[Tensor], Tensor],
    stated: Callable[[Tensor], Tensor],
) -> Known:
    """Apply a curve with a pole: nothing is said below 2^-8, and its slope falls from there."""
    low = (x.v - x.e).clamp(min=POLE)
    value = f(x.v.clamp(min=POLE))
    off = slope(low) * x.e + stated(value)
    return Known(value, torch.where(x.v - x.e >= POLE, off, NOWHERE))


def step(x: Known, f: Callable[[Tensor], Tensor], edges: tuple[float, ...], jump: float) -> Known:
    """Apply a step function: certain, but where an argument may lie on both sides of an edge."""
    unsure = torch.zeros_like(x.v, dtype=torch.bool)
    for edge in edges:
        unsure |= ((x.v - edge).abs() <= x.e) & (x.e > 0)
    return Known(f(x.v), torch.where(unsure, jump, 0.0).double())


def best(x: Known, dim: int) -> tuple[Tensor, Tensor]:
    """Return the position of the largest number, and whether it is certain."""
    top = x.v.topk(min(2, x.v.shape[dim]), dim).values
    at = x.v.argmax(dim)
    if x.v.shape[dim] < 2:
        return at, torch.ones_like(at, dtype=torch.bool)
    gap = top.select(dim, 0) - top.select(dim, 1)
    return at, gap > 2 * x.e.amax(dim)
