"""What a training step asks of an interpreter; interpreters that train in the clear or count."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from math import ceil, frexp, log2, prod
from typing import Generic, Protocol, TypeVar, cast

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
"""With fewer the factor is off by more than 2^-9 of itself: then the value is truncated first."""
_ROOM_BITS = 58
"""Of the 62 bits that a word may use: four are left for sums."""


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


class LatticeStepOps(PlainStepOps):
    """Train in the clear on the lattice of the noise: what noise is added to lies on it."""

    def __init__(self, dials: Mapping[str, float], frac_bits: int) -> None:
        super().__init__(dials)
        self._units = 2.0**frac_bits

    def normalise_scale(self, value: Tensor) -> Tensor:
        """Drop the digits below the last one."""
        return torch.trunc(value * self._units) / self._units


class Counting(Generic[T]):
    """Runs another interpreter, and counts the elements that `cap` cuts off.

    A cap keeps numbers within the ring. What it cuts off changes the training without any error.

    Cost: two comparisons more for each element that could be beyond a cap.
    """

    def __init__(self, ops: ProtocolOps[T]) -> None:
        self._ops = ops
        self._found: list[T] = []
        self.elements = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._ops, name)

    def cap(self, x: T, *, bound: float) -> T:
        """Saturate at ±bound, and count where that changes something."""
        ops = self._ops
        if ops.reaches(x, bound=bound):
            x = ops.normalise_scale(x)
            flat = ops.reshape(x, (-1,))
            # Whole units in the last place: what is at the bound itself stays as it is.
            edge = -bound - 2.0**-ops.frac_bits
            for side in (flat, ops.scale(flat, -1.0)):
                self._found.append(ops.sum(ops.indicate(ops.shift(side, edge)), dim=0))
            self.elements += prod(ops.shape(x))
        return ops.cap(x, bound=bound)

    def steps(self) -> StepOps[T]:
        """Return this as what a training step asks for."""
        return cast(StepOps[T], self)

    def total(self) -> T | None:
        """Return how many elements were cut off, in all; None where none could be."""
        if not self._found:
            return None
        return self._ops.reshape(reduce(self._ops.add, self._found), (1,))
