"""Where gradients go when values were picked, repeated, turned or cut into windows."""

from collections.abc import Sequence
from math import prod
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.nn.ops import Pair, TrainableOps

T = TypeVar("T")


def turned(ops: TrainableOps[T], x: T) -> T:
    """Swap the last two dimensions."""
    return ops.transpose(x, -1, -2)


def widened(ops: TrainableOps[T], x: T, axis: int) -> T:
    """Put a dimension of one element in."""
    shape = ops.shape(x)
    return ops.reshape(x, (*shape[:axis], 1, *shape[axis:]))


def fitted(ops: TrainableOps[T], gradient: T, shape: tuple[int, ...]) -> T:
    """Add up what broadcasting has spread."""
    while len(ops.shape(gradient)) > len(shape):
        gradient = ops.sum(gradient, dim=0)
    for axis, size in enumerate(shape):
        if size == 1 and ops.shape(gradient)[axis] != 1:
            gradient = widened(ops, ops.sum(gradient, dim=axis), axis)
    return gradient


def scattered(
    ops: TrainableOps[T], gradient: T, positions: tuple[int, ...], size: int, axis: int
) -> T:
    """Send every element back to where it was taken from, adding up those from one place."""
    places: list[list[int]] = [[] for _ in range(size)]
    for at, position in enumerate(positions):
        places[position % size].append(at)
    if size == 1:
        return widened(ops, ops.sum(gradient, dim=axis), axis)
    nothing = ops.scale(ops.take(gradient, (0,), dim=axis), 0.0)
    padded = ops.concatenate([gradient, nothing], dim=axis)
    total: T | None = None
    for turn in range(max(map(len, places))):
        picks = [place[turn] if turn < len(place) else len(positions) for place in places]
        part = ops.take(padded, picks, dim=axis)
        total = part if total is None else ops.add(total, part)
    if total is None:
        raise InputError("nothing was taken, so there is nothing to differentiate")
    return total


class Layouts(Protocol[T]):
    """The verbs that move elements and change none."""

    def shape(self, x: T) -> tuple[int, ...]:
        """Return the shape of a value."""
        ...

    def take(self, x: T, positions: Sequence[int], *, dim: int) -> T:
        """Pick public positions of a dimension."""
        ...

    def weigh(self, x: T, factors: Tensor) -> T:
        """Multiply by a public tensor."""
        ...

    def reshape(self, x: T, shape: Sequence[int]) -> T:
        """Give the same elements another shape."""
        ...

    def transpose(self, x: T, first: int, second: int) -> T:
        """Swap two dimensions."""
        ...


def laid_out(
    ops: Layouts[T], x: T, size: Pair, stride: Pair, padding: Pair, *, counts_edge: bool
) -> T:
    """Lay windows out along a last dimension; beyond an edge there are zeros, or the edge."""
    sides = ops.shape(x)[2:]
    if stride != size or padding != (0, 0) or sides[0] % size[0] or sides[1] % size[1]:
        ways = zip(sides, size, stride, padding, strict=True)
        seen = [_positions(*way) for way in ways]
        for axis, (positions, side) in enumerate(zip(seen, sides, strict=True)):
            # The edge is in every window that reaches beyond it, so a maximum stays the same.
            x = ops.take(x, [min(max(at, 0), side - 1) for at in positions], dim=2 + axis)
        if counts_edge and padding != (0, 0):
            x = ops.weigh(x, _within(seen, sides))
    n, channels, height, width = ops.shape(x)
    rows, columns = height // size[0], width // size[1]
    tiles = ops.reshape(x, (n * channels, rows, size[0], columns, size[1]))
    swapped = ops.transpose(tiles, 2, 3)
    return ops.reshape(swapped, (n, channels, rows, columns, prod(size)))


def _positions(length: int, size: int, stride: int, padding: int) -> list[int]:
    """List the positions that windows along one dimension look at, also those beyond its ends."""
    starts = range(-padding, length + padding - size + 1, stride)
    return [start + at for start in starts for at in range(size)]


def _within(seen: Sequence[Sequence[int]], sides: Sequence[int]) -> Tensor:
    """Give 1 for positions in an image and 0 for those beyond its edges."""
    rows, columns = (
        torch.tensor([0 <= at < side for at in positions], dtype=torch.float64)
        for positions, side in zip(seen, sides, strict=True)
    )
    return rows[:, None] * columns
