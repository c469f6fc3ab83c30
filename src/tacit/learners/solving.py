"""Linear systems on shares: moments of a table, and the inverse of a positive matrix.

The inverse is Newton's iteration of Schulz, V ← V(2I - MV), on a matrix that is first brought to a
unit diagonal, as correlations have. Its bounds can be proved: M has eigenvalues from 0 to d, V
starts as I/d and is a polynomial of M, so that MV has eigenvalues from 0 to 1 and no entry beyond
1, and V at most doubles in a step. After k steps directions of an eigenvalue above d/2^k are
inverted; weaker ones are damped as by a ridge, and nothing overflows.
"""

from math import ceil
from typing import Any

import torch

from tacit.learners.arithmetic import fixed, mean, reduced
from tacit.mpc.share import HEADROOM_BITS

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
    unit, factors = unit_diagonal(ops, matrix)
    inverse = invert(ops, unit, steps=steps)
    # |Σ x·y| ≤ √(Σ x²)·√(Σ y²), of which the factors take the first away.
    target = ops.restate(fixed(ops, ops.mul(right, factors)), bound=1.02 * limit + 2.0**-4)
    found = ops.cap(fixed(ops, ops.matmul(inverse, target)), bound=LARGEST_WEIGHT)
    for _ in range(REFINEMENTS):
        rest = ops.sub(target, fixed(ops, ops.matmul(unit, found)))
        # What is left is no larger than the right side was: the iteration contracts.
        rest = ops.restate(fixed(ops, rest), bound=ops.number(target, "solving").bound)
        more = fixed(ops, ops.matmul(inverse, rest))
        found = ops.cap(ops.add(found, more), bound=LARGEST_WEIGHT)
    return ops.cap(fixed(ops, ops.mul(found, factors)), bound=LARGEST_WEIGHT)
