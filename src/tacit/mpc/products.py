"""Bilinear maps of the ring: what a Beaver triple can be made for."""

from dataclasses import dataclass
from math import prod

from torch import Tensor

from tacit.errors import InputError
from tacit.mpc import outsource, shapes
from tacit.mpc.shapes import Shape


@dataclass(frozen=True)
class Hadamard:
    """Multiply element by element, broadcasting."""

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        """Multiply words."""
        return left * right

    def shape(self, left: Shape, right: Shape) -> Shape:
        """Return the broadcast shape."""
        return shapes.broadcast(left, right)

    def terms(self, left: Shape, right: Shape) -> int:
        """Return one."""
        return 1


@dataclass(frozen=True)
class MatMul:
    """Multiply matrices, batched like torch.matmul."""

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        """Multiply words."""
        return outsource.matmul(left, right)

    def shape(self, left: Shape, right: Shape) -> Shape:
        """Return (…, rows, columns)."""
        return shapes.matmul(left, right)

    def terms(self, left: Shape, right: Shape) -> int:
        """Return the length of the rows."""
        return left[-1]


@dataclass(frozen=True)
class TransposedMatMul:
    """Multiply the transpose of a matrix of many rows with another of as many."""

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        """Multiply words; in this order torch's product stays in its fast kernel."""
        return outsource.matmul(right.t().contiguous(), left).t().contiguous()

    def shape(self, left: Shape, right: Shape) -> Shape:
        """Return (columns of the first, columns of the second)."""
        return shapes.matmul((left[1], left[0]), right)

    def terms(self, left: Shape, right: Shape) -> int:
        """Return the number of rows."""
        return left[0]


@dataclass(frozen=True)
class Conv2d:
    """Convolve images (n, channels, height, width) with weights (out, channels / groups, h, w)."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        """Convolve words."""
        return outsource.conv2d(
            left,
            right,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
        )

    def shape(self, left: Shape, right: Shape) -> Shape:
        """Return (n, out, height, width)."""
        fits = len(left) == len(right) == 4 and left[1] == right[1] * self.groups
        if not fits or right[0] % self.groups:
            raise InputError(
                f"cannot convolve {left} with {right} in {self.groups} groups: wanted (n, "
                "channels, height, width) and (out, channels / groups, h, w)"
            )
        sides = tuple(
            (size + 2 * pad - apart * (kernel - 1) - 1) // step + 1
            for size, kernel, step, pad, apart in zip(
                left[2:], right[2:], self.stride, self.padding, self.dilation, strict=True
            )
        )
        if min(sides) < 1:
            raise InputError(f"a kernel of {right[2:]} does not fit into images of {left[2:]}")
        return (left[0], right[0], *sides)

    def terms(self, left: Shape, right: Shape) -> int:
        """Return the size of one kernel."""
        return prod(right[1:])


Product = Hadamard | MatMul | TransposedMatMul | Conv2d
"""A map that is linear in each of its two operands: ``shape`` refuses those that do not fit, and
``terms`` says how many products are added up in one element of the result."""
