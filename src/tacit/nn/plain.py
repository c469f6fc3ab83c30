"""TorchOps: run a model in the clear, on torch tensors. The reference for every private run."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from tacit.nn.ops import Pair


class TorchOps:
    """Interpret the Ops contract with torch, differentiably where torch is."""

    def shape(self, x: Tensor) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return tuple(x.shape)

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

    def square(self, x: Tensor) -> Tensor:
        """Multiply every element by itself."""
        return x * x

    def conv2d(self, x: Tensor, weight: Tensor, *, stride: Pair, padding: Pair) -> Tensor:
        """Convolve images with weights."""
        return functional.conv2d(x, weight, stride=stride, padding=padding)

    def tanh(self, x: Tensor) -> Tensor:
        """Apply the hyperbolic tangent to every element."""
        return torch.tanh(x)

    def relu(self, x: Tensor) -> Tensor:
        """Give the positive part of every element."""
        return torch.relu(x)

    def gelu(self, x: Tensor) -> Tensor:
        """Apply the Gaussian error linear unit to every element."""
        return functional.gelu(x)

    def silu(self, x: Tensor) -> Tensor:
        """Apply x·sigmoid(x) to every element."""
        return functional.silu(x)

    def softmax(self, x: Tensor, *, dim: int) -> Tensor:
        """Give exp(x) / Σ exp(x) along a dimension."""
        return torch.softmax(x, dim=dim)

    def layer_norm(self, x: Tensor, *, eps: float) -> Tensor:
        """Bring the last dimension to mean 0 and variance 1."""
        return functional.layer_norm(x, x.shape[-1:], eps=eps)

    def max(self, x: Tensor, *, dim: int) -> Tensor:
        """Give the largest element along a dimension, which disappears."""
        return x.amax(dim=dim)

    def sigmoid(self, x: Tensor) -> Tensor:
        """Apply the logistic function to every element."""
        return torch.sigmoid(x)

    def is_positive(self, x: Tensor) -> Tensor:
        """Give 1 where an element is at least zero and 0 elsewhere."""
        return (x >= 0).to(x.dtype)
