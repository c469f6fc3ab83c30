"""Verbs of images and series."""

import random
from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.nn import functional

from fuzz.known import Known, clean, product
from fuzz.verb import Shape, Verb


def _images(rng: random.Random, shape: Shape) -> tuple[Shape, ...] | None:
    return ((2, rng.randint(1, 2), rng.randint(3, 5), rng.randint(3, 5)),)


def _conv2d(rng: random.Random, shape: Shape) -> tuple[Shape, ...] | None:
    channels, groups = rng.choice([(1, 1), (2, 1), (2, 2)])
    return (2, channels, 5, 4), (2, channels // groups, rng.choice([1, 3]), 2)


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
    return {
        "stride": [rng.choice([1, 2])] * 2,
        "padding": [rng.choice([0, 1]), rng.choice([0, 1])],
        "dilation": [rng.choice([1, 2]), 1],
        "groups": shapes[0][1] // shapes[1][1],
    }


def _stride(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any]:
    return {"stride": rng.choice([1, 2]), "padding": rng.choice([0, 1])}


def _tuples(p: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in p.items()}


def _unfolded(x: Tensor, size: Any, stride: Any, padding: Any) -> Tensor:
    found = functional.unfold(x, size, 1, padding, stride)
    sides = functional.max_pool2d(x, size, stride, padding).shape[2:]
    return found.reshape(*x.shape[:2], size[0] * size[1], *sides)


def _max_pool(x: Known, size: Any, stride: Any, padding: Any) -> Known:
    def pooled(values: Tensor) -> Tensor:
        return functional.max_pool2d(values, tuple(size), tuple(stride), tuple(padding))

    return x.moved(pooled)


def _avg_pool(x: Known, size: Any, stride: Any, padding: Any, ulp: float) -> Known:
    def pooled(values: Tensor) -> Tensor:
        return functional.avg_pool2d(values, tuple(size), tuple(stride), tuple(padding))

    rounded = ulp * (size[0] * size[1] * pooled(x.v.abs() + x.e) + 2)
    return Known(pooled(x.v), clean(pooled(x.e)) + rounded)


IMAGES: dict[str, Verb] = {
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
    "windows": Verb(
        _images,
        lambda ops, x, **p: ops.windows(x, **_tuples(p)),
        lambda x, ulp, **p: x.moved(lambda t: _unfolded(t, **_tuples(p))),
        _window,
    ),
    "conv1d": Verb(
        _conv1d,
        lambda ops, x, w, **p: ops.conv1d(x, w, **p),
        lambda x, w, ulp, **p: product(x, w, lambda a, b: functional.conv1d(a, b, **p), 2 * ulp),
        _stride,
    ),
}
