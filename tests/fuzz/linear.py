"""Verbs that are linear, or products."""

import math
import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fuzz.known import Known, clean, product
from fuzz.verb import (
    Shape,
    Verb,
    a_dim,
    a_full_dim,
    a_mask,
    a_number,
    a_tensor,
    alike,
    any_shape,
    as_tensor,
    full,
    matrices,
    public,
    twins,
)


def _weighed(x: Known, by: Tensor, ulp: float) -> Known:
    is_whole = bool((by == by.round()).all())
    slip = 0.0 if is_whole else ulp
    return Known(x.v * by, clean(x.e * by.abs()) + slip * (x.v.abs() + x.e + 2).expand_as(x.v * by))


def _projected(x: Known, by: Tensor, ulp: float) -> Known:
    is_whole = bool((by == by.round()).all())
    slip = 0.0 if is_whole else ulp
    rows = (x.v.abs() + x.e).sum(-1, keepdim=True) + 2
    return Known(x.v @ by, clean(x.e @ by.abs()) + slip * rows)


def _reshapes(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any]:
    count = math.prod(shapes[0])
    pairs = [(a, count // a) for a in (1, 2, 3, 4) if count and count % a == 0]
    return {"shape": list(rng.choice([(count,), *pairs, (*shapes[0], 1)]))}


def _swap(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    rank = len(shapes[0])
    return {"first": rng.randrange(rank), "second": rng.randrange(rank)} if rank > 1 else None


def _picks(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    found = a_full_dim(rng, shapes)
    if not found:
        return None
    size = shapes[0][found["dim"]]
    return found | {"positions": [rng.randrange(size) for _ in range(rng.randint(1, 4))]}


def _polynomial(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any]:
    return {"coefficients": [rng.choice([0.0, 1.0, rng.uniform(-1, 1)]) for _ in range(4)]}


def _evaluated(x: Known, coefficients: Sequence[float], ulp: float) -> Known:
    value, size = torch.zeros_like(x.v), x.v.abs() + x.e
    steep, power = torch.zeros_like(x.v), torch.ones_like(x.v)
    for k, c in enumerate(coefficients):
        value = value + c * x.v**k
        if k:
            steep = steep + k * abs(c) * power
            power = power * size
    return Known(value, clean(steep * x.e) + 8 * ulp * (1 + size + size**2 + size**3))


def _running(x: Known, dim: int) -> Known:
    return x.moved(lambda t: t.cumsum(dim))


def _filled(x: Known, kept: Any, value: float, ulp: float) -> Known:
    mask = torch.tensor(kept)
    return Known(torch.where(mask, x.v, value), torch.where(mask, x.e, ulp).expand_as(x.v + mask))


def _value(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    found = a_mask(rng, shapes)
    return found and found | {"value": rng.choice([0.0, 1.0, 0.5, -2.75])}


def _cube(ops: Any, x: Any, y: Any, by: float) -> float:
    return float(1.01 * abs(by) * ops.bound(x) * ops.bound(y) ** 3 + 1)


def _half(x: Known, dim: int, last: bool) -> Known:
    size = (x.v.shape[dim] + 1) // 2
    start = x.v.shape[dim] - size if last else 0
    return x.moved(lambda t: t.narrow(dim, start, size))


def _times(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any]:
    return {"by": rng.choice([3.0, -2.0, 1.0])}


def _fewer(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any]:
    return {"bits": rng.choice([3, 5, 7])}


def _whole(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any]:
    return {"whole": [round(rng.uniform(-3, 3)) for _ in range(shapes[0][-1] * 2)]}


def _hot_rows(x: Known, whole: Any, ulp: float) -> Known:
    by = torch.tensor(whole, dtype=torch.float64).reshape(x.v.shape[-1], 2)
    return product(x, Known.exact(by), torch.matmul, 2 * ulp)


LINEAR: dict[str, Verb] = {
    "add": Verb(
        alike,
        lambda ops, x, y: ops.add(x, y),
        lambda x, y, ulp: Known(x.v + y.v, x.e + y.e),
    ),
    "sub": Verb(
        alike,
        lambda ops, x, y: ops.sub(x, y),
        lambda x, y, ulp: Known(x.v - y.v, x.e + y.e),
    ),
    "mul": Verb(
        alike,
        lambda ops, x, y: ops.mul(x, y),
        lambda x, y, ulp: product(x, y, torch.mul, 2 * ulp),
    ),
    "square": Verb(
        any_shape,
        lambda ops, x: ops.square(x),
        lambda x, ulp: product(x, x, torch.mul, 2 * ulp),
    ),
    "matmul": Verb(
        matrices,
        lambda ops, x, y: ops.matmul(x, y),
        lambda x, y, ulp: product(x, y, torch.matmul, 2 * ulp),
    ),
    "scale": Verb(
        any_shape,
        lambda ops, x, by: ops.scale(x, by),
        lambda x, by, ulp: _weighed(x, torch.tensor(by, dtype=torch.float64), ulp),
        a_number,
    ),
    "shift": Verb(
        any_shape,
        lambda ops, x, by: ops.shift(x, by),
        lambda x, by, ulp: Known(x.v + by, x.e + ulp / 2),
        a_number,
    ),
    "weigh": Verb(
        any_shape,
        lambda ops, x, by: ops.weigh(x, as_tensor(by)),
        lambda x, by, ulp: _weighed(x, as_tensor(by), ulp),
        a_tensor,
    ),
    "offset": Verb(
        any_shape,
        lambda ops, x, by: ops.offset(x, as_tensor(by)),
        lambda x, by, ulp: Known(x.v + as_tensor(by), x.e + ulp / 2),
        a_tensor,
    ),
    "project": Verb(
        lambda rng, shape: (shape,) if len(shape) >= 2 else None,
        lambda ops, x, by: ops.project(x, as_tensor(by)),
        lambda x, by, ulp: _projected(x, as_tensor(by), ulp),
        lambda rng, shapes: (
            {"by": public(rng, (shapes[0][-1], rng.randint(1, 4))).tolist()}
            if shapes[0][-1]
            else None
        ),
    ),
    "sum": Verb(
        any_shape,
        lambda ops, x, dim: ops.sum(x, dim=dim),
        lambda x, dim, ulp: x.moved(lambda t: t.sum(dim)),
        a_dim,
    ),
    "reshape": Verb(
        any_shape,
        lambda ops, x, shape: ops.reshape(x, tuple(shape)),
        lambda x, shape, ulp: x.moved(lambda t: t.reshape(shape)),
        _reshapes,
    ),
    "transpose": Verb(
        any_shape,
        lambda ops, x, first, second: ops.transpose(x, first, second),
        lambda x, first, second, ulp: x.moved(lambda t: t.transpose(first, second)),
        _swap,
    ),
    "concatenate": Verb(
        lambda rng, shape: (shape, shape) if shape else None,
        lambda ops, x, y, dim: ops.concatenate((x, y), dim=dim),
        lambda x, y, dim, ulp: Known(torch.cat((x.v, y.v), dim), torch.cat((x.e, y.e), dim)),
        a_dim,
    ),
    "take": Verb(
        any_shape,
        lambda ops, x, dim, positions: ops.take(x, tuple(positions), dim=dim),
        lambda x, dim, positions, ulp: x.moved(
            lambda t: t.index_select(dim, torch.tensor(positions))
        ),
        _picks,
    ),
    "polynomial": Verb(
        any_shape,
        lambda ops, x, coefficients: ops.polynomial(x, tuple(coefficients)),
        lambda x, coefficients, ulp: _evaluated(x, coefficients, ulp),
        _polynomial,
    ),
    "cumsum": Verb(
        any_shape,
        lambda ops, x, dim: ops.cumsum(x, dim=dim),
        lambda x, dim, ulp: _running(x, dim),
        a_dim,
    ),
    "total": Verb(
        twins,
        lambda ops, x, y, dim: ops.total(ops.mul(x, y), dim=dim),
        lambda x, y, dim, ulp: product(
            x, y, lambda a, b: (a * b).sum(dim), 2 * ulp * (1 + max(x.v.shape[dim], 1))
        ),
        a_dim,
    ),
    "part": Verb(
        lambda rng, shape: (shape,) if shape and shape[0] else None,
        lambda ops, x, at: ops.part(x, at),
        lambda x, at, ulp: x.moved(lambda t: t[at]),
        lambda rng, shapes: {"at": rng.randrange(shapes[0][0])},
    ),
    "halves": Verb(
        full,
        lambda ops, x, dim, last: ops.halves(x, dim=dim)[last],
        lambda x, dim, last, ulp: _half(x, dim, last),
        lambda rng, shapes: (found := a_dim(rng, shapes)) and found | {"last": rng.random() < 0.5},
    ),
    "fill": Verb(
        full,
        lambda ops, x, kept, value: ops.fill(x, torch.tensor(kept), value),
        lambda x, kept, value, ulp: _filled(x, kept, value, ulp),
        _value,
    ),
    "normalise_scale": Verb(
        any_shape,
        lambda ops, x: ops.normalise_scale(x),
        lambda x, ulp: Known(x.v, x.e + ulp),
    ),
    "truncated": Verb(
        twins,
        lambda ops, x, y, bits: ops.truncated(ops.mul(x, y), frac_bits=bits),
        lambda x, y, bits, ulp: product(x, y, torch.mul, 2.0**-bits + ulp),
        _fewer,
    ),
    "mul_whole": Verb(
        alike,
        lambda ops, x, y: ops.mul_whole(ops.sign(x), y),
        lambda x, y, ulp: product(
            Known(x.v.sign(), torch.where((x.v.abs() <= x.e) & (x.e > 0), 2.0, 0.0).double()),
            y,
            torch.mul,
            2 * ulp,
        ),
    ),
    "mul_rescaling": Verb(
        twins,
        lambda ops, x, y, by: ops.mul_rescaling(
            ops.mul(x, y), ops.mul(ops.scale(y, by), y), bound=_cube(ops, x, y, by)
        ),
        lambda x, y, by, ulp: product(
            product(x, y, torch.mul, 2 * ulp),
            product(Known(y.v * by, y.e * abs(by)), y, torch.mul, 2 * ulp),
            torch.mul,
            3 * ulp,
        ),
        _times,
    ),
    "rescaled": Verb(
        twins,
        lambda ops, x, y: ops.rescaled(ops.mul(x, y)),
        lambda x, y, ulp: product(x, y, torch.mul, 3 * ulp),
    ),
    "matmul_within": Verb(
        lambda rng, shape: (shape, shape, (shape[-1], 3)) if len(shape) == 2 else None,
        lambda ops, x, y, z: ops.matmul_within(
            ops.mul(x, y),
            z,
            bound=1.01 * ops.shape(x)[-1] * ops.bound(x) * ops.bound(y) * ops.bound(z) + 1,
        ),
        lambda x, y, z, ulp: product(product(x, y, torch.mul, 3 * ulp), z, torch.matmul, 3 * ulp),
    ),
    "product_within": Verb(
        matrices,
        lambda ops, x, y: ops.product_within(
            x, y, bound=1.01 * max(ops.shape(x)[-1], 1) * ops.bound(x) * ops.bound(y) + 1
        ),
        lambda x, y, ulp: product(x, y, torch.matmul, 3 * ulp),
    ),
    "whole matrix": Verb(
        lambda rng, shape: (shape,) if len(shape) >= 2 and all(shape) else None,
        lambda ops, x, whole: ops.project(x, as_tensor(whole).reshape(ops.shape(x)[-1], 2)),
        lambda x, whole, ulp: _hot_rows(x, whole, ulp),
        _whole,
    ),
}
