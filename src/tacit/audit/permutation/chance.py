"""Draws for simulations and attacks: repeatable, never secret."""

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]


def normal(shape: tuple[int, ...], generator: torch.Generator) -> Floats:
    """Draw standard normal numbers."""
    found: Floats = torch.empty(shape, dtype=torch.float64).normal_(generator=generator).numpy()
    return found


def uniform(shape: tuple[int, ...], generator: torch.Generator) -> Floats:
    """Draw numbers between 0 and 1."""
    found: Floats = torch.empty(shape, dtype=torch.float64).uniform_(generator=generator).numpy()
    return found


def places(count: int, shape: tuple[int, ...], generator: torch.Generator) -> Places:
    """Draw whole numbers below ``count``."""
    found: Places = np.minimum(uniform(shape, generator) * count, count - 1).astype(np.int64)
    return found


def order(count: int, generator: torch.Generator) -> Places:
    """Draw an order of so many things."""
    found: Places = np.argsort(uniform((count,), generator), kind="stable")
    return found


def permute_rows(x: Floats, generator: torch.Generator) -> Floats:
    """Put the numbers of every row into an order of its own."""
    found: Floats = np.take_along_axis(x, np.argsort(uniform(x.shape, generator), axis=1), axis=1)
    return found
