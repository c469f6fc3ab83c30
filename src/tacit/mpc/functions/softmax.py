"""Functions made of ops, written once for every protocol.

Each says for which arguments it is meant, how far it is off, and what it does outside: saturate,
never wrap. Errors are those of `sealed` with 16 fraction bits, measured by the contract suite;
a protocol that has a function as a kernel of its own is exact up to rounding.
"""

from collections.abc import Callable
from math import floor, log, log2, sqrt
from typing import TypeVar

from torch import Tensor

from tacit.mpc import shapes
from tacit.mpc.functions.curves import exponent_bits, is_wide_range
from tacit.mpc.functions.elementwise import SMALLEST
from tacit.mpc.functions.tournament import largest
from tacit.mpc.primitives import Primitives
from tacit.mpc.products import Elementwise
from tacit.mpc.share import HEADROOM_BITS

V = TypeVar("V")

ENLARGED = 130.0
"""Rows are enlarged up to this bound before they are normalised: 128, and some rounding."""

LARGEST_SHARE = 1.01
"""No element of a softmax is larger than this, its error counted in."""


def maximum(ops: Primitives[V], x: V, *, dim: int) -> V:
    """Give the largest element along a dimension, which disappears.

    Range: all. Error: that of the inputs. Cost: ⌈log2 n⌉ times that of relu; under sealed fewer
    rounds, as `tacit.mpc.functions.tournament` finds them.
    """
    axis = shapes.axis(ops.shape(x), dim)
    if ops.has("rowwise"):
        return ops.rowwise("maximum", x, dim=axis)
    return largest(ops, x, axis=axis)


def reciprocal(ops: Primitives[V], x: V) -> V:
    """Give 1 / x for x of at least 2^-8.

    Error from 0.1 on: below 0.2 % of the result plus 2e-4. Below the range it stays near the
    value at 2^-8. Cost under sealed: 13 rounds, or 4 for a few values.
    """
    if not ops.has("exponents") or ops.is_few("reciprocal", x):
        return ops.elementwise("reciprocal", x)
    near, scale = _near_and_far(ops, "reciprocal", x, None)
    return ops.multiply(Elementwise(), ops.normalise_scale(near), scale)


def rsqrt(ops: Primitives[V], x: V) -> V:
    """Give 1 / √x for x of at least 2^-8.

    Error from 0.1 on: below 0.2 % of the result plus 2e-4. Below the range it stays near the
    value at 2^-8. Cost under sealed: 13 rounds, or 4 for a few values.
    """
    if not ops.has("exponents") or ops.is_few("rsqrt", x):
        return ops.elementwise("rsqrt", x)
    near, root = _near_and_far(ops, "rsqrt", x, lambda k: 2.0 ** (-k / 2))
    return ops.multiply(Elementwise(), ops.normalise_scale(near), root)


def logarithm(ops: Primitives[V], x: V) -> V:
    """Give the natural logarithm of x of at least 2^-8.

    Error from 0.1 on: below 0.2 % of the result plus 2e-4. Below the range it stays near the
    value at 2^-8. Cost under sealed: 11 rounds, or 4 for a few values.
    """
    if not ops.has("exponents") or ops.is_few("log", x):
        return ops.elementwise("log", x)
    near, offset = _near_and_far(ops, "log", x, lambda k: k * log(2.0))
    # Many fraction bits leave no room to add the exponent to the digits of a polynomial.
    digits, whole = ops.number(near, "adding"), ops.number(offset, "adding")
    lifted = whole.largest << max(0, digits.frac_bits - whole.frac_bits)
    fits = lifted + digits.largest < 1 << HEADROOM_BITS
    return ops.add(near if fits else ops.normalise_scale(near), offset)


def _near_and_far(
    ops: Primitives[V], name: str, x: V, far: Callable[[int], float] | None
) -> tuple[V, V]:
    """Give a function of x·2^-k, which lies between 1 and 2, and ``far`` (2^-k) of the exponent k.

    The second has the fraction bits of `exponent_bits`, and is to be multiplied as it is.
    """
    x = ops.normalise_scale(x)
    is_wide = is_wide_range(ops.frac_bits, ops.number(x, name).bound)
    if far is None and not is_wide:
        scale = other = ops.exponents(x, (_to_one,))
    else:
        both = ops.exponents(x, (_to_one, far or _to_one))
        scale, other = ops.part(both, 0), ops.part(both, 1)
    near = ops.multiply(Elementwise(), x, scale, bound=2.0 if is_wide else None)
    return ops.normalised(name, near), other


def _to_one(exponent: int) -> float:
    return 2.0**-exponent


def _times_inverse(ops: Primitives[V], x: V, inverse: V, *, largest: float, bound: float) -> V:
    """Multiply by the inverse root of numbers up to ``largest``; the product is within ``bound``.

    The inverse of large numbers keeps more digits than usual: what it has few of shows.
    """
    if not is_wide_range(ops.frac_bits, largest):
        return ops.mul(x, inverse)
    inverse = ops.truncated(inverse, frac_bits=exponent_bits(ops.frac_bits, largest))
    return ops.multiply(Elementwise(), ops.normalise_scale(x), inverse, bound=bound)


def softmax(ops: Primitives[V], x: V, *, dim: int) -> V:
    """Give exp(x) / Σ exp(x) along a dimension.

    Range: all. Error: below 2e-3 for rows of 13, growing with their length, as the errors of the
    exponentials (3e-5 each) add up. Cost: that of `maximum`, of exp, of `reciprocal` for one
    number per row, and of a product.
    """
    shape = ops.shape(x)
    axis = shapes.axis(shape, dim)
    if ops.has("rowwise"):
        return ops.rowwise("softmax", x, dim=axis)
    kept = (*shape[:axis], 1, *shape[axis + 1 :])
    top = ops.reshape(maximum(ops, x, dim=axis), kept)
    exps = ops.normalise_scale(ops.exp(ops.sub(x, top)))
    total = ops.reshape(reciprocal(ops, ops.sum(exps, dim=axis)), kept)
    return ops.restate(ops.mul(exps, total), bound=LARGEST_SHARE)


def hide(ops: Primitives[V], x: V, kept: Tensor) -> V:
    """Replace elements where a public mask is false by one that `softmax` gives nothing.

    Range: all. Error: none: 12 below everything that can occur, exp is 0. Cost: nothing is sent.
    """
    x = ops.normalise_scale(x)
    return ops.fill(x, kept, -(ops.number(x, "masking").bound + 12.0))


def within(ops: Primitives[V], y: V, x: V, *, gain: float) -> V:
    """State that y is at most ``gain`` times as large as x can be, where that says more.

    Whoever calls this must know it, e.g. from the sums of the rows of a weight matrix.
    Cost: nothing is sent.
    """
    known, given = ops.number(y, "stating a bound"), ops.number(x, "stating a bound")
    # Rounding x and its product moves a result by no more than the gain in last places, and one.
    bound = gain * given.bound + (gain + 1) * 2.0**-ops.frac_bits
    return ops.restate(y, bound=bound) if bound < known.bound else y


def layer_norm(ops: Primitives[V], x: V, *, eps: float) -> V:
    """Bring the last dimension to mean 0 and variance 1.

    Range: variances of at least 2^-8, or of (bound / 64)² / 2^8 if the bound of x is below 64;
    rows of a smaller variance come out too small. Error: below 6e-3. Cost: a square, an inverse
    square root for one number per row, and a product.
    """
    shape = ops.shape(x)
    count, kept = shape[shapes.axis(shape, -1)], (*shape[:-1], 1)
    if ops.has("rowwise"):
        return ops.rowwise("layer_norm", x, dim=-1, parameter=eps)
    mean = ops.normalise_scale(ops.scale(ops.sum(x, dim=-1), 1 / count))
    centred = ops.normalise_scale(ops.sub(x, ops.reshape(mean, kept)))
    return _normalised(ops, centred, eps)


def _normalised(ops: Primitives[V], rows: V, eps: float) -> V:
    """Divide rows by the root of their mean square."""
    shape = ops.shape(rows)
    # Numbers of a small bound are enlarged first: the inverse root begins at 2^-8, and enlarging
    # moves that towards smaller rows. Squares are enlarged after they are added up, as their sum
    # then has room in the word and need not be truncated one by one.
    factor = 2 ** max(0, floor(log2(ENLARGED / ops.number(rows, "normalising").bound)))
    mean = ops.scale(ops.total(ops.square(rows), dim=-1), factor**2 / shape[-1])
    mean = ops.normalise_scale(ops.shift(mean, eps * factor**2))
    ops.note_least(SMALLEST / factor**2 - eps)
    inverse = ops.reshape(rsqrt(ops, mean), (*shape[:-1], 1))
    # At most √n, and what the error of the inverse root can add to it.
    bound = 1.01 * sqrt(shape[-1]) + 2.0**-12 * factor * ops.number(rows, "normalising").bound
    most = ops.number(mean, "normalising").bound
    normal = _times_inverse(ops, rows, inverse, largest=most, bound=bound / factor)
    return ops.restate(ops.scale(normal, factor), bound=bound)


def rsqrt_below(ops: Primitives[V], x: V) -> V:
    """Give a number just below 1 / √x, for x from 2^-8 to 2^16: never above the true value.

    For clipping by a norm this is the safe side: what is scaled by it is never longer than it
    should be. Below the range it stays below 16. Error: between 0 and 0.6 % of the result plus
    2^-11 below the true value.

    Guarantee: `rsqrt` is above the truth by at most 2^-10 of it (its polynomials, and the argument
    that is brought to [1, 2)) and three units in the last place (the power of two, the product,
    the truncation of the result). The margin is 2^-8 of the result and 2^-12: with 16 fraction
    bits or more it covers both, every rounding of the result included.
    """
    return ops.shift(ops.scale(rsqrt(ops, x), 1 - 2.0**-8), -(2.0**-12))


def square_root(ops: Primitives[V], x: V) -> V:
    """Give √x for x of at least 2^-8, less below, and 0 of negative numbers.

    Error: below 0.4 % of the result. Cost: that of relu, of `rsqrt` and of a product.
    """
    if not ops.has("exponents"):
        return ops.elementwise("sqrt", x)
    x = ops.normalise_scale(x)
    most = ops.number(x, "taking a root").bound
    inverse = rsqrt(ops, x)
    return _times_inverse(ops, ops.relu(x), inverse, largest=most, bound=1.01 * sqrt(most) + 1)


def divide(ops: Primitives[V], x: V, y: V) -> V:
    """Give x / y for y of at least 2^-8. Error: that of `reciprocal` times x."""
    return ops.mul(x, reciprocal(ops, y))


def log_softmax(ops: Primitives[V], x: V, *, dim: int) -> V:
    """Give x - log Σ exp(x) along a dimension. Range: all. Error: below 8e-3 for rows of 13."""
    shape = ops.shape(x)
    axis = shapes.axis(shape, dim)
    if ops.has("rowwise"):
        return ops.rowwise("log_softmax", x, dim=axis)
    kept = (*shape[:axis], 1, *shape[axis + 1 :])
    centred = ops.normalise_scale(ops.sub(x, ops.reshape(maximum(ops, x, dim=axis), kept)))
    total = ops.sum(ops.normalise_scale(ops.exp(centred)), dim=axis)
    return ops.sub(centred, ops.reshape(ops.normalise_scale(logarithm(ops, total)), kept))


def rms_norm(ops: Primitives[V], x: V, *, eps: float) -> V:
    """Bring the last dimension to a mean square of 1. Range, error: as `layer_norm`."""
    if ops.has("rowwise"):
        return ops.rowwise("rms_norm", x, dim=-1, parameter=eps)
    return _normalised(ops, ops.normalise_scale(x), eps)


def select(ops: Primitives[V], condition: V, x: V, y: V) -> V:
    """Give x where the condition is 1 and y where it is 0. Cost: a product."""
    return ops.add(y, ops.mul(condition, ops.sub(x, y)))
