"""The verbs that programs are drawn from: what each takes, does privately, and is in the clear."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fuzz.known import NOWHERE, Known, above_pole, best, clean, product, smooth, step

Shape = tuple[int, ...]
Draw = Callable[[random.Random, Sequence[Shape]], dict[str, Any] | None]


@dataclass(frozen=True)
class Verb:
    """One verb of `ops`.

    Args:
        shapes: given the first operand's shape, shapes of all operands; None: it takes no such.
        draw: public parameters for operands of these shapes; None: there are none that fit.
        private: the call, of ops, operands and parameters.
        plain: the same in double precision, with its error; ``ulp`` is that of the program.
        is_curve: whether its error is stated for 16 fraction bits only.
        is_last: whether the result can only be opened.
    """

    shapes: Callable[[random.Random, Shape], tuple[Shape, ...] | None]
    private: Callable[..., Any]
    plain: Callable[..., Known]
    draw: Draw = lambda rng, shapes: {}
    is_curve: bool = False
    is_last: bool = False


def any_shape(rng: random.Random, shape: Shape) -> tuple[Shape, ...]:
    return (shape,)


def some_rows(rng: random.Random, shape: Shape) -> tuple[Shape, ...] | None:
    return (shape,) if shape and all(shape) and shape[-1] > 1 else None


def alike(rng: random.Random, shape: Shape) -> tuple[Shape, ...]:
    """A second operand that broadcasts with the first."""
    how = rng.randrange(4)
    if how == 0:
        return shape, tuple(1 if rng.random() < 0.5 else n for n in shape)
    if how == 1:
        return shape, shape[rng.randint(0, len(shape)) :]
    if how == 2 and len(shape) < 4:
        return shape, (rng.randint(1, 3), *shape)
    return shape, shape


def matrices(rng: random.Random, shape: Shape) -> tuple[Shape, ...] | None:
    if len(shape) < 2:
        return None
    other = (shape[-1], rng.choice([1, 2, 5]))
    return shape, (*shape[:-2], *other) if rng.random() < 0.5 else other


def a_dim(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    rank = len(shapes[0])
    return {"dim": rng.randrange(-rank, rank)} if rank else None


def a_full_dim(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    found = a_dim(rng, shapes)
    return found if found and all(shapes[0]) else None


def a_number(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any]:
    kinds = [0.0, 1.0, -1.0, 2.0, -3.0, 0.5, 0.3, -0.07, 1e-5, 17.25, rng.uniform(-4, 4)]
    return {"by": rng.choice(kinds)}


def public(rng: random.Random, shape: Shape, spread: float = 2.0) -> Tensor:
    """Draw a public tensor: whole numbers, or any."""
    values = [rng.uniform(-spread, spread) for _ in range(math.prod(shape))]
    x = torch.tensor(values, dtype=torch.float64).reshape(shape)
    return x.round() if rng.random() < 0.3 else x


def a_tensor(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any]:
    shape = shapes[0][rng.randint(0, len(shapes[0])) :]
    return {"by": public(rng, shape).tolist()}


def as_tensor(by: Any) -> Tensor:
    return torch.tensor(by, dtype=torch.float64)


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


def _ends(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any]:
    low = rng.choice([0.0, -1.5, -8.0, rng.uniform(-3, 3)])
    return {"low": low, "high": low + rng.choice([0.25, 1.0, 6.0])}


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


def _select(c: Known, x: Known, y: Known, ulp: float) -> Known:
    sure = c.e == 0
    value = torch.where(c.v > 0, x.v, y.v)
    off = torch.maximum(x.e, y.e) + ulp
    return Known(value, torch.where(sure.expand_as(value), off, NOWHERE))


def _equal(x: Known, y: Known) -> Known:
    gap = (x.v - y.v).abs()
    off = x.e + y.e
    unsure = (gap <= off) & (off > 0)
    return Known((gap == 0).double(), torch.where(unsure, 1.0, 0.0).double())


def _softmax(x: Known, dim: int) -> Known:
    return Known(x.v.softmax(dim), (x.rows_e(dim) / 2 + 1e-3).clamp(max=1.0))


def _log_softmax(x: Known, dim: int) -> Known:
    return Known(x.v.log_softmax(dim), 2 * x.rows_e(dim) + 2e-3)


def _normed(x: Known, centred: bool) -> Known:
    mean = x.v.mean(-1, keepdim=True) if centred else torch.zeros_like(x.v[..., :1])
    square = ((x.v - mean) ** 2).mean(-1, keepdim=True)
    length, off = square.sqrt(), x.rows_e()
    value = (x.v - mean) / (square + 1e-5).sqrt()
    reach = 64 if centred else 128
    floor = max((min(x.bound, 1e9) / reach) ** 2 / 2**8, 2.0**-12 if centred else 2.0**-14)
    floor = max(floor, 2.0**-8) if x.bound > 64 * reach / 16 else floor
    steep = (2 + value.abs()) / (length - 2 * off).clamp(min=1e-9)
    error = steep * off + 4e-3 * (1 + value.abs())
    known = (square >= 2 * floor) & (length > 4 * off)
    return Known(value, torch.where(known.expand_as(value), error, NOWHERE))


def _norm_rows(rng: random.Random, shape: Shape) -> tuple[Shape, ...] | None:
    return (shape,) if len(shape) >= 2 and all(shape) and shape[-1] >= 3 else None


def _images(rng: random.Random, shape: Shape) -> tuple[Shape, ...] | None:
    return ((2, rng.randint(1, 2), rng.randint(3, 5), rng.randint(3, 5)),)


def _conv2d(rng: random.Random, shape: Shape) -> tuple[Shape, ...] | None:
    channels = rng.choice([1, 2])
    return (2, channels, 5, 4), (rng.choice([1, 3]), channels, rng.choice([1, 3]), 2)


def _conv1d(rng: random.Random, shape: Shape) -> tuple[Shape, ...] | None:
    channels = rng.choice([1, 2])
    return (2, channels, 7), (rng.choice([1, 3]), channels, rng.choice([1, 3]))


def _window(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any]:
    size = [rng.choice([1, 2, 3]), rng.choice([1, 2, 3])]
    return {
        "size": size,
        "stride": [rng.choice([1, 2]), rng.choice([1, 2])],
        "padding": [rng.randint(0, size[0] // 2), rng.randint(0, size[1] // 2)],
    }


def _strides(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any]:
    return {"stride": [rng.choice([1, 2])] * 2, "padding": [rng.choice([0, 1])] * 2}


def _stride(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any]:
    return {"stride": rng.choice([1, 2]), "padding": rng.choice([0, 1])}


def _tuples(p: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in p.items()}


def _max_pool(x: Known, size: Any, stride: Any, padding: Any) -> Known:
    def pooled(values: Tensor) -> Tensor:
        return functional.max_pool2d(values, tuple(size), tuple(stride), tuple(padding))

    return x.moved(pooled)


def _avg_pool(x: Known, size: Any, stride: Any, padding: Any, ulp: float) -> Known:
    def pooled(values: Tensor) -> Tensor:
        return functional.avg_pool2d(values, tuple(size), tuple(stride), tuple(padding))

    rounded = ulp * (size[0] * size[1] * pooled(x.v.abs() + x.e) + 2)
    return Known(pooled(x.v), clean(pooled(x.e)) + rounded)


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


def _divided(x: Known, y: Known, ulp: float) -> Known:
    under = above_pole(y, torch.reciprocal, lambda low: low**-2, lambda r: 2.5e-4 * r + 2 * ulp)
    return product(x, under, torch.mul, 2 * ulp)


VERBS: dict[str, Verb] = {
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
    "select": Verb(
        lambda rng, shape: (shape, shape, shape, shape),
        lambda ops, a, b, x, y: ops.select(ops.equal(a, b), x, y),
        lambda a, b, x, y, ulp: _select(_equal(a, b), x, y, ulp),
    ),
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
    "polynomial": Verb(
        any_shape,
        lambda ops, x, coefficients: ops.polynomial(x, tuple(coefficients)),
        lambda x, coefficients, ulp: _evaluated(x, coefficients, ulp),
        _polynomial,
    ),
    "piecewise": Verb(
        any_shape,
        lambda ops, x, breaks, polynomials: ops.piecewise(x, breaks, polynomials),
        lambda x, breaks, polynomials, ulp: _piecewise(x, breaks, polynomials, ulp),
        _pieces,
    ),
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
        lambda x, ulp: above_pole(
            x, torch.sqrt, lambda low: low**-0.5 / 2, lambda r: 3e-4 * r + 2 * ulp
        ),
        is_curve=True,
    ),
    "div": Verb(
        alike,
        lambda ops, x, y: ops.div(x, y),
        lambda x, y, ulp: _divided(x, y, ulp),
        is_curve=True,
    ),
    "softmax": Verb(
        any_shape,
        lambda ops, x, dim: ops.softmax(x, dim=dim),
        lambda x, dim, ulp: _softmax(x, dim),
        a_full_dim,
        is_curve=True,
    ),
    "log_softmax": Verb(
        any_shape,
        lambda ops, x, dim: ops.log_softmax(x, dim=dim),
        lambda x, dim, ulp: _log_softmax(x, dim),
        a_full_dim,
        is_curve=True,
    ),
    "layer_norm": Verb(
        _norm_rows,
        lambda ops, x: ops.layer_norm(x, eps=1e-5),
        lambda x, ulp: _normed(x, centred=True),
        is_curve=True,
    ),
    "rms_norm": Verb(
        _norm_rows,
        lambda ops, x: ops.rms_norm(x, eps=1e-5),
        lambda x, ulp: _normed(x, centred=False),
        is_curve=True,
    ),
    "max_pool2d": Verb(
        _images,
        lambda ops, x, **p: ops.max_pool2d(x, **_tuples(p)),
        lambda x, ulp, **p: _max_pool(x, **p),
        _window,
    ),
    "avg_pool2d": Verb(
        _images,
        lambda ops, x, **p: ops.avg_pool2d(x, **_tuples(p)),
        lambda x, ulp, **p: _avg_pool(x, ulp=ulp, **p),
        _window,
    ),
    "conv2d": Verb(
        _conv2d,
        lambda ops, x, w, **p: ops.conv2d(x, w, **_tuples(p)),
        lambda x, w, ulp, **p: product(
            x, w, lambda a, b: functional.conv2d(a, b, **_tuples(p)), 2 * ulp
        ),
        _strides,
    ),
    "conv1d": Verb(
        _conv1d,
        lambda ops, x, w, **p: ops.conv1d(x, w, **p),
        lambda x, w, ulp, **p: product(x, w, lambda a, b: functional.conv1d(a, b, **p), 2 * ulp),
        _stride,
    ),
}
