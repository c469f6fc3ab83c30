"""Arithmetic that learners share: counts to fractions, divisions with a stated range, inverses.

All are programs on ops. Counts over n rows are brought to at most 2^8, so that the fraction bits
hold as many digits of a small group as can be; `reciprocal` begins at 2^-8, hence groups of fewer
than n / 2^16 rows are treated as if they had that many.

Linear systems come after: moments of a table, and the inverse of a positive matrix by Newton's
iteration of Schulz, V ← V(2I - MV), on a matrix that is first brought to a unit diagonal, as
correlations have. Its bounds can be proved: M has eigenvalues from 0 to d, V starts as I/d and is a
polynomial of M, so that MV has eigenvalues from 0 to 1 and no entry beyond 1, and V at most doubles
in a step. After k steps directions of an eigenvalue above d/2^k are inverted; weaker ones are
damped as by a ridge, and nothing overflows.
"""

from math import ceil, log2
from typing import Any

import torch
from numpy.random import Generator, default_rng  # noqa: TID251 - public coins alone

from tacit.mpc.share import HEADROOM_BITS

REACH = 8
"""Sums over rows are scaled to at most 2^REACH times the bound of what is summed."""
LARGEST_INVERSE = 1.1 * 2.0 ** (REACH + 2)
"""How large `inverse` can be."""


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

    Range: below 2^-8 the result is between 2^8 and 1 / x, and no larger than `LARGEST_INVERSE`.
    Two Newton steps bring the error of `reciprocal` (at 2^8 up to 5 %) below the last digits; near
    0 each doubles what `reciprocal` gave, which is at most 2^8.
    """
    x = fixed(ops, x)
    found = ops.restate(fixed(ops, ops.reciprocal(x)), bound=1.1 * 2.0**REACH)
    for step in (1, 2):
        product = ops.restate(fixed(ops, ops.mul(x, found)), bound=2.0)
        better = fixed(ops, ops.mul(found, ops.shift(ops.scale(product, -1.0), 2.0)))
        found = ops.restate(better, bound=1.1 * 2.0 ** (REACH + step))
    return found


def group_means(ops: Any, sums: Any, counts: Any, *, rows: int, bound: float) -> Any:
    """Divide sums over groups of rows by how many rows each has: (g, d) by (g, 1).

    Range: of a group without rows the mean is 0. ``bound`` is that of what was summed.
    """
    # The product of a sum and an inverse must fit the word, though the mean itself is small.
    room = HEADROOM_BITS - 1 - 2 * ops.frac_bits - ceil(log2(LARGEST_INVERSE * max(bound, 1.0)))
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


STEPS = 14
"""Steps of Newton and Schulz: directions down to d/16,000 of the largest are resolved."""
LARGEST_WEIGHT = 1024.0
"""Where weights saturate: those of features and labels of usual size are far below."""
REFINEMENTS = 2
"""Times that what rounding left of a solution's error is solved for again."""


def ones_like_rows(ops: Any, x: Any) -> Any:
    """Give a column of ones for every row."""
    return ops.shift(ops.scale(ops.take(x, (0,), dim=1), 0.0), 1.0)


def gram(ops: Any, x: Any, y: Any) -> Any:
    """Give xᵀy / rows for (rows, d) and (rows, k), digits dropped only as far as must be."""
    rows = ops.shape(x)[0]
    bounds = [ops.number(one, "a product").bound for one in (x, y)]
    room = HEADROOM_BITS - 1 - 2 * ops.frac_bits
    excess = max(0, ceil(_log2(rows * bounds[0] * bounds[1])) - room)
    if y is x:
        excess += excess % 2
        left = right = reduced(ops, x, excess // 2)
    else:
        left, right = x, reduced(ops, y, excess)
    if left is x:
        ops.cache_openings(x)
    product = fixed(ops, ops.matmul(ops.transpose(left, 0, 1), right))
    found = ops.scale(mean(ops, product, rows), 2.0**excess)
    return ops.restate(fixed(ops, found), bound=bounds[0] * bounds[1] + 1.0)


def _log2(value: float) -> float:
    return float(torch.log2(torch.tensor(max(value, 1.0), dtype=torch.float64)))


def diagonal(ops: Any, matrix: Any) -> Any:
    """Give the diagonal of a square matrix, as a column."""
    size = ops.shape(matrix)[0]
    places = [at * (size + 1) for at in range(size)]
    return ops.reshape(ops.take(ops.reshape(matrix, (-1,)), places, dim=0), (size, 1))


def rounding(ops: Any, matrix: Any) -> float:
    """Return by how much rounding can make a direction of centred moments XᵀX / n negative.

    Each entry is off by a few last digits times the features' size, which is √bound.
    """
    bound: float = ops.number(matrix, "rounding").bound
    size: int = ops.shape(matrix)[0]
    return float(size * max(bound, 1.0) ** 0.5 * 2.0 ** (3 - ops.frac_bits))


def unit_diagonal(ops: Any, matrix: Any) -> tuple[Any, Any]:
    """Bring a positive matrix to a unit diagonal; return it and the factors, as a column.

    Range: diagonals from 2^-8 on; below, the diagonal comes out smaller than 1.
    """
    bound = ops.number(matrix, "scaling").bound
    factors = ops.restate(fixed(ops, ops.rsqrt(diagonal(ops, matrix))), bound=17.0)
    rows = fixed(ops, ops.mul(matrix, factors))
    both = fixed(ops, ops.mul(rows, ops.transpose(factors, 0, 1)))
    # Of a positive matrix no entry is beyond the root of the product of two diagonals.
    return ops.restate(both, bound=1.02 + 2.0**-8 * min(bound, 1.0)), factors


def invert(ops: Any, matrix: Any, *, steps: int = STEPS) -> Any:
    """Invert a positive matrix with a unit diagonal; see the top of this file for the range."""
    size = ops.shape(matrix)[0]
    eye = torch.eye(size, dtype=torch.float64)
    found = fixed(ops, ops.offset(ops.scale(matrix, 0.0), eye / size))
    for step in range(steps):
        product = ops.restate(fixed(ops, ops.matmul(matrix, found)), bound=1.5)
        rest = ops.offset(ops.scale(product, -1.0), 2 * eye)
        found = fixed(ops, ops.matmul(found, rest))
        found = ops.restate(found, bound=1.5 * 2.0 ** (step + 1) / size + 2.0**-4)
    return found


def solve(ops: Any, matrix: Any, right: Any, *, limit: float, steps: int = STEPS) -> Any:
    """Solve matrix · w = right, where these are XᵀX / n (or more) and Xᵀy / n.

    Args:
        ops: the interpreter.
        matrix: positive, (d, d).
        right: (d, k).
        limit: how large y is; the right side is no larger in units of the features' own size.
        steps: of `invert`.
    """
    # Constant features leave nothing but rounding, which must not be inverted as if it were
    # negative. The refinements below take away what this adds to other directions.
    size = ops.shape(matrix)[0]
    floor = rounding(ops, matrix) * torch.eye(size, dtype=torch.float64)
    raised, factors = unit_diagonal(ops, fixed(ops, ops.offset(matrix, floor)))
    inverse = invert(ops, raised, steps=steps)
    squares = fixed(
        ops, ops.weigh(fixed(ops, ops.square(factors)), torch.diag(floor).reshape(-1, 1))
    )
    # |Σ x·y| ≤ √(Σ x²)·√(Σ y²), of which the factors take the first away.
    limit = 1.02 * limit + 2.0**-4
    target = ops.restate(fixed(ops, ops.mul(right, factors)), bound=limit)
    found = ops.cap(fixed(ops, ops.matmul(inverse, target)), bound=LARGEST_WEIGHT)
    for _ in range(REFINEMENTS):
        there = ops.sub(ops.matmul(raised, found), ops.mul(squares, found))
        # What is left is no larger than the right side was, unless a weight was capped.
        rest = ops.cap(fixed(ops, ops.sub(target, fixed(ops, there))), bound=limit)
        more = fixed(ops, ops.matmul(inverse, rest))
        found = ops.cap(ops.add(found, more), bound=LARGEST_WEIGHT)
    return ops.cap(fixed(ops, ops.mul(found, factors)), bound=LARGEST_WEIGHT)
