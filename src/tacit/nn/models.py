"""Models as functions of ops."""

from collections.abc import Mapping
from typing import TypeVar

from tacit.nn.ops import Ops

T = TypeVar("T")


def linear(ops: Ops[T], weights: Mapping[str, T], x: T) -> T:
    """Apply an affine map; ``weight`` is (features, outputs), ``bias`` is (outputs,)."""
    return ops.add(ops.matmul(x, weights["weight"]), weights["bias"])


def logistic_score(ops: Ops[T], weights: Mapping[str, T], x: T) -> T:
    """Give the probability of the positive class by logistic regression."""
    return ops.sigmoid(linear(ops, weights, x))


def logistic_class(ops: Ops[T], weights: Mapping[str, T], x: T) -> T:
    """Give only the class, 0 or 1: the sign of the score, never the score itself."""
    return ops.is_positive(linear(ops, weights, x))
