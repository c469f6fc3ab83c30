"""What a training step asks of an interpreter, and the interpreter that trains in the clear."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from math import ceil, frexp, log2
from typing import Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from tacit.mpc.ops import ProtocolOps
from tacit.nn import TorchOps
from tacit.nn.ops import TrainableOps

T = TypeVar("T")

_FACTOR_BITS = 12
"""A public factor gets so many significant bits where there is room for them."""
_FEWEST_BITS = 9
_ROOM_BITS = 58
"""What is left for sums of the 62 bits that a word may use."""


class StepOps(TrainableOps[T], Protocol[T]):
    """The verbs of a training step: those of models, and those that mind precision and bounds."""

    def normalise_scale(self, value: T) -> T:
        """Bring a value to the usual precision."""
        ...

    def rsqrt_below(self, x: T) -> T:
        """Give a number just below 1 / √x, never above it."""
        ...

    def family(self, name: str) -> AbstractContextManager[None]:
        """Compute functions by the protocol of a family, such as "softmax"."""
        ...

    def tune(self, x: T, name: str, *, bound: float) -> T:
        """Multiply by a public number of at most ``bound`` that the schedule gives, by name."""
        ...

    def keep_rows(self, x: T, name: str) -> T:
        """Make rows zero that do not count, by zeros and ones that whoever computes has by name."""
        ...

    def cross_entropy(self, logits: T, labels: T) -> T:
        """Give the mean of -Σ labels·log softmax(logits) over rows."""
        ...

    def binary_cross_entropy(self, logits: T, labels: T) -> T:
        """Give the mean of log(1 + exp(x)) - x·y over all elements."""
        ...


def scale_unnormalised(ops: StepOps[T], x: T, factor: float, *, beside: T) -> T:
    """Multiply by a public number without bringing the value to the usual precision first.

    A product that is to be scaled and then added to something would otherwise be truncated twice,
    and gradients are as large as all weights. The factor is written as k·2^-s, which costs
    nothing, with as many bits of k as fit into the word.

    Args:
        ops: the interpreter.
        x: the value.
        factor: the public number; off by less than 2^-9 of itself.
        beside: what the result will be added to.
    """
    if not isinstance(ops, ProtocolOps):
        return ops.scale(x, factor)
    private: ProtocolOps[T] = ops
    spec = private.number(x, "scaling")
    half, exponent = frexp(factor)
    room = _ROOM_BITS - spec.largest.bit_length()
    # What it is added to is brought to the same precision, and must fit, too.
    size = max(0, ceil(log2(private.number(beside, "adding").bound)))
    above = _ROOM_BITS - spec.frac_bits + exponent - size
    bits = min(_FACTOR_BITS, room, above)
    if bits < _FEWEST_BITS or abs(half) == 0.5:
        return private.scale(x, factor)
    whole = round(half * (1 << bits))
    return private.scale(private.scale(x, float(whole)), 2.0 ** (exponent - bits))


class PlainStepOps(TorchOps):
    """Train in the clear, with the same programs: the curve to compare a private one with.

    Args:
        dials: the public numbers of this step, by name.
    """

    def __init__(self, dials: Mapping[str, float] | None = None) -> None:
        self._dials = dials or {}

    def family(self, name: str) -> AbstractContextManager[None]:
        """Do nothing: in the clear all functions are computed alike."""
        return nullcontext()

    def tune(self, x: Tensor, name: str, *, bound: float) -> Tensor:
        """Multiply by a public number that the schedule gives."""
        return x * self._dials[name]

    def keep_rows(self, x: Tensor, name: str) -> Tensor:
        """Give all rows: in the clear there are none that do not count."""
        return x

    def normalise_scale(self, value: Tensor) -> Tensor:
        """Give the value as it is: floats have no fixed precision."""
        return value

    def rsqrt(self, x: Tensor) -> Tensor:
        """Give 1 / √x, with the floor that a private run has."""
        return torch.rsqrt(x.clamp(min=2.0**-8))

    def rsqrt_below(self, x: Tensor) -> Tensor:
        """Give a number just below 1 / √x."""
        return self.rsqrt(x) * (1 - 2.0**-8) - 2.0**-12

    def cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Give the mean of -Σ labels·log softmax(logits) over rows."""
        return -(labels * torch.log_softmax(logits, dim=-1)).sum(dim=-1).mean()

    def binary_cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Give the mean of log(1 + exp(x)) - x·y over all elements."""
        return functional.binary_cross_entropy_with_logits(logits, labels)
