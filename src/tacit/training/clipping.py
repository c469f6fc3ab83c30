"""Clipping per record on shares, without a gradient per record, and the sensitivity it leaves.

Ghost norms (Goodfellow 2015; Lee and Kifer 2021; Li et al. 2022): the gradient of a dense layer for
one record is the outer product of its inputs a and of the gradient g at its outputs, so that its
norm is ‖a‖·‖g‖ and it need not be made. Where weights meet a record several times, Cauchy and
Schwarz bound the sum: a record's gradient is no longer than √(Σ times·‖a‖²·‖g‖²) over the places
where weights meet its values (`tacit.nn.records`). Its owner knows the norm of the row itself, and
shares it; all others are squared on shares. The factor is min(1, clip / norm) from below:
everything before the root is rounded up, and the root is never above the true one.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from math import ceil, floor, frexp, log2, prod, sqrt
from typing import TypeVar

import torch
from torch import Tensor

from tacit.mpc.ops import ProtocolOps
from tacit.mpc.share import HEADROOM_BITS
from tacit.nn.records import Use
from tacit.nn.tape import Node
from tacit.training.ops import StepOps

V = TypeVar("V")
LARGEST_RATIO = 2.0**20
"""A record whose gradient is longer than 2^10 clips counts for nothing: so far reaches the root."""
ROOT_RANGE = 2.0**16
"""So far reaches the inverse root; a larger ratio is divided by 16, and what comes out by 4."""


def shorten_rows(x: Tensor, *, frac_bits: int) -> Tensor:
    """Bring rows to a norm of at most 1, digits dropped towards zero; shorter ones stay.

    Its owner does this with its own rows.

    Guarantee: the words that are shared have a norm of at most 2^frac_bits, in whole numbers.
    """
    flat = x.double().flatten(1)
    norms = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
    # The margin is for the norm and the quotient, which are floats.
    short = flat / norms.clamp(min=1.0) * (1 - 2.0**-40)
    return (torch.trunc(short * 2.0**frac_bits) * 2.0**-frac_bits).reshape(x.shape)


def square_norms(x: Tensor, *, frac_bits: int) -> Tensor:
    """Give ‖x‖² of rows as they are shared, rounded up: (rows, 1)."""
    squares = x.double().flatten(1).square().sum(dim=1, keepdim=True)
    # The margin is for a sum of floats, each exact.
    return (torch.ceil(squares * (1 + 2.0**-40) * 2.0**frac_bits) * 2.0**-frac_bits).clamp(max=1.0)


def clip_factors(
    ops: StepOps[V],
    uses: Sequence[Use[V]],
    gradients: Sequence[V],
    *,
    clip: float,
    known: Mapping[int, V],
) -> V:
    """Give numbers of at most min(1, clip / norm), one for every record: (records, 1).

    Range: all norms; of one beyond 2^10 clips the factor is 0. Clips from 2^-6 to 2.
    Guarantee: never above, as everything before the root is rounded up: by two units in the last
    place where less than one can have been lost. Error: that of `rsqrt_below`.

    Args:
        ops: the interpreter.
        uses: where weights meet records.
        gradients: of the outputs of every use.
        clip: the norm.
        known: squared norms that owners shared, by the number of the node that they are of.
    """
    squares: dict[int, V] = dict(known)
    parts = []
    for use, gradient in zip(uses, gradients, strict=True):
        part = square_norm(ops, gradient)
        if use.inputs is not None:
            node = source(use.inputs)
            if node.number not in squares:
                squares[node.number] = square_norm(ops, node.value)
            part = _up(ops, ops.mul(part, squares[node.number]))
        # A whole number times, which loses no digit.
        parts.append(ops.scale(part, float(use.times)) if use.times > 1 else part)
    # (norm / clip)²: where it is at most 1 the factor is 1, and the root is taken of 1.
    ratio = _up(ops, ops.scale(reduce(ops.add, parts), _rounded_up(clip**-2, ops)))
    is_private = isinstance(ops, ProtocolOps)  # floats have no public bounds
    fits = None
    if is_private and ops.reaches(ratio, bound=LARGEST_RATIO):
        fits = ops.indicate(ops.shift(ops.scale(ratio, -1.0), LARGEST_RATIO))
        ratio = ops.restate(ops.normalise_scale(ops.gate(fits, ratio)), bound=LARGEST_RATIO)
    is_long = is_private and ops.reaches(ratio, bound=ROOT_RANGE)
    above = ops.relu(ops.shift(ratio, -1.0))
    ratio = ops.shift(above, 1.0)
    if is_long:
        ratio = _up(ops, ops.scale(ratio, 2.0**-4))
    factor = ops.normalise_scale(ops.rsqrt_below(ratio))
    if is_long:
        factor = ops.normalise_scale(ops.scale(factor, 2.0**-2))
        factor = ops.shift(factor, -_unit(ops))
    factor = ops.restate(factor, bound=1.0)
    return factor if fits is None else ops.normalise_scale(ops.gate(fits, factor))


def square_norm(ops: StepOps[V], x: V) -> V:
    """Give ‖x‖² of every record, rounded up: (records, 1)."""
    rows, flat = ops.shape(x)[0], prod(ops.shape(x)[1:])
    squares = ops.square(ops.reshape(x, (rows, flat)))
    lost = 1
    if isinstance(ops, ProtocolOps):
        private: ProtocolOps[V] = ops
        if private.number(squares, "summing").largest * flat >= 1 << HEADROOM_BITS:
            squares, lost = private.normalise_scale(squares), flat
    # A truncation loses less than a unit: one of the sum, or one of each square and one of the sum.
    total = ops.normalise_scale(ops.sum(squares, dim=1))
    return ops.reshape(ops.shift(total, (lost + 1) * _unit(ops)), (rows, 1))


def scale_records(ops: StepOps[V], gradient: V, factors: V) -> V:
    """Multiply every record's part by its factor; off by less than a unit in each element."""
    rows = ops.shape(gradient)[0]
    wide = ops.reshape(factors, (rows, *(1,) * (len(ops.shape(gradient)) - 1)))
    return ops.normalise_scale(ops.mul(gradient, wide))


def source(node: Node[V]) -> Node[V]:
    """Return what a node was before it was reshaped: its norm per record is the same."""
    while node.is_view:
        node = node.parents[0]
    return node


def sensitivity(
    *, clip: float, roundings: Sequence[tuple[float, int]], weights: int, frac_bits: int
) -> float:
    """Return by how much one record can move the sum of all clipped gradients, in L2.

    Args:
        clip: the norm.
        roundings: of every use, the largest norm² of a record's inputs (with its ``times``) and how
            many numbers of a record come out: each of these is off by less than a unit.
        weights: how many numbers the sum has. It is rescaled once: by less than a unit each, with
            the record and without it.
        frac_bits: a unit is 2^-frac_bits.
    """
    unit = 2.0**-frac_bits
    return clip + unit * (sqrt(sum(size * count for size, count in roundings)) + 2 * sqrt(weights))


def _up(ops: StepOps[V], value: V) -> V:
    """Rescale, and add what can have been lost."""
    return ops.shift(ops.normalise_scale(value), 2 * _unit(ops))


def _unit(ops: StepOps[V]) -> float:
    return 2.0**-ops.frac_bits if isinstance(ops, ProtocolOps) else 0.0


def _rounded_up(factor: float, ops: StepOps[V]) -> float:
    """Return a factor that `scale` takes as it is, not below the one given."""
    if not isinstance(ops, ProtocolOps) or frexp(factor)[0] == 0.5:
        return factor
    unit: float = 2.0 ** (floor(log2(factor)) - ops.frac_bits)
    return ceil(factor / unit) * unit
