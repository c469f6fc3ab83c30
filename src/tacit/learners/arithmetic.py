"""Arithmetic that learners share: counts to fractions, divisions with a stated range, inverses.

All are programs on ops. Counts over n rows are brought to at most 2^8, so that the fraction bits
hold as many digits of a small group as can be; `reciprocal` begins at 2^-8, hence groups of fewer
than n / 2^16 rows are treated as if they had that many.
"""

from math import ceil, log2
from typing import Any

import torch
from numpy.random import Generator, default_rng  # noqa: TID251 - public coins alone

from tacit.mpc.share import HEADROOM_BITS

REACH = 8
"""Sums over rows are scaled to at most 2^REACH times the bound of what is summed."""


def fixed(ops: Any, x: Any) -> Any:
    """Bring a value to the usual precision, ready for a product or a function."""
    return ops.normalise_scale(x)


def public_coins(*seed: int) -> Generator:
    """Return coins that everybody can toss alike; nothing secret is drawn from them."""
    return default_rng(seed)


def shift_of(rows: int, reach: int = REACH) -> int:
    """Return by how many bits a sum over so many rows is moved down."""
    return max(0, ceil(log2(max(rows, 1))) - reach)


def lowered(ops: Any, sums: Any, rows: int, reach: int = REACH) -> Any:
    """Move sums over rows down by a power of two, which costs no digit that matters."""
    return fixed(ops, ops.scale(ops.truncated(ops.ready(sums)), 2.0 ** -shift_of(rows, reach)))


def mean(ops: Any, sums: Any, rows: int) -> Any:
    """Divide sums over rows by how many rows there are."""
    moved = lowered(ops, sums, rows, reach=0)
    return fixed(ops, ops.scale(moved, 2.0 ** shift_of(rows, 0) / rows))


def inverse(ops: Any, x: Any) -> Any:
    """Give 1 / x for x from 2^-8 to 2^8, to about 2^-12 of the result.

    Range: below 2^-8 the result stays near 2^8. Two Newton steps bring the error of `reciprocal`
    (at 2^8 up to 5 %) below the last digits.
    """
    x = fixed(ops, x)
    found = ops.restate(fixed(ops, ops.reciprocal(x)), bound=1.1 * 2.0**REACH)
    for _ in range(2):
        product = ops.restate(fixed(ops, ops.mul(x, found)), bound=2.0)
        step = fixed(ops, ops.mul(found, ops.shift(ops.scale(product, -1.0), 2.0)))
        found = ops.restate(step, bound=1.1 * 2.0**REACH)
    return found


def group_means(ops: Any, sums: Any, counts: Any, *, rows: int, bound: float) -> Any:
    """Divide sums over groups of rows by how many rows each has: (g, d) by (g, 1).

    Range: of a group without rows the mean is 0. ``bound`` is that of what was summed.
    """
    # The product of a sum and an inverse must fit the word, though the mean itself is small.
    room = HEADROOM_BITS - 1 - 2 * ops.frac_bits - REACH - ceil(log2(1.1 * max(bound, 1.0)))
    reach = max(0, min(REACH, room))
    small = lowered(ops, counts, rows, reach)
    quotient = ops.mul(lowered(ops, sums, rows, reach), inverse(ops, small))
    return ops.restate(fixed(ops, quotient), bound=1.05 * bound + 2.0**-6)


def excess_bits(ops: Any, x: Any, y: Any, *, terms: int) -> int:
    """Return by how many bits sums of so many products could be too large for the word.

    Scores are compared with each other and no more, so that both may be made smaller alike.
    """
    largest: float = ops.number(x, "a product").bound * ops.number(y, "a product").bound * terms
    digits: int = ops.frac_bits
    return max(0, ceil(log2(max(largest, 1.0))) - (HEADROOM_BITS - 1 - 2 * digits))


def reduced(ops: Any, x: Any, bits: int) -> Any:
    """Divide by a power of two and drop the digits below the last one."""
    return fixed(ops, ops.scale(x, 2.0**-bits)) if bits else x


def row_weights(ops: Any, y: Any, weights: tuple[float, ...]) -> Any:
    """Give every row the weight of its class."""
    factor = ops.sum(ops.weigh(fixed(ops, y), torch.tensor(weights)), dim=1)
    return ops.restate(ops.reshape(fixed(ops, factor), (-1, 1)), bound=max(weights) + 2.0**-8)
