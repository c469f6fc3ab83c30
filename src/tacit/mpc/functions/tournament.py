"""The largest of many: heats of groups in which all are compared at once, as wide as pays.

A wide group leaves few for the next heat and costs many comparisons; a protocol that has a kernel
for groups says which widths follow each other.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TypeVar

import torch

from tacit.mpc.arithmetic.public import Public
from tacit.mpc.primitives import Primitives
from tacit.mpc.share import Spec

V = TypeVar("V")


@dataclass(frozen=True)
class Heat:
    """One step of a tournament: groups of so many, or pairs of which relu gives the larger."""

    size: int
    is_direct: bool = True
    by_relu: bool = False


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
