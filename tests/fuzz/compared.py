"""Verbs that compare: jumps, pieces, the largest of many, orders."""

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fuzz.known import NOWHERE, Known, best, product, smooth, step
from fuzz.verb import Shape, Verb, a_full_dim, alike, any_shape, some_rows


def _ends(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any]:
    low = rng.choice([0.0, -1.5, -8.0, rng.uniform(-3, 3)])
    return {"low": low, "high": low + rng.choice([0.0, 0.25, 1.0, 6.0])}


def _clamped(x: Known, low: float, high: float, ulp: float) -> Known:
    return Known(x.v.clamp(low, high), x.e + ulp)


def _top(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    return {"count": rng.randint(1, shapes[0][-1])}


def _classes(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any]:
    return {"classes": rng.randint(2, 6)}


def _one_hot(x: Known, classes: int) -> Known:
    nearest = x.v.clamp(0, classes - 1)
    half = (nearest - nearest.floor() - 0.5).abs()
    unsure = (half <= x.e) | (half == 0)
    at = nearest.round().long()
    hot = functional.one_hot(at, classes).double()
    return Known(hot, torch.where(unsure[..., None].expand_as(hot), 1.0, 0.0).double())


def _argmax(x: Known, dim: int) -> Known:
    at, sure = best(x, dim)
    return Known(at.double(), torch.where(sure, 0.0, x.v.shape[dim] - 1.0).double())


def _argmax_hot(x: Known, dim: int) -> Known:
    at, sure = best(x, dim)
    hot = functional.one_hot(at, x.v.shape[dim]).movedim(-1, dim % x.v.ndim).double()
    return Known(hot, torch.where(sure.unsqueeze(dim).expand_as(hot), 0.0, 1.0).double())


def _equal(x: Known, y: Known) -> Known:
    gap = (x.v - y.v).abs()
    off = x.e + y.e
    unsure = (gap <= off) & (off > 0)
    return Known((gap == 0).double(), torch.where(unsure, 1.0, 0.0).double())


def _pieces(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any]:
    start = rng.uniform(-2, 0)
    return {
        "breaks": [start, start + rng.choice([0.5, 2.0])],
        "polynomials": [[rng.uniform(-1, 1), rng.choice([0.0, 0.5, -1.0])] for _ in range(3)],
    }


def _piecewise(x: Known, breaks: Any, polynomials: Any, ulp: float) -> Known:
    def at(v: Tensor) -> Tensor:
        out = torch.zeros_like(v)
        where = torch.bucketize(v.contiguous(), torch.tensor(breaks, dtype=v.dtype), right=True)
        for i, (c, m) in enumerate(polynomials):
            out = torch.where(where == i, c + m * v, out)
        return out

    steep = max(abs(m) for _, m in polynomials)
    off = steep * x.e + ulp * (2 + x.v.abs() + x.e) * 2
    unsure = torch.zeros_like(x.v, dtype=torch.bool)
    for edge in breaks:
        unsure |= (x.v - edge).abs() <= x.e + 2 * ulp
    return Known(at(x.v), torch.where(unsure, NOWHERE, off))


def _select(c: Known, x: Known, y: Known, ulp: float) -> Known:
    sure = c.e == 0
    value = torch.where(c.v > 0, x.v, y.v)
    off = torch.maximum(x.e, y.e) + ulp
    return Known(value, torch.where(sure.expand_as(value), off, NOWHERE))


def _capped(x: Known, bound: float) -> Known:
    return Known(x.v.clamp(-bound, bound), x.e)


def _indicated(x: Known) -> Known:
    return step(x, lambda v: (v >= 0).double(), (0.0,), 1.0)


def _gated(x: Known, y: Known, ulp: float) -> Known:
    on = _indicated(x)
    off = torch.where(on.e > 0, NOWHERE, y.e + ulp)
    return Known(on.v * y.v, off)


def _carried(x: Known, y: Known, count: int, ulp: float) -> Known:
    """What belongs to the largest, where no two can be taken for each other."""
    order = x.v.sort(-1, descending=True)
    gaps = order.values[..., :-1] - order.values[..., 1:]
    worst = x.rows_e()[..., :1]
    sure = (gaps > 2 * worst).all(-1, keepdim=True)
    found = y.v.gather(-1, order.indices)[..., :count]
    off = (y.rows_e()[..., :1] + 2 * ulp).expand_as(found)
    return Known(found, torch.where(sure.expand_as(found), off, NOWHERE))


def _table(rng: random.Random, shape: Shape) -> tuple[Shape, ...] | None:
    return (shape, (rng.randint(2, 5), rng.randint(1, 3))) if len(shape) < 3 else None


def _read(ids: Known, table: Known, ulp: float) -> Known:
    hot = _one_hot(ids, table.v.shape[0])
    unsure = (hot.e > 0).any(-1, keepdim=True)
    found = hot.v @ table.v
    return Known(
        found, torch.where(unsure, NOWHERE, table.worst + 2 * ulp).double().expand_as(found)
    )


COMPARED: dict[str, Verb] = {
    "relu": Verb(
        any_shape, lambda ops, x: ops.relu(x), lambda x, ulp: smooth(x, torch.relu, 1.0, 0.0)
    ),
    "abs": Verb(
        any_shape, lambda ops, x: ops.abs(x), lambda x, ulp: smooth(x, torch.abs, 1.0, 0.0)
    ),
    "sign": Verb(
        any_shape, lambda ops, x: ops.sign(x), lambda x, ulp: step(x, torch.sign, (0.0,), 2.0)
    ),
    "is_positive": Verb(
        any_shape,
        lambda ops, x: ops.is_positive(x),
        lambda x, ulp: step(x, lambda v: (v >= 0).double(), (0.0,), 1.0),
        is_last=True,
    ),
    "clamp": Verb(
        any_shape,
        lambda ops, x, low, high: ops.clamp(x, low, high),
        lambda x, low, high, ulp: _clamped(x, low, high, ulp),
        _ends,
    ),
    "equal": Verb(alike, lambda ops, x, y: ops.equal(x, y), lambda x, y, ulp: _equal(x, y)),
    "max": Verb(
        any_shape,
        lambda ops, x, dim: ops.max(x, dim=dim),
        lambda x, dim, ulp: x.moved(lambda t: t.amax(dim)),
        a_full_dim,
    ),
    "min": Verb(
        any_shape,
        lambda ops, x, dim: ops.min(x, dim=dim),
        lambda x, dim, ulp: Known(x.v.amin(dim), x.e.amax(dim)),
        a_full_dim,
    ),
    "argmax": Verb(
        any_shape,
        lambda ops, x, dim: ops.argmax(x, dim=dim),
        lambda x, dim, ulp: _argmax(x, dim),
        a_full_dim,
    ),
    "argmax_one_hot": Verb(
        any_shape,
        lambda ops, x, dim: ops.argmax_one_hot(x, dim=dim),
        lambda x, dim, ulp: _argmax_hot(x, dim),
        a_full_dim,
    ),
    "one_hot": Verb(
        any_shape,
        lambda ops, x, classes: ops.one_hot(x, classes=classes),
        lambda x, classes, ulp: _one_hot(x, classes),
        _classes,
    ),
    "sort": Verb(
        some_rows,
        lambda ops, x: ops.sort(x)[0],
        lambda x, ulp: Known(x.v.sort(-1, descending=True).values, x.rows_e()),
    ),
    "top": Verb(
        some_rows,
        lambda ops, x, count: ops.top(x, count=count)[0],
        lambda x, count, ulp: Known(
            x.v.topk(count, -1).values, x.rows_e()[..., :1].expand(*x.v.shape[:-1], count)
        ),
        _top,
    ),
    "piecewise": Verb(
        any_shape,
        lambda ops, x, breaks, polynomials: ops.piecewise(x, breaks, polynomials),
        lambda x, breaks, polynomials, ulp: _piecewise(x, breaks, polynomials, ulp),
        _pieces,
    ),
    "select": Verb(
        lambda rng, shape: (shape, shape, shape, shape),
        lambda ops, a, b, x, y: ops.select(ops.equal(a, b), x, y),
        lambda a, b, x, y, ulp: _select(_equal(a, b), x, y, ulp),
    ),
    "cap": Verb(
        any_shape,
        lambda ops, x, bound: ops.cap(x, bound=bound),
        lambda x, bound, ulp: _capped(x, bound),
        lambda rng, shapes: {"bound": rng.choice([1.0, 8.0, 16.0])},
    ),
    "indicate": Verb(any_shape, lambda ops, x: ops.indicate(x), lambda x, ulp: _indicated(x)),
    "indicate a product": Verb(
        alike,
        lambda ops, x, y: ops.indicate(ops.mul(x, y), as_it_is=True),
        lambda x, y, ulp: _indicated(product(x, y, torch.mul, ulp / 2**10)),
    ),
    "relu of a product": Verb(
        alike,
        lambda ops, x, y: ops.relu(ops.mul(x, y)),
        lambda x, y, ulp: smooth(product(x, y, torch.mul, 2 * ulp), torch.relu, 1.0, 0.0),
    ),
    "gate": Verb(
        alike,
        lambda ops, x, y: ops.gate(ops.indicate(x), y),
        lambda x, y, ulp: _gated(x, y, ulp),
    ),
    "sort with payload": Verb(
        lambda rng, shape: (shape, shape) if some_rows(rng, shape) else None,
        lambda ops, x, y, count: ops.top(x, count=count, payload=(y,))[1],
        lambda x, y, count, ulp: _carried(x, y, count, ulp),
        _top,
    ),
    "embedding": Verb(
        _table,
        lambda ops, ids, table: ops.embedding(table, ids),
        lambda ids, table, ulp: _read(ids, table, ulp),
    ),
}
