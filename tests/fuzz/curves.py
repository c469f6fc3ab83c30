"""Verbs with a stated error: curves, and functions with a pole."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fuzz.known import Known, above_pole, product, smooth
from fuzz.verb import Verb, alike, any_shape, twins


def _divided(x: Known, y: Known, ulp: float) -> Known:
    under = above_pole(y, torch.reciprocal, lambda low: low**-2, lambda r: 2.5e-4 * r + 2 * ulp)
    return product(x, under, torch.mul, 2 * ulp)


def _root(x: Known, ulp: float) -> Known:
    """x times its inverse root, of which large numbers leave few digits up to a bound of 2^16."""
    few = ulp if x.bound <= 2.0**16 else 0.0
    return above_pole(
        x, torch.sqrt, lambda low: low**-0.5 / 2, lambda r: 3e-4 * r + few * r * r + 2 * ulp
    )


def _gelu_slope(v: Tensor) -> Tensor:
    normal = (-v * v / 2).exp() / math.sqrt(2 * math.pi)
    return (1 + torch.erf(v / math.sqrt(2))) / 2 + v * normal


def _of_many(ops: Any, x: Any, name: str) -> Any:
    """As it is cut for more numbers than a test may have."""
    if not ops.has("elementwise_many"):
        return ops.elementwise(name, x)
    x = ops.normalise_scale(x)
    return ops.apply(ops.make("elementwise_many", name, ops.frac_bits, ops.bound(x)), x)


MANY = {
    "exp": (lambda v: v.clamp(max=0).exp(), 1.0, 1e-4),
    "gelu": (functional.gelu, 1.13, 7.5e-4),
    "silu": (functional.silu, 1.1, 7.5e-4),
}


PRODUCTS = {
    "sigmoid": (torch.sigmoid, 0.25, 7.5e-4),
    "tanh": (torch.tanh, 1.0, 7.5e-4),
    "gelu": (functional.gelu, 1.13, 1.5e-3),
    "silu": (functional.silu, 1.1, 1.5e-3),
    "exp": (lambda v: v.clamp(max=0).exp(), 1.0, 1e-4),
}


def _rsqrt_below(x: Known, ulp: float) -> Known:
    """Below the true value, by 0.6 % and 2^-11 at most: around the middle of that."""
    middle, half = 1 - 3e-3, 3e-3
    found = above_pole(
        x, torch.rsqrt, lambda low: low**-1.5 / 2, lambda r: half * r + 2.0**-12 + ulp
    )
    return Known(found.v * middle - 2.0**-12, found.e)


CURVES: dict[str, Verb] = {
    "sigmoid": Verb(
        any_shape,
        lambda ops, x: ops.sigmoid(x),
        lambda x, ulp: smooth(x, torch.sigmoid, 0.25, 7.5e-4),
        is_curve=True,
    ),
    "tanh": Verb(
        any_shape,
        lambda ops, x: ops.tanh(x),
        lambda x, ulp: smooth(x, torch.tanh, 1.0, 7.5e-4),
        is_curve=True,
    ),
    "erf": Verb(
        any_shape,
        lambda ops, x: ops.erf(x),
        lambda x, ulp: smooth(x, torch.erf, 1.13, 7.5e-4),
        is_curve=True,
    ),
    "gelu": Verb(
        any_shape,
        lambda ops, x: ops.gelu(x),
        lambda x, ulp: smooth(x, functional.gelu, 1.13, 7.5e-4),
        is_curve=True,
    ),
    "silu": Verb(
        any_shape,
        lambda ops, x: ops.silu(x),
        lambda x, ulp: smooth(x, functional.silu, 1.1, 7.5e-4),
        is_curve=True,
    ),
    "softplus": Verb(
        any_shape,
        lambda ops, x: ops.softplus(x),
        lambda x, ulp: smooth(x, lambda v: functional.softplus(v, threshold=50), 1.0, 7.5e-4),
        is_curve=True,
    ),
    "exp": Verb(
        any_shape,
        lambda ops, x: ops.exp(x),
        lambda x, ulp: smooth(x, lambda v: v.clamp(max=0).exp(), 1.0, 1e-4),
        is_curve=True,
    ),
    "reciprocal": Verb(
        any_shape,
        lambda ops, x: ops.reciprocal(x),
        lambda x, ulp: above_pole(
            x, torch.reciprocal, lambda low: low**-2, lambda r: 2.5e-4 * r + 2 * ulp
        ),
        is_curve=True,
    ),
    "rsqrt": Verb(
        any_shape,
        lambda ops, x: ops.rsqrt(x),
        lambda x, ulp: above_pole(
            x, torch.rsqrt, lambda low: low**-1.5 / 2, lambda r: 1.5e-4 * r + 2 * ulp
        ),
        is_curve=True,
    ),
    "log": Verb(
        any_shape,
        lambda ops, x: ops.log(x),
        lambda x, ulp: above_pole(x, torch.log, torch.reciprocal, lambda r: 1e-4 + 0 * r),
        is_curve=True,
    ),
    "sqrt": Verb(
        any_shape,
        lambda ops, x: ops.sqrt(x),
        lambda x, ulp: _root(x, ulp),
        is_curve=True,
    ),
    "div": Verb(
        alike,
        lambda ops, x, y: ops.div(x, y),
        lambda x, y, ulp: _divided(x, y, ulp),
        is_curve=True,
    ),
    "gelu_slope": Verb(
        any_shape,
        lambda ops, x: ops.gelu_slope(x),
        lambda x, ulp: smooth(x, _gelu_slope, 0.8, 1.1e-3),
        is_curve=True,
    ),
    "curve of many": Verb(
        any_shape,
        lambda ops, x, name: _of_many(ops, x, name),
        lambda x, name, ulp: smooth(x, *MANY[name]),
        lambda rng, shapes: {"name": rng.choice(list(MANY))},
        is_curve=True,
    ),
    "curve of a product": Verb(
        twins,
        lambda ops, x, y, name: ops.elementwise_rescaling(name, ops.mul(x, y)),
        lambda x, y, name, ulp: smooth(product(x, y, torch.mul, 2 * ulp), *PRODUCTS[name]),
        lambda rng, shapes: {"name": rng.choice(list(PRODUCTS))},
        is_curve=True,
    ),
    "rsqrt_below": Verb(
        any_shape,
        lambda ops, x: ops.rsqrt_below(x),
        lambda x, ulp: _rsqrt_below(x, ulp),
        is_curve=True,
    ),
}
