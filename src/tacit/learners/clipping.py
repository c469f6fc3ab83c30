"""Clipping per record on shares, without a gradient per record, and the sensitivity it leaves.

The gradient of record i of a dense layer is the outer product of its row x_i and its error e_i, so
that its norm is ‖x_i‖·‖e_i‖. Its owner shortens the row to norm 1; the step shortens the error to
the clip C; and the clipped sum of all records is one matrix product.
"""

from math import ceil, floor, frexp, log2, sqrt
from typing import Any

import torch
from torch import Tensor

from tacit.learners.arithmetic import fixed

LARGEST_ERROR = 2.02
"""No element of p - y is larger: `softmax` gives at most 1.01, and labels are 0 or 1."""


def shorten_rows(x: Tensor, *, frac_bits: int, has_intercept: bool) -> Tensor:
    """Bring rows, with a constant beside them if there is one, to a norm of at most 1.

    Its owner does this with its own rows. Shorter rows stay as they are.

    Guarantee: the words that are shared have a norm of at most 2^frac_bits, in whole numbers:
    digits are dropped towards zero.
    """
    if has_intercept:
        x = torch.cat([x, torch.ones_like(x[:, :1])], dim=1)
    norms = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    # The margin is for the norm and the quotient, which are floats.
    short = x / norms.clamp(min=1.0) * (1 - 2.0**-40)
    words: Tensor = torch.trunc(short * 2.0**frac_bits)
    return words * 2.0**-frac_bits


def clip_errors(ops: Any, errors: Any, *, clip: float) -> Any:
    """Scale rows of errors (rows, classes) by min(1, clip / norm), from below.

    Range: elements of at most `LARGEST_ERROR`; clips from 2^-6 to 2.
    Guarantee: no row of the result is longer than clip + √classes units in the last place, of
    which `sensitivity` makes the number that an event states.
    Cost: a square, a comparison and an inverse root for one number per row, and a product.
    """
    errors = ops.restate(fixed(ops, errors), bound=LARGEST_ERROR)
    factors = ops.reshape(clip_factors(ops, errors, clip=clip), (-1, 1))
    clipped = fixed(ops, ops.mul(errors, factors))
    return ops.restate(clipped, bound=min(clip, LARGEST_ERROR) + 2.0**-ops.frac_bits)


def clip_factors(ops: Any, errors: Any, *, clip: float) -> Any:
    """Give numbers of at most min(1, clip / norm), one for every row of errors.

    Guarantee: never above, as everything before the root is rounded up: by two units in the last
    place where less than one can have been lost. Error: that of `rsqrt_below`.
    """
    unit = 2.0**-ops.frac_bits
    squares = fixed(ops, ops.total(ops.square(errors), dim=1))
    ratio = fixed(ops, ops.scale(ops.shift(squares, 2 * unit), _rounded_up(clip**-2, ops)))
    excess = ops.relu(ops.shift(ratio, 2 * unit - 1.0))
    return ops.restate(fixed(ops, ops.rsqrt_below(ops.shift(excess, 1.0))), bound=1.0)


def clipped_sum(ops: Any, rows: Any, clipped: Any) -> Any:
    """Give rowsᵀ·clipped, the sum of all clipped gradients: exact in the ring, rescaled once."""
    return fixed(ops, ops.matmul(ops.transpose(rows, 0, 1), clipped))


def sensitivity(*, clip: float, columns: int, classes: int, frac_bits: int) -> float:
    """Return by how much one record can move the sum of all clipped gradients, in L2.

    Rows have norm 1 at most, and a clipped error is off by less than a unit in each element. The
    sum is rescaled once: by less than a unit in each element, with the record and without it.
    """
    unit = 2.0**-frac_bits
    return clip + sqrt(classes) * unit + 2 * sqrt(columns * classes) * unit


def _rounded_up(factor: float, ops: Any) -> float:
    """Return a factor that `scale` takes as it is, not below the one given."""
    if frexp(factor)[0] == 0.5:
        return factor
    unit: float = 2.0 ** (floor(log2(factor)) - ops.frac_bits)
    return ceil(factor / unit) * unit
