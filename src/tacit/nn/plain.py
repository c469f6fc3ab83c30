"""TorchOps: run a model in the clear, on torch tensors. The reference for every private run."""

from collections.abc import Sequence
from math import pi, sqrt

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

    def conv2d(
        self,
        x: Tensor,
        weight: Tensor,
        *,
        stride: Pair,
        padding: Pair,
        dilation: Pair = (1, 1),
        groups: int = 1,
    ) -> Tensor:
        """Convolve images with weights."""
        return functional.conv2d(x, weight, None, stride, padding, dilation, groups)

    def tanh(self, x: Tensor) -> Tensor:
        """Apply the hyperbolic tangent to every element."""
        return torch.tanh(x)

    def relu(self, x: Tensor) -> Tensor:
        """Give the positive part of every element."""
        return torch.relu(x)

    def gelu(self, x: Tensor) -> Tensor:
        """Apply the Gaussian error linear unit to every element."""
        return functional.gelu(x)

    def gelu_slope(self, x: Tensor) -> Tensor:
        """Apply the derivative of the Gaussian error linear unit to every element."""
        bell = torch.exp(-x.square() / 2) / sqrt(2 * pi)
        return (1 + torch.erf(x * sqrt(0.5))) / 2 + x * bell

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

    def min(self, x: Tensor, *, dim: int) -> Tensor:
        """Give the smallest element along a dimension, which disappears."""
        return x.amin(dim=dim)

    def argmax(self, x: Tensor, *, dim: int) -> Tensor:
        """Give the position of the largest element along a dimension, which disappears."""
        return x.argmax(dim=dim).to(x.dtype)

    def abs(self, x: Tensor) -> Tensor:
        """Give the absolute value of every element."""
        return x.abs()

    def erf(self, x: Tensor) -> Tensor:
        """Apply the error function to every element."""
        return torch.erf(x)

    def softplus(self, x: Tensor) -> Tensor:
        """Apply log(1 + exp(x)) to every element."""
        return functional.softplus(x)

    def log(self, x: Tensor) -> Tensor:
        """Give the natural logarithm of every element."""
        return torch.log(x)

    def reciprocal(self, x: Tensor) -> Tensor:
        """Give 1 / x for every element."""
        return 1 / x

    def rsqrt(self, x: Tensor) -> Tensor:
        """Give 1 / √x for every element."""
        return torch.rsqrt(x)

    def sqrt(self, x: Tensor) -> Tensor:
        """Give √x for every element."""
        return torch.sqrt(x)

    def div(self, x: Tensor, y: Tensor) -> Tensor:
        """Divide element-wise, broadcasting."""
        return x / y

    def clamp(self, x: Tensor, low: float, high: float) -> Tensor:
        """Keep every element between two public numbers."""
        return x.clamp(low, high)

    def piecewise(
        self, x: Tensor, breaks: Sequence[float], polynomials: Sequence[Sequence[float]]
    ) -> Tensor:
        """Evaluate polynomials (lowest coefficient first) between public breakpoints."""
        result = torch.zeros_like(x)
        at = torch.bucketize(x.detach(), torch.tensor(breaks, dtype=x.dtype), right=True)
        for number, coefficients in enumerate(polynomials):
            value = sum(a * x**j for j, a in enumerate(coefficients)) + torch.zeros_like(x)
            result = torch.where(at == number, value, result)
        return result

    def log_softmax(self, x: Tensor, *, dim: int) -> Tensor:
        """Give x - log Σ exp(x) along a dimension."""
        return torch.log_softmax(x, dim=dim)

    def rms_norm(self, x: Tensor, *, eps: float) -> Tensor:
        """Bring the last dimension to a mean square of 1."""
        return functional.rms_norm(x, x.shape[-1:], eps=eps)

    def group_norm(self, x: Tensor, *, groups: int, eps: float) -> Tensor:
        """Bring groups of channels to mean 0 and variance 1."""
        return functional.group_norm(x, groups, eps=eps)

    def conv1d(self, x: Tensor, weight: Tensor, *, stride: int, padding: int) -> Tensor:
        """Convolve series with weights."""
        return functional.conv1d(x, weight, stride=stride, padding=padding)

    def max_pool2d(self, x: Tensor, *, size: Pair, stride: Pair, padding: Pair) -> Tensor:
        """Give the largest element of every window of images."""
        return functional.max_pool2d(x, size, stride, padding)

    def avg_pool2d(self, x: Tensor, *, size: Pair, stride: Pair, padding: Pair) -> Tensor:
        """Give the mean of every window of images."""
        return functional.avg_pool2d(x, size, stride, padding)

    def concatenate(self, parts: Sequence[Tensor], *, dim: int) -> Tensor:
        """Join tensors along a dimension."""
        return torch.cat(list(parts), dim=dim)

    def take(self, x: Tensor, positions: Sequence[int], *, dim: int) -> Tensor:
        """Pick public positions of a dimension."""
        return x.index_select(dim, torch.tensor(positions, dtype=torch.int64, device=x.device))

    def weigh(self, x: Tensor, factors: Tensor) -> Tensor:
        """Multiply by a public tensor, broadcasting."""
        return x * factors.to(x)

    def project(self, x: Tensor, matrix: Tensor) -> Tensor:
        """Multiply (…, inputs) by a public matrix (inputs, outputs)."""
        return x @ matrix.to(x)

    def offset(self, x: Tensor, amounts: Tensor) -> Tensor:
        """Add a public tensor, broadcasting."""
        return x + amounts.to(x)

    def hide(self, x: Tensor, kept: Tensor) -> Tensor:
        """Put minus infinity wherever a public mask is false."""
        return x.masked_fill(~kept.to(x.device, torch.bool), -torch.inf)

    def mix(self, weights: Tensor, values: Tensor) -> Tensor:
        """Multiply matrices."""
        return torch.matmul(weights, values)

    def embedding(self, table: Tensor, ids: Tensor, *, padding: int | None = None) -> Tensor:
        """Read the rows of a table that whole numbers name."""
        return functional.embedding(ids.long(), table, padding)

    def lookup(self, table: Tensor, hot: Tensor) -> Tensor:
        """Read the rows of a table that one-hot vectors name."""
        return torch.matmul(hot, table)

    def within(self, y: Tensor, x: Tensor, *, gain: float) -> Tensor:
        """Give y unchanged: torch needs no bounds."""
        return y

    def cap(self, x: Tensor, *, bound: float) -> Tensor:
        """Saturate at ±bound."""
        return x.clamp(-bound, bound)

    def reaches(self, x: Tensor, *, bound: float) -> bool:
        """Say yes: floats have no public bounds."""
        return True

    def exp(self, x: Tensor) -> Tensor:
        """Give exp of arguments of at most zero; 1 above."""
        return torch.exp(x.clamp(max=0))

    def indicate(self, x: Tensor) -> Tensor:
        """Give 1 where an element is at least zero and 0 elsewhere."""
        return (x >= 0).to(x.dtype)

    def gate(self, indicator: Tensor, x: Tensor) -> Tensor:
        """Multiply by what `indicate` gave."""
        return indicator * x

    def one_hot(self, x: Tensor, *, classes: int) -> Tensor:
        """Give 1 at the position that a whole number names, in a new last dimension."""
        return functional.one_hot(x.long(), classes).to(x.dtype)

    def restate(self, value: Tensor, *, bound: float) -> Tensor:
        """Give the value as it is: floats need no bounds."""
        return value
