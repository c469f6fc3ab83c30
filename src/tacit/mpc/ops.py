"""ProtocolOps: all verbs of a model, primitives and functions made of them."""

from abc import ABC
from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor

from tacit.mpc.arithmetic.public import PublicInput
from tacit.mpc.functions import (
    activations,
    attention,
    images,
    losses,
    norms,
    ordering,
    roots,
    softmax,
)
from tacit.mpc.interpreter import of_family
from tacit.mpc.primitives import Pair
from tacit.mpc.rescaling import RescalingVerbs
from tacit.mpc.share import WORD_BITS

V = TypeVar("V")


class ProtocolOps(RescalingVerbs[V], ABC):
    """Interpret the Ops contract under a protocol; PlanOps and SecretOps say on what."""

    def tanh(self, x: V) -> V:
        """Apply the hyperbolic tangent."""
        return self.elementwise("tanh", x)

    def erf(self, x: V) -> V:
        """Apply the error function."""
        return self.elementwise("erf", x)

    def gelu(self, x: V) -> V:
        """Apply the Gaussian error linear unit."""
        return self.elementwise("gelu", x)

    def gelu_slope(self, x: V) -> V:
        """Apply the derivative of the Gaussian error linear unit; off by less than 1e-3."""
        return self.piecewise(x, *activations.gelu_slope())

    def silu(self, x: V) -> V:
        """Apply x·sigmoid(x)."""
        return self.elementwise("silu", x)

    def abs(self, x: V) -> V:
        """Give the absolute value."""
        return self.elementwise("abs", x)

    def softplus(self, x: V) -> V:
        """Apply log(1 + exp(x))."""
        return self.elementwise("softplus", x)

    @of_family("activations")
    def clamp(self, x: V, low: float, high: float) -> V:
        """Keep values between two public numbers."""
        return activations.clamp(self, x, low=low, high=high)

    def polynomial(self, x: V, coefficients: Sequence[float]) -> V:
        """Evaluate a polynomial with public coefficients, lowest first."""
        return activations.polynomial(self, x, coefficients)

    @of_family("activations")
    def piecewise(self, x: V, breaks: Sequence[float], polynomials: Sequence[Sequence[float]]) -> V:
        """Evaluate polynomials with public coefficients between public breakpoints."""
        return activations.piecewise(self, x, breaks, polynomials)

    @of_family("activations")
    def sign(self, x: V) -> V:
        """Give -1, 0 or 1."""
        return activations.sign(self, x)

    @of_family("activations")
    def max(self, x: V, *, dim: int) -> V:
        """Give the largest element along a dimension, which disappears."""
        return ordering.maximum(self, x, dim=dim)

    @of_family("activations")
    def min(self, x: V, *, dim: int) -> V:
        """Give the smallest element along a dimension, which disappears."""
        return ordering.minimum(self, x, dim=dim)

    @of_family("activations")
    def argmax(self, x: V, *, dim: int) -> V:
        """Give the position of the largest element along a dimension, which disappears."""
        return ordering.argmax(self, x, dim=dim)

    @of_family("activations")
    def argmax_one_hot(self, x: V, *, dim: int) -> V:
        """Give 1 at the largest element along a dimension and 0 elsewhere."""
        return ordering.argmax_one_hot(self, x, dim=dim)

    @of_family("activations")
    def one_hot(self, x: V, *, classes: int) -> V:
        """Give 1 at the position that a whole number names, in a new last dimension."""
        return ordering.one_hot(self, x, classes=classes)

    @of_family("activations")
    def sort(self, x: V, *, payload: Sequence[V] = ()) -> tuple[V, ...]:
        """Sort the last dimension, largest first, and carry other tensors along."""
        return ordering.sort(self, x, payload=payload)

    @of_family("activations")
    def top(self, x: V, *, count: int, payload: Sequence[V] = ()) -> tuple[V, ...]:
        """Give the largest elements of the last dimension, and what belongs to them."""
        return ordering.top(self, x, count=count, payload=payload)

    @of_family("softmax")
    def attention(
        self, scores: V, seen: Tensor | PublicInput, *, watch: norms.RangeWatch[V] | None = None
    ) -> V:
        """Give the softmax along the last dimension over what a public mask lets see."""
        return attention.attention(self, scores, seen, watch)

    @of_family("softmax")
    def attention_mixed(
        self,
        scores: V,
        seen: Tensor | PublicInput,
        values: Callable[[], V],
        *,
        frac_bits: tuple[int, int],
        watch: norms.RangeWatch[V] | None = None,
    ) -> V:
        """Average values by `attention`, mixed before they are divided where that saves rounds."""
        return attention.attention_mixed(
            self, scores, seen, values, frac_bits=frac_bits, watch=watch
        )

    @of_family("norms")
    def norm_within(
        self,
        x: V,
        *,
        eps: float,
        largest_mean: float,
        centred: bool,
        watch: norms.RangeWatch[V] | None = None,
    ) -> V:
        """Normalise rows of a known largest mean square, centred or not."""
        return norms.norm_within(
            self, x, eps=eps, largest_mean=largest_mean, centred=centred, watch=watch
        )

    @of_family("norms")
    def product_behind_norm(
        self,
        x: V,
        matrix: V,
        *,
        eps: float,
        largest_mean: float,
        centred: bool,
        bound: float,
        parts: Callable[[V], Sequence[norms.RowProduct[V]]],
        turns: bool = False,
        watch: norms.RangeWatch[V] | None = None,
    ) -> tuple[list[V], Callable[[], V]]:
        """Multiply the rows that `norm_within` would give with a matrix, a round earlier."""
        return norms.product_behind_norm(
            self,
            x,
            matrix,
            eps=eps,
            largest_mean=largest_mean,
            centred=centred,
            bound=bound,
            parts=parts,
            turns=turns,
            watch=watch,
        )

    @of_family("norms")
    def norm_rows(self, x: V, *, eps: float, length: float, centred: bool) -> V:
        """Normalise rows that are known to be no longer than ``length``, centred or not."""
        return norms.norm_rows(self, x, eps=eps, length=length, centred=centred)

    def product_within(self, x: V, y: V, *, bound: float) -> V:
        """Multiply matrices as `matmul_within` does; what comes out can be used for anything."""
        product = self.matmul_within(x, y, bound=bound)
        is_whole = self.number(product, "multiplying").ring_bits == WORD_BITS
        return product if is_whole else self.normalise_scale(product)

    @of_family("norms")
    def out_of_range(self, watch: norms.RangeWatch[V]) -> V:
        """Count rows that were out of range, and rows of scores that saturated: two numbers."""
        return norms.out_of_range(self, watch)

    def hide(self, x: V, kept: Tensor) -> V:
        """Put a number that a softmax makes zero wherever a public mask is false."""
        return softmax.hide(self, x, kept)

    def mix(self, weights: V, values: V) -> V:
        """Multiply matrices, where every row of the first adds up to one, as of a softmax."""
        return attention.mix(self, weights, values)

    def within(self, y: V, x: V, *, gain: float) -> V:
        """State that y is at most ``gain`` times as large as x can be, where that says more.

        Whoever calls this must know it, e.g. from the sums of the rows of a weight matrix.
        Cost: nothing is sent.
        """
        known, given = self.number(y, "stating a bound"), self.number(x, "stating a bound")
        # Rounding x and its product moves a result by at most the gain in last places, and one.
        bound = gain * given.bound + (gain + 1) * 2.0**-self.frac_bits
        return self.restate(y, bound=bound) if bound < known.bound else y

    @of_family("activations")
    def cap(self, x: V, *, bound: float) -> V:
        """Saturate at ±bound, unless nothing larger can occur."""
        return activations.cap(self, x, bound=bound)

    def reaches(self, x: V, *, bound: float) -> bool:
        """Tell whether an element could be larger than ±bound, by what is public about it."""
        return self.number(x, "bounding").bound > bound

    @of_family("activations")
    def max_pool2d(self, x: V, *, size: Pair, stride: Pair, padding: Pair) -> V:
        """Give the largest element of every window of images."""
        return images.max_pool2d(self, x, size=size, stride=stride, padding=padding)

    def avg_pool2d(self, x: V, *, size: Pair, stride: Pair, padding: Pair) -> V:
        """Give the mean of every window of images."""
        return images.avg_pool2d(self, x, size=size, stride=stride, padding=padding)

    def conv1d(self, x: V, weight: V, *, stride: int, padding: int) -> V:
        """Convolve series (n, channels, length) with weights (out, channels, length)."""
        return images.conv1d(self, x, weight, stride=stride, padding=padding)

    @of_family("norms")
    def group_norm(self, x: V, *, groups: int, eps: float = 1e-5) -> V:
        """Bring groups of channels to mean 0 and variance 1."""
        return images.group_norm(self, x, groups=groups, eps=eps)

    @of_family("activations")
    def embedding(self, table: V, ids: V, *, padding: int | None = None) -> V:
        """Read the rows of a table that secret whole numbers name."""
        return losses.embedding(self, table, ids)

    def lookup(self, table: V, hot: V) -> V:
        """Read the rows of a table that one-hot vectors name."""
        return losses.lookup(self, table, hot)

    @of_family("softmax")
    def cross_entropy(self, logits: V, labels: V) -> V:
        """Give the mean cross-entropy of logits and one-hot labels."""
        return losses.cross_entropy(self, logits, labels)

    @of_family("softmax")
    def binary_cross_entropy(self, logits: V, labels: V) -> V:
        """Give the mean binary cross-entropy of logits and labels."""
        return losses.binary_cross_entropy(self, logits, labels)

    @of_family("norms")
    def reciprocal(self, x: V) -> V:
        """Give 1 / x for x of at least 2^-8."""
        return roots.reciprocal(self, x)

    @of_family("norms")
    def rsqrt(self, x: V) -> V:
        """Give 1 / √x for x of at least 2^-8."""
        return roots.rsqrt(self, x)

    @of_family("norms")
    def log(self, x: V) -> V:
        """Give the natural logarithm of x of at least 2^-8."""
        return roots.logarithm(self, x)

    @of_family("softmax")
    def softmax(self, x: V, *, dim: int = -1) -> V:
        """Give exp(x) / Σ exp(x) along a dimension."""
        return softmax.softmax(self, x, dim=dim)

    @of_family("norms")
    def layer_norm(self, x: V, *, eps: float = 1e-5) -> V:
        """Bring the last dimension to mean 0 and variance 1."""
        return norms.layer_norm(self, x, eps=eps)

    @of_family("norms")
    def rsqrt_below(self, x: V) -> V:
        """Give a number just below 1 / √x, never above it."""
        return roots.rsqrt_below(self, x)

    @of_family("norms")
    def sqrt(self, x: V) -> V:
        """Give √x for x of at least 2^-8."""
        return roots.square_root(self, x)

    @of_family("norms")
    def div(self, x: V, y: V) -> V:
        """Give x / y for y of at least 2^-8. Error: that of `reciprocal` times x."""
        return self.mul(x, self.reciprocal(y))

    @of_family("softmax")
    def log_softmax(self, x: V, *, dim: int = -1) -> V:
        """Give x - log Σ exp(x) along a dimension."""
        return softmax.log_softmax(self, x, dim=dim)

    @of_family("norms")
    def rms_norm(self, x: V, *, eps: float = 1e-5) -> V:
        """Bring the last dimension to a mean square of 1."""
        return norms.rms_norm(self, x, eps=eps)

    @of_family("activations")
    def equal(self, x: V, y: V) -> V:
        """Give 1 where two values are the same and 0 elsewhere."""
        return activations.equal(self, x, y)

    def keep_rows(self, x: V, name: str) -> V:
        """Make rows zero that do not count, by zeros and ones that both computing parties hold.

        They are given with the shares kept for a run, by name, and are no part of the plan: no
        other party learns which rows they are. Cost: 0 rounds, 0 bytes. Error: none.
        """
        shape = self.shape(x)
        wide = (shape[0], *(1,) * (len(shape) - 1))
        counts = self.resume(name, shape=wide, bound=1.0, frac_bits=0, is_public=True)
        return self.apply(self.make("tune"), self.normalise_scale(x), counts)

    def select(self, condition: V, x: V, y: V) -> V:
        """Give x where the condition is 1 and y where it is 0. Cost: a product."""
        return self.add(y, self.mul(condition, self.sub(x, y)))
