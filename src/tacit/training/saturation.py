"""Counting what saturates: hidden values and gradients beyond the cap, on rows kept for measuring.

A cap keeps numbers within the ring. What it cuts off changes the training without any error, so
that it is counted at every look and shown with the loss, to those who see that.
"""

from functools import reduce
from math import prod
from typing import Generic, TypeVar, cast

from tacit.mpc.ops import ProtocolOps
from tacit.training.verbs import StepOps

V = TypeVar("V")
MANY = 1e-4
"""From this share of all values on, a report says that there are many."""


class Counting(Generic[V]):
    """Runs another interpreter, and counts the elements that `cap` cuts off.

    Cost: two comparisons more for each element that could be beyond a cap.
    """

    def __init__(self, ops: ProtocolOps[V]) -> None:
        self._ops = ops
        self._found: list[V] = []
        self.elements = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._ops, name)

    def cap(self, x: V, *, bound: float) -> V:
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

    def steps(self) -> StepOps[V]:
        """Return this as what a training step asks for."""
        return cast(StepOps[V], self)

    def total(self) -> V | None:
        """Return how many elements were cut off, in all; None where none could be."""
        if not self._found:
            return None
        return self._ops.reshape(reduce(self._ops.add, self._found), (1,))


def describe(step: int, count: int, of: int, cap: float | None) -> str:
    """Say in a report how much saturated."""
    at = "" if cap is None else f" at ±{cap:g}"
    text = (
        f"After step {step}, {count} of {of} hidden values and gradients of held-out rows "
        f"saturated{at} ({100 * count / of:.2g} %)"
    )
    if count <= MANY * of:
        return text + "."
    return text + f": above {MANY:g} they change what is learned; choose a larger model.cap."
