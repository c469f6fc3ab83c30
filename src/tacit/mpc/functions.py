"""Functions made of ops, written once for every protocol.

Each says for which arguments it is meant, how far it is off, and what it does outside: saturate,
never wrap. Errors are those of `sealed` with 16 fraction bits, measured by the contract suite;
a protocol that has a function as a kernel of its own is exact up to rounding.
"""

from math import log
from typing import TypeVar

from tacit.mpc.primitives import Primitives

V = TypeVar("V")


def maximum(ops: Primitives[V], x: V, *, dim: int) -> V:
    """Give the largest element along a dimension, which disappears.

    Range: all. Error: that of the inputs. Cost: ⌈log2 n⌉ times that of relu.
    """
    x = ops.settle(x)
    spec = ops.number(x, "taking the largest")
    axis = dim % len(spec.shape)
    while ops.spec(x).shape[axis] > 1:
        first, last = ops.halves(x, dim=axis)
        larger = ops.add(last, ops.relu(ops.sub(first, last)))
        x = ops.restate(larger, bound=spec.bound)
    return ops.sum(x, dim=axis)


def reciprocal(ops: Primitives[V], x: V) -> V:
    """Give 1 / x for x of at least 2^-8.

    Error from 0.1 on: below 0.2 % of the result plus 2e-4. Below the range it stays near the
    value at 2^-8. Cost under sealed: 13 rounds.
    """
    if not ops.has("exponents"):
        return ops.elementwise("reciprocal", x)
    x = ops.settle(x)
    scale = ops.exponents(x, (lambda k: 2.0**-k,))
    return ops.mul(ops.normalised("reciprocal", ops.mul(x, scale)), scale)


def rsqrt(ops: Primitives[V], x: V) -> V:
    """Give 1 / √x for x of at least 2^-8.

    Error from 0.1 on: below 0.2 % of the result plus 2e-4. Below the range it stays near the
    value at 2^-8. Cost under sealed: 13 rounds.
    """
    if not ops.has("exponents"):
        return ops.elementwise("rsqrt", x)
    x = ops.settle(x)
    both = ops.exponents(x, (lambda k: 2.0**-k, lambda k: 2.0 ** (-k / 2)))
    scale, root = ops.part(both, 0), ops.part(both, 1)
    return ops.mul(ops.normalised("rsqrt", ops.mul(x, scale)), root)


def logarithm(ops: Primitives[V], x: V) -> V:
    """Give the natural logarithm of x of at least 2^-8.

    Error from 0.1 on: below 0.2 % of the result plus 2e-4. Below the range it stays near the
    value at 2^-8. Cost under sealed: 11 rounds.
    """
    if not ops.has("exponents"):
        return ops.elementwise("log", x)
    x = ops.settle(x)
    both = ops.exponents(x, (lambda k: 2.0**-k, lambda k: k * log(2.0)))
    scale, offset = ops.part(both, 0), ops.part(both, 1)
    return ops.add(ops.normalised("log", ops.mul(x, scale)), offset)


def softmax(ops: Primitives[V], x: V, *, dim: int) -> V:
    """Give exp(x) / Σ exp(x) along a dimension.

    Range: all. Error: below 2e-3 for rows of 13, growing with their length, as the errors of the
    exponentials (3e-5 each) add up. Cost: that of `maximum`, of exp, of `reciprocal` for one
    number per row, and of a product.
    """
    shape = ops.spec(x).shape
    axis = dim % len(shape)
    kept = (*shape[:axis], 1, *shape[axis + 1 :])
    top = ops.reshape(maximum(ops, x, dim=axis), kept)
    exps = ops.settle(ops.exp(ops.sub(x, top)))
    total = ops.reshape(reciprocal(ops, ops.sum(exps, dim=axis)), kept)
    return ops.mul(exps, total)


def layer_norm(ops: Primitives[V], x: V, *, eps: float) -> V:
    """Bring the last dimension to mean 0 and variance 1.

    Range: variances of at least 2^-8. Error: below 6e-3. Cost: a square, an
    inverse square root for one number per row, and a product.
    """
    shape = ops.spec(x).shape
    count, kept = shape[-1], (*shape[:-1], 1)
    mean = ops.scale(ops.sum(x, dim=-1), 1 / count)
    centred = ops.settle(ops.sub(x, ops.reshape(mean, kept)))
    variance = ops.scale(ops.sum(ops.settle(ops.square(centred)), dim=-1), 1 / count)
    inverse = rsqrt(ops, ops.shift(variance, eps))
    return ops.mul(centred, ops.reshape(inverse, kept))


def clamp(ops: Primitives[V], x: V, *, low: float, high: float) -> V:
    """Keep values between two public numbers. Range: all. Error: none. Cost: twice that of relu."""
    raised = ops.shift(ops.relu(ops.shift(x, -low)), low)
    return ops.shift(ops.scale(ops.relu(ops.shift(ops.scale(raised, -1), high)), -1), high)


def rsqrt_below(ops: Primitives[V], x: V) -> V:
    """Give a number just below 1 / √x, for x of at least 2^-8: never above the true value.

    For clipping by a norm this is the safe side: what is scaled by it is never longer than it
    should be. Error: between 0 and 0.6 % of the result plus 2^-11 below the true value.
    """
    return ops.shift(ops.scale(rsqrt(ops, x), 1 - 2.0**-8), -(2.0**-12))


def square_root(ops: Primitives[V], x: V) -> V:
    """Give √x for x of at least 2^-8, less below, and 0 of negative numbers.

    Error: below 0.2 % of the result. Cost: that of relu, of `rsqrt` and of a product.
    """
    return ops.mul(ops.relu(x), rsqrt(ops, x))


def divide(ops: Primitives[V], x: V, y: V) -> V:
    """Give x / y for y of at least 2^-8. Error: that of `reciprocal` times x."""
    return ops.mul(x, reciprocal(ops, y))


def log_softmax(ops: Primitives[V], x: V, *, dim: int) -> V:
    """Give x - log Σ exp(x) along a dimension. Range: all. Error: below 8e-3 for rows of 13."""
    shape = ops.spec(x).shape
    axis = dim % len(shape)
    kept = (*shape[:axis], 1, *shape[axis + 1 :])
    centred = ops.settle(ops.sub(x, ops.reshape(maximum(ops, x, dim=axis), kept)))
    total = ops.sum(ops.settle(ops.exp(centred)), dim=axis)
    return ops.sub(centred, ops.reshape(logarithm(ops, total), kept))


def rms_norm(ops: Primitives[V], x: V, *, eps: float) -> V:
    """Bring the last dimension to a mean square of 1. Range, error: as `layer_norm`."""
    shape = ops.spec(x).shape
    x = ops.settle(x)
    mean = ops.scale(ops.sum(ops.settle(ops.square(x)), dim=-1), 1 / shape[-1])
    inverse = ops.reshape(rsqrt(ops, ops.shift(mean, eps)), (*shape[:-1], 1))
    return ops.mul(x, inverse)


def equal(ops: Primitives[V], x: V, y: V) -> V:
    """Give 1 where two values are the same word and 0 elsewhere. Range: all. Error: none."""
    above, below = ops.sub(x, y), ops.sub(y, x)
    both = ops.add(ops.elementwise("step", above), ops.elementwise("step", below))
    return ops.shift(both, -1)


def select(ops: Primitives[V], condition: V, x: V, y: V) -> V:
    """Give x where the condition is 1 and y where it is 0. Cost: a product."""
    return ops.add(y, ops.mul(condition, ops.sub(x, y)))
