"""Where gradients go when values were picked, repeated, turned, or seen through windows."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.nn.ops import Ops, Pair, TrainableOps

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


# Any: ops of `GradientOps`, which stands above this file, and its nodes.
def laid_out(
    ops: Any, x: Any, size: Pair, stride: Pair, padding: Pair, *, counts_edge: bool
) -> Any:
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


@dataclass(frozen=True)
class Sweep:
    """How windows go over images: all that is public about a convolution but its shapes."""

    stride: Pair
    padding: Pair
    dilation: Pair = (1, 1)
    groups: int = 1

    def convolve(self, ops: Ops[T], x: T, weight: T) -> T:
        """Convolve images (n, channels, h, w) with weights (out, channels / groups, h, w)."""
        return ops.conv2d(
            x,
            weight,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
        )

    def by_weights(self, ops: TrainableOps[T], x: T, gradient: T, shape: tuple[int, ...]) -> T:
        """Differentiate by the weights: images and gradients are convolved over the batch."""
        n, channels, *sides = ops.shape(x)
        parts = ops.reshape(x, (n, self.groups, channels // self.groups, *sides))
        # (channels / groups, groups · n, h, w): the batch of each group is what is added up.
        batched = ops.reshape(ops.transpose(parts, 0, 2), (-1, self.groups * n, *sides))
        # What were steps between windows are now distances within one, and the other way round.
        turned = Sweep(self.dilation, self.padding, self.stride, self.groups)
        swapped = turned.convolve(ops, batched, ops.transpose(gradient, 0, 1))
        # Rows and columns that no window reached leave a rim.
        for axis in (2, 3):
            if ops.shape(swapped)[axis] != shape[axis]:
                swapped = ops.take(swapped, range(shape[axis]), dim=axis)
        return ops.transpose(swapped, 0, 1)

    def by_images(self, ops: TrainableOps[T], gradient: T, weight: T, shape: tuple[int, ...]) -> T:
        """Differentiate by the images: gradients go back through the weights."""
        return self._back(ops, gradient, _flipped(ops, weight), shape)

    def transpose(self, ops: Ops[T], x: T, weight: T, beyond: Pair) -> T:
        """Go from outputs to images, as a transposed convolution does.

        Turning the images before and after, instead of the weights, leaves these as they are held.

        Args:
            ops: any interpreter.
            x: (n, outputs, h, w).
            weight: (outputs, channels / groups, h, w).
            beyond: rows and columns to add at the ends (torch's ``output_padding``).
        """
        shape, sizes = ops.shape(x), ops.shape(weight)
        whole = tuple(
            (side - 1) * step + apart * (size - 1) + 1
            for side, step, apart, size in zip(
                shape[2:], self.stride, self.dilation, sizes[2:], strict=True
            )
        )
        wide = Sweep(self.stride, (0, 0), self.dilation, self.groups)
        channels = sizes[1] * self.groups
        images = wide._back(ops, _flipped(ops, x), weight, (shape[0], channels, *whole))
        images = _flipped(ops, images)
        for axis, (side, pad, more) in enumerate(zip(whole, self.padding, beyond, strict=True)):
            images = _spread(ops, images, 2 + axis, 1, range(pad, side - pad + more))
        return images

    def _back(self, ops: Ops[T], x: T, weight: T, shape: tuple[int, ...]) -> T:
        """Convolve spread values with weights that go from the outputs to the inputs."""
        sizes = ops.shape(weight)[2:]
        reach = [apart * (size - 1) for apart, size in zip(self.dilation, sizes, strict=True)]
        rims = [most - pad for most, pad in zip(reach, self.padding, strict=True)]
        for axis, (step, rim, side) in enumerate(zip(self.stride, rims, shape[2:], strict=True)):
            wanted = side + reach[axis] - 2 * max(rim, 0)
            x = _spread(ops, x, 2 + axis, step, range(max(-rim, 0), max(-rim, 0) + wanted))
        turned = Sweep((1, 1), (max(rims[0], 0), max(rims[1], 0)), self.dilation, self.groups)
        return turned.convolve(ops, x, self._transposed(ops, weight))

    def _transposed(self, ops: Ops[T], weight: T) -> T:
        """Turn (out, channels / groups, h, w) into (channels, out / groups, h, w)."""
        outputs, channels, *sizes = ops.shape(weight)
        if self.groups == 1:
            return ops.transpose(weight, 0, 1)
        parts = ops.reshape(weight, (self.groups, outputs // self.groups, channels, *sizes))
        return ops.reshape(ops.transpose(parts, 1, 2), (self.groups * channels, -1, *sizes))


def _spread(ops: Ops[T], x: T, axis: int, step: int, wanted: Sequence[int]) -> T:
    """Put step − 1 zeros between neighbours, and take what is wanted; beyond the end are zeros."""
    size = ops.shape(x)[axis]
    last = (size - 1) * step
    places = [at // step if at % step == 0 and at <= last else size for at in wanted]
    if places == list(range(size)):
        return x
    if size in places:
        x = ops.concatenate([x, ops.scale(ops.take(x, (0,), dim=axis), 0.0)], dim=axis)
    return ops.take(x, places, dim=axis)


def _flipped(ops: Ops[T], x: T) -> T:
    """Turn images or weights upside down and left to right."""
    for axis in (2, 3):
        if (size := ops.shape(x)[axis]) > 1:
            x = ops.take(x, range(size - 1, -1, -1), dim=axis)
    return x
