"""Gaussian masks that two parties draw alike, on public grids."""

import math

import torch
from torch import Tensor

from tacit.llm.permuted.prf_stream import PrfStream

_GRID_BITS = 50
"""Bits of a grid below the spread of a mask; a mask of up to 8 spreads fits a double with them."""
_LOW_BITS = 26
"""Of those, the bits that are uniform: normal numbers leave gaps in so fine a grid."""


class Noise:
    """Draw normal numbers under labels; both owners of a prf draw the same.

    Guarantee: no guarantee about what is hidden: a sum with Gaussian noise is not independent of
    what the noise was added to. Draws under different labels are independent.
    """

    def __init__(self, prf: PrfStream) -> None:
        self.prf = prf

    def draw(self, label: str, shape: tuple[int, ...], spread: float) -> Tensor:
        """Draw doubles with a standard deviation, on the grid of that spread."""
        step = grid_step(spread)
        coarse = normal(self.prf.words(label, *shape)) * (spread / step) * 2.0**-_LOW_BITS
        low = self.prf.words(f"{label} low", *shape) >> (64 - _LOW_BITS)
        return (coarse.round() * 2.0**_LOW_BITS + low.double()) * step


def grid_step(spread: float) -> float:
    """Return the power of two between the numbers that are sent under masks of a spread."""
    return 2.0 ** (math.frexp(spread)[1] - _GRID_BITS)


def to_grid(values: Tensor, spread: float) -> Tensor:
    """Round what is sent: its last bits would tell a sum from a mask alone."""
    step = grid_step(spread)
    return (values.double() / step).round() * step


def normal(words: Tensor) -> Tensor:
    """Turn uniform words into normal numbers, all of them finite."""
    # One bit is the sign; the others are a chance between 0 and 1/2, finest where it is rare.
    chance = (((words >> 1) & (2**63 - 1)).double() + 0.5) * 2.0**-64
    size: Tensor = torch.special.ndtri(chance)
    return torch.where((words & 1).bool(), size, -size)
