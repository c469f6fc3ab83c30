"""The Ops contract: the verbs a model is written in, whoever interprets them.

A model is a function ``model(ops, weights, x)``. It does not know whether its tensors are plain
torch tensors (`TorchOps`), shares of a secret (`tacit.mpc.SecretOps`) or only shapes
(`tacit.mpc.PlanOps`).
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from torch import Tensor

T = TypeVar("T")
Pair = tuple[int, int]


class Ops(Protocol[T]):
    """What every interpreter of a model can do with its tensors.

    Functions with a pole (div, log, reciprocal, rsqrt, sqrt) want arguments of at least 2^-8;
    below, a private interpreter saturates.
    """

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

    def conv2d(
        self,
        x: T,
        weight: T,
        *,
        stride: Pair,
        padding: Pair,
        dilation: Pair = (1, 1),
        groups: int = 1,
    ) -> T:
        """Convolve images (n, channels, h, w) with weights (out, channels / groups, h, w)."""
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

    def min(self, x: T, *, dim: int) -> T:
        """Give the smallest element along a dimension, which disappears."""
        ...

    def argmax(self, x: T, *, dim: int) -> T:
        """Give the position of the largest element along a dimension, which disappears."""
        ...

    def abs(self, x: T) -> T:
        """Give the absolute value of every element."""
        ...

    def erf(self, x: T) -> T:
        """Apply the error function to every element."""
        ...

    def softplus(self, x: T) -> T:
        """Apply log(1 + exp(x)) to every element."""
        ...

    def log(self, x: T) -> T:
        """Give the natural logarithm of every element."""
        ...

    def reciprocal(self, x: T) -> T:
        """Give 1 / x for every element."""
        ...

    def rsqrt(self, x: T) -> T:
        """Give 1 / √x for every element."""
        ...

    def sqrt(self, x: T) -> T:
        """Give √x for every element."""
        ...

    def div(self, x: T, y: T) -> T:
        """Divide element-wise, broadcasting."""
        ...

    def clamp(self, x: T, low: float, high: float) -> T:
        """Keep every element between two public numbers."""
        ...

    def piecewise(self, x: T, breaks: Sequence[float], polynomials: Sequence[Sequence[float]]) -> T:
        """Evaluate polynomials (lowest coefficient first) between public breakpoints."""
        ...

    def log_softmax(self, x: T, *, dim: int) -> T:
        """Give x - log Σ exp(x) along a dimension."""
        ...

    def rms_norm(self, x: T, *, eps: float) -> T:
        """Bring the last dimension to a mean square of 1."""
        ...

    def group_norm(self, x: T, *, groups: int, eps: float) -> T:
        """Bring groups of channels of (n, channels, …) to mean 0 and variance 1."""
        ...

    def conv1d(self, x: T, weight: T, *, stride: int, padding: int) -> T:
        """Convolve series (n, channels, length) with weights (out, channels, length)."""
        ...

    def max_pool2d(self, x: T, *, size: Pair, stride: Pair, padding: Pair) -> T:
        """Give the largest element of every window of images."""
        ...

    def avg_pool2d(self, x: T, *, size: Pair, stride: Pair, padding: Pair) -> T:
        """Give the mean of every window of images, zeros beyond the edge counted in."""
        ...

    def concatenate(self, parts: Sequence[T], *, dim: int) -> T:
        """Join tensors along a dimension."""
        ...

    def take(self, x: T, positions: Sequence[int], *, dim: int) -> T:
        """Pick public positions of a dimension, in any order and as often as wanted."""
        ...

    def weigh(self, x: T, factors: Tensor) -> T:
        """Multiply by a public tensor, broadcasting."""
        ...

    def project(self, x: T, matrix: Tensor) -> T:
        """Multiply (…, inputs) by a public matrix (inputs, outputs)."""
        ...

    def offset(self, x: T, amounts: Tensor) -> T:
        """Add a public tensor, broadcasting."""
        ...

    def hide(self, x: T, kept: Tensor) -> T:
        """Put a number that a softmax makes zero wherever a public mask is false."""
        ...

    def mix(self, weights: T, values: T) -> T:
        """Multiply matrices, where every row of the first adds up to one, as of a softmax."""
        ...

    def embedding(self, table: T, ids: T, *, padding: int | None = None) -> T:
        """Read the rows of a table that whole numbers name; that of ``padding`` never learns."""
        ...

    def lookup(self, table: T, hot: T) -> T:
        """Read the rows of a table that one-hot vectors name."""
        ...

    def within(self, y: T, x: T, *, gain: float) -> T:
        """State that y is at most ``gain`` times as large as x can be; changes no value."""
        ...

    def cap(self, x: T, *, bound: float) -> T:
        """Saturate at ±bound, unless nothing larger can occur."""
        ...

    def reaches(self, x: T, *, bound: float) -> bool:
        """Tell whether an element could be larger than ±bound, by what is public about it."""
        ...

    def is_positive(self, x: T) -> T:
        """Give 1 where an element is at least zero and 0 elsewhere."""
        ...


class TrainableOps(Ops[T], Protocol[T]):
    """What an interpreter needs on top for models to be trained with it."""

    def exp(self, x: T) -> T:
        """Give exp of arguments of at most zero; 1 above."""
        ...

    def indicate(self, x: T) -> T:
        """Give 1 where an element is at least zero and 0 elsewhere, to be used with `gate`."""
        ...

    def gate(self, indicator: T, x: T) -> T:
        """Multiply by what `indicate` gave."""
        ...

    def one_hot(self, x: T, *, classes: int) -> T:
        """Give 1 at the position that a whole number names, in a new last dimension."""
        ...

    def gelu_slope(self, x: T) -> T:
        """Apply the derivative of the Gaussian error linear unit to every element."""
        ...

    def restate(self, value: T, *, bound: float) -> T:
        """State a smaller bound, which follows from what a value is; changes no value."""
        ...


@runtime_checkable
class BoundedOps(Protocol[T]):
    """What an interpreter on top can do that knows how large numbers can be.

    Whoever states a bound or a length answers for it: what is larger wraps around.
    """

    def bound(self, value: T) -> float:
        """Return how large an element can be."""
        ...

    def product_within(self, x: T, y: T, *, bound: float) -> T:
        """Multiply matrices whose product is known to be at most ``bound``."""
        ...

    def attention(self, scores: T, seen: Tensor) -> T:
        """Give the softmax along the last dimension over what a public mask lets see."""
        ...

    def norm_rows(self, x: T, *, eps: float, length: float, centred: bool) -> T:
        """Normalise rows, of the last dimension, that are known to be no longer than that."""
        ...


Weights = Mapping[str, T]
"""The parameters of a model, by name."""
