"""ProtocolOps: all verbs of a model, primitives and functions made of them."""

from abc import ABC
from typing import TypeVar

from tacit.mpc import functions
from tacit.mpc.primitives import Primitives

V = TypeVar("V")


class ProtocolOps(Primitives[V], ABC):
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

    def silu(self, x: V) -> V:
        """Apply x·sigmoid(x)."""
        return self.elementwise("silu", x)

    def abs(self, x: V) -> V:
        """Give the absolute value."""
        return self.elementwise("abs", x)

    def clamp(self, x: V, low: float, high: float) -> V:
        """Keep values between two public numbers."""
        return functions.clamp(self, x, low=low, high=high)

    def max(self, x: V, *, dim: int) -> V:
        """Give the largest element along a dimension, which disappears."""
        return functions.maximum(self, x, dim=dim)

    def reciprocal(self, x: V) -> V:
        """Give 1 / x for x of at least 2^-8."""
        return functions.reciprocal(self, x)

    def rsqrt(self, x: V) -> V:
        """Give 1 / √x for x of at least 2^-8."""
        return functions.rsqrt(self, x)

    def log(self, x: V) -> V:
        """Give the natural logarithm of x of at least 2^-8."""
        return functions.logarithm(self, x)

    def softmax(self, x: V, *, dim: int = -1) -> V:
        """Give exp(x) / Σ exp(x) along a dimension."""
        return functions.softmax(self, x, dim=dim)

    def layer_norm(self, x: V, *, eps: float = 1e-5) -> V:
        """Bring the last dimension to mean 0 and variance 1."""
        return functions.layer_norm(self, x, eps=eps)

    def rsqrt_below(self, x: V) -> V:
        """Give a number just below 1 / √x, never above it."""
        return functions.rsqrt_below(self, x)

    def sqrt(self, x: V) -> V:
        """Give √x for x of at least 2^-8."""
        return functions.square_root(self, x)

    def div(self, x: V, y: V) -> V:
        """Give x / y for y of at least 2^-8."""
        return functions.divide(self, x, y)

    def log_softmax(self, x: V, *, dim: int = -1) -> V:
        """Give x - log Σ exp(x) along a dimension."""
        return functions.log_softmax(self, x, dim=dim)

    def rms_norm(self, x: V, *, eps: float = 1e-5) -> V:
        """Bring the last dimension to a mean square of 1."""
        return functions.rms_norm(self, x, eps=eps)

    def equal(self, x: V, y: V) -> V:
        """Give 1 where two values are the same and 0 elsewhere."""
        return functions.equal(self, x, y)

    def select(self, condition: V, x: V, y: V) -> V:
        """Give x where the condition is 1 and y where it is 0."""
        return functions.select(self, condition, x, y)
