"""What a training step asks of an interpreter, and the interpreter that trains in the clear."""

from typing import Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from tacit.nn import TorchOps
from tacit.nn.ops import TrainableOps

T = TypeVar("T")


class StepOps(TrainableOps[T], Protocol[T]):
    """The verbs of a training step: those of models, and those that mind precision and bounds."""

    def settle(self, value: T) -> T:
        """Bring a value to the usual precision."""
        ...

    def restate(self, value: T, *, bound: float) -> T:
        """State a smaller bound."""
        ...

    def rsqrt_below(self, x: T) -> T:
        """Give a number just below 1 / √x, never above it."""
        ...

    def cross_entropy(self, logits: T, labels: T) -> T:
        """Give the mean of -Σ labels·log softmax(logits) over rows."""
        ...

    def binary_cross_entropy(self, logits: T, labels: T) -> T:
        """Give the mean of log(1 + exp(x)) - x·y over all elements."""
        ...


class PlainStepOps(TorchOps):
    """Train in the clear, with the same programs: the curve to compare a private one with."""

    def settle(self, value: Tensor) -> Tensor:
        """Give the value as it is: floats have no fixed precision."""
        return value

    def restate(self, value: Tensor, *, bound: float) -> Tensor:
        """Give the value as it is: floats need no bounds."""
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
