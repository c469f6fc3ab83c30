"""Element-wise functions that every protocol has: what they are in the clear, and how large."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Elementwise:
    """A function of one number.

    Attributes:
        plain: the function on clear numbers.
        largest: a bound on its values, given a bound on the size of its argument.
    """

    plain: Callable[[Tensor], Tensor]
    largest: Callable[[float], float]


SMALLEST = 2.0**-8
"""Functions with a pole at zero stay at their value here below this."""


def _step(x: Tensor) -> Tensor:
    return (x >= 0).to(x.dtype)


def _one(bound: float) -> float:
    return 1.0


def _same(bound: float) -> float:
    return bound


ELEMENTWISE: dict[str, Elementwise] = {
    "abs": Elementwise(torch.abs, _same),
    "erf": Elementwise(torch.erf, _one),
    "exp": Elementwise(lambda x: torch.exp(x.clamp(max=0.0)), _one),
    "gelu": Elementwise(torch.nn.functional.gelu, _same),
    "log": Elementwise(lambda x: torch.log(x.clamp(min=SMALLEST)), lambda b: 6.0 + b),
    "reciprocal": Elementwise(lambda x: 1 / x.clamp(min=SMALLEST), lambda b: 1 / SMALLEST),
    "relu": Elementwise(torch.relu, _same),
    "rsqrt": Elementwise(lambda x: x.clamp(min=SMALLEST).rsqrt(), lambda b: SMALLEST**-0.5),
    "sigmoid": Elementwise(torch.sigmoid, _one),
    "silu": Elementwise(torch.nn.functional.silu, _same),
    "softplus": Elementwise(torch.nn.functional.softplus, lambda b: b + 1.0),
    "sqrt": Elementwise(lambda x: x.clamp(min=0.0).sqrt(), lambda b: max(b, 1.0)),
    "step": Elementwise(_step, _one),
    "tanh": Elementwise(torch.tanh, _one),
}
"""``exp`` is that of arguments of at most zero, as a softmax has them; above it stays at one."""
