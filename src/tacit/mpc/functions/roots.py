"""Reciprocals, roots and logarithms: numbers are brought between 1 and 2 by their binary exponent.

Each function says for which arguments it is meant, how far it is off, and what it does outside:
saturate, never wrap. Errors are those of `sealed` with 16 fraction bits, measured by the contract
suite; a protocol that has a function as a kernel of its own is exact up to rounding.
"""

from collections.abc import Callable
from math import log, sqrt
from typing import TypeVar

from tacit.mpc.functions.curves import exponent_bits, is_wide_range
from tacit.mpc.primitives import Primitives
from tacit.mpc.products import Hadamard
from tacit.mpc.share import HEADROOM_BITS

V = TypeVar("V")


def reciprocal(ops: Primitives[V], x: V) -> V:
    """Give 1 / x for x of at least 2^-8.

    Error from 0.1 on: below 0.2 % of the result plus 2e-4. Below the range it stays near the
    value at 2^-8. Cost under sealed: 13 rounds, or 4 for a few values.
    """
    if not ops.has("exponents") or ops.is_few("reciprocal", x):
        return ops.elementwise("reciprocal", x)
    near, scale = _near_and_far(ops, "reciprocal", x, None)
    return ops.multiply(Hadamard(), ops.normalise_scale(near), scale)


def rsqrt(ops: Primitives[V], x: V) -> V:
    """Give 1 / √x for x of at least 2^-8.

    Error from 0.1 on: below 0.2 % of the result plus 2e-4. Below the range it stays near the
    value at 2^-8. Cost under sealed: 13 rounds, or 4 for a few values.
    """
    if not ops.has("exponents") or ops.is_few("rsqrt", x):
        return ops.elementwise("rsqrt", x)
    near, root = _near_and_far(ops, "rsqrt", x, lambda k: 2.0 ** (-k / 2))
    return ops.multiply(Hadamard(), ops.normalise_scale(near), root)


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
    return times_inverse(ops, ops.relu(x), inverse, largest=most, bound=1.01 * sqrt(most) + 1)


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
    near = ops.multiply(Hadamard(), x, scale, bound=2.0 if is_wide else None)
    return ops.normalised(name, near), other


def _to_one(exponent: int) -> float:
    return 2.0**-exponent


def times_inverse(ops: Primitives[V], x: V, inverse: V, *, largest: float, bound: float) -> V:
    """Multiply by the inverse root of numbers up to ``largest``; the product is within ``bound``.

    The inverse of large numbers keeps more digits than usual: what it has few of shows.
    """
    if not is_wide_range(ops.frac_bits, largest):
        return ops.mul(x, inverse)
    inverse = ops.truncated(inverse, frac_bits=exponent_bits(ops.frac_bits, largest))
    return ops.multiply(Hadamard(), ops.normalise_scale(x), inverse, bound=bound)
