"""Features by a public rule, which each owner cuts out of its own rows before anything else."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from tacit.errors import ConfigError, DataError
from tacit.nn.code import OwnModel
from tacit.nn.networks import ImageNetwork

Floats = npt.NDArray[np.float64]
_FAINT = 1e-3
"""Added to the norm of a block, so that an empty one stays empty."""


@dataclass(frozen=True, kw_only=True)
class HistogramsOfGradients:
    """Histograms of the directions of edges (Dalal and Triggs 2005), rows of norm 1.

    Attributes:
        cell: the side of a cell in pixels.
        bins: directions, from 0 to 180 degrees.
        block: cells on the side of a block; blocks overlap and are normalised on their own.

    Guarantee: a row depends on its own picture and on nothing else, so that it costs no ε.
    """

    cell: int = 4
    bins: int = 9
    block: int = 2

    def __call__(self, pictures: npt.ArrayLike) -> Floats:
        """Turn pictures (n, height, width) into rows of features."""
        x = np.asarray(pictures, dtype=np.float64)
        if x.ndim != 3 or min(x.shape[1:]) < self.cell * self.block:
            raise DataError(
                f"wanted pictures (n, height, width) of {self.cell * self.block} pixels a side at "
                f"least, got the shape {x.shape}"
            )
        blocks = _blocks(self._cells(x), self.block)
        rows = blocks.reshape(len(x), -1)
        found: Floats = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        return found

    def _cells(self, x: Floats) -> Floats:
        """Give a histogram per cell: each pixel votes for the two nearest directions."""
        down, across = np.gradient(x, axis=(1, 2))
        size = np.hypot(down, across)
        place = np.mod(np.arctan2(down, across), np.pi) / np.pi * self.bins - 0.5
        first = np.floor(place)
        share = place - first
        high, wide = (side // self.cell for side in x.shape[1:])
        votes = np.zeros((len(x), high, wide, self.bins))
        for offset, weight in ((0, 1 - share), (1, share)):
            at = np.mod(first + offset, self.bins)
            for one in range(self.bins):
                vote = (size * weight * (at == one))[:, : high * self.cell, : wide * self.cell]
                cut = vote.reshape(len(x), high, self.cell, wide, self.cell)
                votes[..., one] += cut.sum(axis=(2, 4))
        return votes


HOG = "hog"
IMAGES, TEXTS = "images:", "texts:"
"""What public networks begin with; their file or folder follows."""


def cut_out(rule: str, rows: Floats) -> Floats:
    """Turn an owner's rows into others by a public rule.

    Rules are "hog", "images:FILE" with the weights of `ImageNetwork`, or file.py:function, which
    makes a callable that takes an array of rows and gives one of as many rows of numbers, such as
    another public network without its last layer; both are run.

    Raises:
        DataError: it gives something else.
    """
    made: Callable[[npt.ArrayLike], object]
    if rule.startswith(IMAGES):
        made = ImageNetwork(Path(rule.removeprefix(IMAGES)))
    else:
        made = HistogramsOfGradients() if rule == HOG else OwnModel.read(Path(rule)).make()
    if not callable(made):
        raise ConfigError(f"data.features: {rule}: wanted a function that makes a callable")
    found: Floats = torch.as_tensor(np.asarray(made(rows))).double().numpy()
    if found.ndim < 2 or len(found) != len(rows) or not np.isfinite(found).all():
        raise DataError(
            f"data.features: {rule}: wanted {len(rows)} rows of finite numbers, got the shape "
            f"{found.shape}"
        )
    return found


def _blocks(cells: Floats, side: int) -> Floats:
    """Lay overlapping blocks of cells side by side, each brought to norm 1."""
    high, wide = (size - side + 1 for size in cells.shape[1:3])
    parts = [cells[:, i : i + high, j : j + wide] for i in range(side) for j in range(side)]
    blocks = np.concatenate(parts, axis=-1)
    found: Floats = blocks / (np.linalg.norm(blocks, axis=-1, keepdims=True) + _FAINT)
    return found
