"""Which is the largest, and in which order: comparisons of secrets with each other.

Everything is exact for values that differ by one unit in the last place or more. Of equal elements
`sealed` chooses the first; where a party compares permuted rows it is one of them at random.

The largest of many is found in heats of groups in which all are compared at once. A wide group
leaves few for the next heat and costs many comparisons; a protocol that has a kernel for groups
says which widths follow each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod
from typing import TypeVar

import torch

from tacit.errors import InputError
from tacit.mpc import shapes
from tacit.mpc.arithmetic.public import Public
from tacit.mpc.primitives import Primitives
from tacit.mpc.share import Spec

V = TypeVar("V")
Stage = tuple[tuple[int, int], ...]
"""Comparators that touch no element twice: the larger of (i, j) goes to i."""


@dataclass(frozen=True)
class Heat:
    """One step of a tournament: groups of so many, or pairs of which relu gives the larger."""

    size: int
    is_direct: bool = True
    by_relu: bool = False


def maximum(ops: Primitives[V], x: V, *, dim: int) -> V:
    """Give the largest element along a dimension, which disappears.

    Range: all. Error: that of the inputs. Cost: ⌈log2 n⌉ times that of relu; under sealed fewer
    rounds, in the heats that the protocol chooses.
    """
    axis = shapes.axis(ops.shape(x), dim)
    if ops.has("rowwise"):
        return ops.rowwise("maximum", x, dim=axis)
    return largest(ops, x, axis=axis)


def minimum(ops: Primitives[V], x: V, *, dim: int) -> V:
    """Give the smallest element along a dimension. Range, error and cost: as `maximum`."""
    return ops.scale(maximum(ops, ops.scale(x, -1), dim=dim), -1)


def argmax(ops: Primitives[V], x: V, *, dim: int) -> V:
    """Give the position of the largest element along a dimension, as a whole number.

    Range: all. Error: none. Cost: ⌈log2 n⌉ times a comparison and a product; under sealed fewer
    rounds, in the heats that the protocol chooses (16 for 6,400 numbers).
    """
    axis = shapes.axis(ops.shape(x), dim)
    places = ops.shape(x)[axis]
    if ops.has("rowwise"):
        hot = ops.rowwise("argmax", x, dim=axis)
        return ops.restate(ops.sum(_counted(ops, hot, axis), dim=axis), bound=max(places - 1, 1))
    if ops.has("largest"):
        return place_of_largest(ops, x, axis=axis)
    both = _with_positions(ops, x, axis)
    spec = ops.number(both, "finding the largest")
    while (length := ops.shape(both)[axis + 1]) > 1:
        # Neighbours meet, so that of equal elements the first stays; an odd one meets itself.
        first = ops.take(both, range(0, length, 2), dim=axis + 1)
        others = [min(at + 1, length - 1) for at in range(0, length, 2)]
        last = ops.take(both, others, dim=axis + 1)
        difference = ops.sub(first, last)
        wins = ops.indicate(ops.take(difference, (0,), dim=0))
        both = ops.restate(ops.add(last, ops.gate(wins, difference)), bound=spec.bound)
    return ops.restate(ops.part(ops.sum(both, dim=axis + 1), 1), bound=max(places - 1, 1))


def largest(ops: Primitives[V], x: V, *, axis: int) -> V:
    """Give the largest element along a dimension, which disappears.

    Range: all. Error: that of the inputs. Cost: that of the heats that the protocol chooses;
    without a kernel for groups ⌈log2 n⌉ times that of relu.
    """
    x = _moved_last(ops, ops.normalise_scale(x), axis)
    spec = ops.number(x, "taking the largest")
    for heat in _planned(ops, spec, is_placed=False):
        if heat.by_relu:
            first, last = ops.halves(x, dim=-1)
            x = ops.add(last, ops.relu(ops.sub(first, last)))
        else:
            alone = ops.reshape(x, (1, *ops.shape(x)))
            x = ops.part(_met(ops, alone, heat, bound=spec.bound, is_placed=False), 0)
        x = ops.restate(x, bound=spec.bound)
    return ops.sum(x, dim=-1)


def place_of_largest(ops: Primitives[V], x: V, *, axis: int) -> V:
    """Give the position of the largest element along a dimension: of equal ones that of the first.

    For protocols that have a kernel for groups. Range: all. Error: none. Cost: that of the heats
    that the protocol chooses.
    """
    x = _moved_last(ops, ops.normalise_scale(x), axis)
    spec = ops.number(x, "finding the largest")
    last = max(spec.shape[-1] - 1, 1)
    if spec.shape[-1] == 1:
        return ops.restate(ops.sum(ops.scale(x, 0.0), dim=-1), bound=last)
    both = ops.reshape(x, (1, *spec.shape))
    for number, heat in enumerate(_planned(ops, spec, is_placed=True)):
        both = _met(ops, both, heat, bound=spec.bound, is_placed=number == 0)
        if number == 0:  # a place counts from the start of its group
            both = ops.offset(both, _starts(len(spec.shape) - 1, ops.shape(both)[-1], heat.size))
        both = ops.restate(both, bound=max(spec.bound, last))
    return ops.restate(ops.part(ops.sum(both, dim=-1), 1), bound=last)


@lru_cache(maxsize=16)
def _starts(between: int, groups: int, size: int) -> Public:
    """Return 0 for the values, and for the places where their groups begin."""
    starts = torch.zeros(2, *(1,) * between, groups, dtype=torch.float64)
    starts[1] = size * torch.arange(groups)
    return Public.of(starts, frac_bits=0)


def _moved_last(ops: Primitives[V], x: V, axis: int) -> V:
    """Move a dimension behind the others."""
    for at in range(axis, len(ops.shape(x)) - 1):
        x = ops.transpose(x, at, at + 1)
    return x


def _met(ops: Primitives[V], x: V, heat: Heat, *, bound: float, is_placed: bool) -> V:
    """Let groups of the last dimension meet; the last number is repeated to fill the last group."""
    *rest, length = ops.shape(x)
    groups = -(-length // heat.size)
    missing = groups * heat.size - length
    if missing:  # of equal ones the first wins: what is repeated changes nothing
        x = ops.concatenate((x, ops.take(x, (length - 1,) * missing, dim=-1)), dim=-1)
    x = ops.reshape(x, (*rest, groups, heat.size))
    return ops.apply(ops.make("largest", bound, is_placed, heat.is_direct), x)


def _planned(ops: Primitives[V], spec: Spec, *, is_placed: bool) -> tuple[Heat, ...]:
    rows, length = prod(spec.shape[:-1]), spec.shape[-1]
    if ops.has("largest"):
        facts = rows, length, spec.frac_bits, spec.bound
        found: tuple[Heat, ...] = ops.choose("heats", *facts, is_placed=is_placed)
        return found
    return (Heat(2, by_relu=True),) * (length - 1).bit_length()


def _counted(ops: Primitives[V], hot: V, axis: int) -> V:
    """Multiply one-hot values by their public positions."""
    shape = ops.shape(hot)
    return ops.weigh(hot, _positions(shape[axis], len(shape) - axis - 1))


@lru_cache(maxsize=16)
def _positions(count: int, behind: int) -> Public:
    """Return 0, 1, … along a dimension that has so many behind it."""
    places = torch.arange(count, dtype=torch.float64)
    return Public.of(places.view(-1, *(1,) * behind), frac_bits=0)


def _with_positions(ops: Primitives[V], x: V, axis: int) -> V:
    """Stack values and their positions, (2, …), so that one product moves both."""
    x = ops.normalise_scale(x)
    ones = ops.shift(ops.scale(x, 0.0), 1.0)
    both = (x, _counted(ops, ones, axis))
    return ops.concatenate([ops.reshape(one, (1, *ops.shape(x))) for one in both], dim=0)


def one_hot(ops: Primitives[V], x: V, *, classes: int) -> V:
    """Give 1 at the position that a whole number names and 0 elsewhere, in a new last dimension.

    Range: whole numbers from 0 to classes - 1; others count as the nearest of these. Error:
    none. Cost: classes - 1 comparisons per number, at once.
    """
    if classes < 2:
        raise InputError(f"wanted two classes at least, got {classes}")
    shape = ops.shape(x)
    thresholds = torch.arange(1, classes, dtype=torch.float64) - 0.5
    wide = ops.reshape(ops.normalise_scale(x), (*shape, 1))
    # [x >= 1], [x >= 2], …; a position is where this staircase ends.
    reached = ops.indicate(ops.offset(wide, -thresholds))
    zero = ops.scale(ops.take(reached, (0,), dim=-1), 0.0)
    above = ops.concatenate((reached, zero), dim=-1)
    below = ops.concatenate((ops.shift(zero, 1.0), reached), dim=-1)
    return ops.restate(ops.sub(below, above), bound=1.0)


def argmax_one_hot(ops: Primitives[V], x: V, *, dim: int) -> V:
    """Give 1 at the largest element along a dimension and 0 elsewhere.

    Range: all; of equal elements one gets the 1. Error: none. Cost: that of `argmax` and of n - 1
    comparisons at once.
    """
    shape = ops.shape(x)
    axis = shapes.axis(shape, dim)
    if ops.has("rowwise"):
        return ops.rowwise("argmax", x, dim=axis)
    if shape[axis] == 1:
        return ops.shift(ops.scale(x, 0.0), 1.0)
    hot = one_hot(ops, argmax(ops, x, dim=axis), classes=shape[axis])
    for at in range(len(shape) - 1, axis, -1):
        hot = ops.transpose(hot, at, at - 1)
    return hot


def sort(ops: Primitives[V], x: V, *, payload: Sequence[V] = ()) -> tuple[V, ...]:
    """Sort the last dimension, largest first, and carry other tensors of the same shape along.

    Range: all. Error: none. Equal elements may change places. Cost: about (log2 n)² / 2 times a
    comparison and, with a payload, a product (Batcher's network of merges, any length).
    """
    shape = ops.shape(x)
    return top(ops, x, count=shape[shapes.axis(shape, -1)], payload=payload)


def top(ops: Primitives[V], x: V, *, count: int, payload: Sequence[V] = ()) -> tuple[V, ...]:
    """Give the largest elements of the last dimension, largest first, and what belongs to them.

    Range: all. Error: none. Cost: as `sort`, without the comparisons that only order the rest.
    """
    shape = ops.shape(x)
    length = shape[shapes.axis(shape, -1)]
    if not 1 <= count <= length:
        raise InputError(f"wanted the largest {count} of {length} elements")
    for other in payload:
        if ops.shape(other) != ops.shape(x):
            raise InputError(f"a payload of {ops.shape(other)} does not fit {ops.shape(x)}")
    if ops.has("rowwise") and not payload:
        return (ops.take(ops.rowwise("sort", x, dim=-1), range(count), dim=-1),)
    stacked = [ops.reshape(ops.normalise_scale(one), (1, *ops.shape(one))) for one in (x, *payload)]
    rows = ops.concatenate(stacked, dim=0)
    for stage in pruned(length, count):
        rows = _exchange(ops, rows, stage)
    rows = ops.take(rows, range(count), dim=-1)
    return tuple(ops.part(rows, at) for at in range(len(stacked)))


def _exchange(ops: Primitives[V], rows: V, stage: Stage) -> V:
    """Run one stage: the larger key of every pair goes first, and its row with it."""
    length, bound = ops.shape(rows)[-1], ops.number(rows, "sorting").bound
    first = ops.take(rows, [i for i, _ in stage], dim=-1)
    last = ops.take(rows, [j for _, j in stage], dim=-1)
    difference = ops.sub(first, last)
    if ops.shape(rows)[0] == 1:
        moved = ops.relu(difference)
    else:
        moved = ops.gate(ops.indicate(ops.take(difference, (0,), dim=0)), difference)
    touched = [i for i, _ in stage] + [j for _, j in stage]
    rest = [at for at in range(length) if at not in set(touched)]
    parts = [ops.add(last, moved), ops.sub(first, moved)]
    parts += [ops.take(rows, rest, dim=-1)] if rest else []
    order = [*touched, *rest]
    joined = ops.concatenate(parts, dim=-1)
    back = ops.take(joined, [order.index(at) for at in range(length)], dim=-1)
    return ops.restate(back, bound=bound)


@cache
def network(length: int) -> tuple[Stage, ...]:
    """Return Batcher's odd-even merge sort (1968) for any length, as stages of comparators."""
    stages, p = [], 1
    while p < length:
        k = p
        while k >= 1:
            stages.append(
                tuple(
                    (i + j, i + j + k)
                    for j in range(k % p, length - k, 2 * k)
                    for i in range(min(k, length - j - k))
                    if (i + j) // (2 * p) == (i + j + k) // (2 * p)
                )
            )
            k //= 2
        p *= 2
    return tuple(stage for stage in stages if stage)


@cache
def pruned(length: int, count: int) -> tuple[Stage, ...]:
    """Leave out the comparators that do not matter for the first outputs."""
    wanted, kept = set(range(count)), []
    for stage in reversed(network(length)):
        used = tuple((i, j) for i, j in stage if i in wanted or j in wanted)
        wanted |= {at for pair in used for at in pair}
        kept.append(used)
    return tuple(stage for stage in reversed(kept) if stage)
