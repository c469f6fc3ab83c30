"""TorchOps: run a model in the clear, on torch tensors. The reference for every private run."""

from collections.abc import Sequence

import torch
from torch import Tensor


class TorchOps:
    """Interpret the Ops contract with torch, differentiably where torch is."""

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Add element-wise, broadcasting."""
        return x + y

    def sub(self, x: Tensor, y: Tensor) -> Tensor:
        """Subtract element-wise, broadcasting."""
        return x - y

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """Multiply element-wise, broadcasting."""
        return x * y

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """Multiply matrices."""
        return torch.matmul(x, y)

    def scale(self, x: Tensor, factor: float) -> Tensor:
        """Multiply by a public number."""
        return x * factor

    def shift(self, x: Tensor, amount: float) -> Tensor:
        """Add a public number."""
        return x + amount

    def sum(self, x: Tensor, *, dim: int) -> Tensor:
        """Add up along one dimension, which disappears."""
        return x.sum(dim=dim)

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """Give the same elements another shape."""
        return x.reshape(tuple(shape))

    def transpose(self, x: Tensor, first: int, second: int) -> Tensor:
        """Swap two dimensions."""
        return x.transpose(first, second)

    def sigmoid(self, x: Tensor) -> Tensor:
        """Apply the logistic function to every element."""
        return torch.sigmoid(x)

    def is_positive(self, x: Tensor) -> Tensor:
        """Give 1 where an element is at least zero and 0 elsewhere."""
        return (x >= 0).to(x.dtype)
