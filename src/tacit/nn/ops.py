"""The Ops contract: the verbs a model is written in, whoever interprets them.

A model is a function ``model(ops, weights, x)``. It does not know whether its tensors are plain
torch tensors (`TorchOps`), halves of a secret (`tacit.mpc.SecretOps`) or only shapes
(`tacit.mpc.PlanOps`).
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
Pair = tuple[int, int]


class Ops(Protocol[T]):
    """What every interpreter of a model can do with its tensors."""

    def shape(self, x: T) -> tuple[int, ...]:
        """Return the shape of a tensor, which is public."""
        ...

    def add(self, x: T, y: T) -> T:
        """Add element-wise, broadcasting."""
        ...

    def sub(self, x: T, y: T) -> T:
        """Subtract element-wise, broadcasting."""
        ...

    def mul(self, x: T, y: T) -> T:
        """Multiply element-wise, broadcasting."""
        ...

    def matmul(self, x: T, y: T) -> T:
        """Multiply matrices (two or more dimensions, batched like torch.matmul)."""
        ...

    def scale(self, x: T, factor: float) -> T:
        """Multiply by a public number."""
        ...

    def shift(self, x: T, amount: float) -> T:
        """Add a public number."""
        ...

    def sum(self, x: T, *, dim: int) -> T:
        """Add up along one dimension, which disappears."""
        ...

    def reshape(self, x: T, shape: Sequence[int]) -> T:
        """Give the same elements another shape."""
        ...

    def transpose(self, x: T, first: int, second: int) -> T:
        """Swap two dimensions."""
        ...

    def square(self, x: T) -> T:
        """Multiply every element by itself."""
        ...

    def conv2d(self, x: T, weight: T, *, stride: Pair, padding: Pair) -> T:
        """Convolve images (n, channels, height, width) with weights (out, channels, h, w)."""
        ...

    def sigmoid(self, x: T) -> T:
        """Apply 1 / (1 + exp(-x)) to every element."""
        ...

    def tanh(self, x: T) -> T:
        """Apply the hyperbolic tangent to every element."""
        ...

    def relu(self, x: T) -> T:
        """Give the positive part of every element."""
        ...

    def gelu(self, x: T) -> T:
        """Apply the Gaussian error linear unit to every element."""
        ...

    def silu(self, x: T) -> T:
        """Apply x·sigmoid(x) to every element."""
        ...

    def softmax(self, x: T, *, dim: int) -> T:
        """Give exp(x) / Σ exp(x) along a dimension."""
        ...

    def layer_norm(self, x: T, *, eps: float) -> T:
        """Bring the last dimension to mean 0 and variance 1."""
        ...

    def max(self, x: T, *, dim: int) -> T:
        """Give the largest element along a dimension, which disappears."""
        ...

    def is_positive(self, x: T) -> T:
        """Give 1 where an element is at least zero and 0 elsewhere."""
        ...


Weights = Mapping[str, T]
"""The parameters of a model, by name."""
