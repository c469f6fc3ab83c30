"""ProtocolOps: all verbs of a model, primitives and functions made of them."""

from abc import ABC
from typing import TypeVar

from tacit.mpc.functions import (
    activations,
    attention,
    layers,
    norms,
    ordering,
    roots,
)
from tacit.mpc.interpreter import of_family
from tacit.mpc.rescaling import RescalingVerbs
from tacit.mpc.share import WORD_BITS

V = TypeVar("V")
_activation, _norm, _softmax = map(of_family, ("activations", "norms", "softmax"))


class ProtocolOps(RescalingVerbs[V], ABC):
    """Interpret the Ops contract under a protocol; PlanOps and SecretOps say on what.

    What a verb computes, for which range and at what cost, its function in `tacit.mpc.functions`
    says; the family here is the one whose protocol computes it, if a job names one.
    """

    polynomial = activations.polynomial
    hide = attention.hide
    mix = attention.mix
    avg_pool2d = layers.avg_pool2d
    conv1d = layers.conv1d
    lookup = layers.lookup

    clamp = _activation(activations.clamp)
    piecewise = _activation(activations.piecewise)
    sign = _activation(activations.sign)
    max = _activation(ordering.maximum)
    min = _activation(ordering.minimum)
    argmax = _activation(ordering.argmax)
    argmax_one_hot = _activation(ordering.argmax_one_hot)
    one_hot = _activation(ordering.one_hot)
    sort = _activation(ordering.sort)
    top = _activation(ordering.top)
    cap = _activation(activations.cap)
    max_pool2d = _activation(layers.max_pool2d)
    embedding = _activation(layers.embedding)
    equal = _activation(activations.equal)

    norm_within = _norm(norms.norm_within)
    product_behind_norm = _norm(norms.product_behind_norm)
    norm_rows = _norm(norms.norm_rows)
    out_of_range = _norm(norms.out_of_range)
    group_norm = _norm(layers.group_norm)
    reciprocal = _norm(roots.reciprocal)
    rsqrt = _norm(roots.rsqrt)
    log = _norm(roots.logarithm)
    layer_norm = _norm(norms.layer_norm)
    rsqrt_below = _norm(roots.rsqrt_below)
    sqrt = _norm(roots.square_root)
    rms_norm = _norm(norms.rms_norm)

    attention_mixed = _softmax(attention.attention_mixed)
    cross_entropy = _softmax(layers.cross_entropy)
    binary_cross_entropy = _softmax(layers.binary_cross_entropy)
    log_softmax = _softmax(attention.log_softmax)
    softmax = _softmax(attention.softmax)
    attention = _softmax(attention.attention)  # last: from here on it is a verb, no module

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

    def product_within(self, x: V, y: V, *, bound: float) -> V:
        """Multiply matrices as `matmul_within` does; what comes out can be used for anything."""
        product = self.matmul_within(x, y, bound=bound)
        is_whole = self.number(product, "multiplying").ring_bits == WORD_BITS
        return product if is_whole else self.normalise_scale(product)

    def within(self, y: V, x: V, *, gain: float) -> V:
        """State that y is at most ``gain`` times as large as x can be, where that says more.

        Whoever calls this must know it, e.g. from the sums of the rows of a weight matrix.
        Cost: nothing is sent.
        """
        known, given = self.number(y, "stating a bound"), self.number(x, "stating a bound")
        # Rounding x and its product moves a result by at most the gain in last places, and one.
        bound = gain * given.bound + (gain + 1) * 2.0**-self.frac_bits
        return self.restate(y, bound=bound) if bound < known.bound else y

    def reaches(self, x: V, *, bound: float) -> bool:
        """Tell whether an element could be larger than ±bound, by what is public about it."""
        return self.number(x, "bounding").bound > bound

    @of_family("norms")
    def div(self, x: V, y: V) -> V:
        """Give x / y for y of at least 2^-8. Error: that of `reciprocal` times x."""
        return self.mul(x, self.reciprocal(y))

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
