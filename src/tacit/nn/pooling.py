"""Pooling of torch as functions of ops: windows of a fixed size, and to a wanted size."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from tacit.errors import InputError
from tacit.nn.running import Running

Call = Callable[..., Any]


def sizes_of(value: Any, count: int) -> tuple[int, ...]:
    """Turn torch's number-or-numbers into one number per dimension."""
    return (value,) * count if isinstance(value, int) else (*value, *value)[:count]


def batched(run: Running, x: Any, spatial: int, apply: Callable[[Any], Any]) -> Any:
    """Apply what wants (n, channels, sides…) to that, or to a single (channels, sides…)."""
    shape = run.ops.shape(x)
    if len(shape) == spatial + 2:
        return apply(x)
    if len(shape) != spatial + 1:
        wanted = f"{spatial + 2} dimensions, or {spatial + 1} for a single row"
        raise InputError(f"wanted {wanted}, got an input of shape {shape}")
    out = apply(run.ops.reshape(x, (1, *shape)))
    return run.ops.reshape(out, run.ops.shape(out)[1:])


def _pool(
    run: Running, verb: str, spatial: int, x: Any, size: Any, stride: Any, padding: Any
) -> Any:
    """Pool images (n, c, h, w), or series (n, c, l) as images of one row."""
    stride = size if stride is None or stride == () else stride
    lines = (1,) * (2 - spatial)
    how = {
        "size": (*lines, *sizes_of(size, spatial)),
        "stride": (*lines, *sizes_of(stride, spatial)),
        "padding": (*(0,) * len(lines), *sizes_of(padding, spatial)),
    }

    def apply(images: Any) -> Any:
        shape = run.ops.shape(images)
        out = getattr(run.ops, verb)(
            run.ops.reshape(images, (*shape[:2], *lines, *shape[2:])), **how
        )
        return run.ops.reshape(out, (*shape[:2], *run.ops.shape(out)[4 - spatial :]))

    return batched(run, x, spatial, apply)


def max_pool(spatial: int) -> Call:
    """Make torch's max_pool1d or max_pool2d."""

    def apply(
        run: Running,
        x: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        return _pool(run, "max_pool2d", spatial, x, kernel_size, stride, padding)

    return apply


def avg_pool(spatial: int) -> Call:
    """Make torch's avg_pool1d or avg_pool2d."""

    def apply(
        run: Running,
        x: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: None = None,
    ) -> Any:
        return _pool(run, "avg_pool2d", spatial, x, kernel_size, stride, padding)

    return apply


def adaptive_avg_pool(spatial: int) -> Call:
    """Make torch's adaptive_avg_pool1d or adaptive_avg_pool2d."""

    def apply(run: Running, x: Any, output_size: Any) -> Any:
        return _adaptive(run, spatial, x, output_size, "avg_pool2d")

    return apply


def adaptive_max_pool(spatial: int) -> Call:
    """Make torch's adaptive_max_pool1d or adaptive_max_pool2d."""

    def apply(run: Running, x: Any, output_size: Any, return_indices: bool = False) -> Any:
        return _adaptive(run, spatial, x, output_size, "max_pool2d")

    return apply


def pool_layer(call: Call) -> Call:
    """Make a layer of a pool of fixed windows."""

    def apply(run: Running, name: str, layer: Any, x: Any) -> Any:
        return call(run, x, layer.kernel_size, layer.stride, layer.padding)

    return apply


def adaptive_layer(call: Call) -> Call:
    """Make a layer of a pool to a wanted size."""

    def apply(run: Running, name: str, layer: nn.Module, x: Any) -> Any:
        return call(run, x, layer.output_size)

    return apply


def _adaptive(run: Running, spatial: int, x: Any, output_size: Any, verb: str) -> Any:
    sides = run.ops.shape(x)[-spatial:]
    chosen = (output_size,) * spatial if output_size is None else sizes_of(output_size, spatial)
    wanted = [side if one is None else one for one, side in zip(chosen, sides, strict=True)]
    if not any(side % one for one, side in zip(wanted, sides, strict=True)):
        size = [side // one for one, side in zip(wanted, sides, strict=True)]
        return _pool(run, verb, spatial, x, size, size, 0)
    # Windows are products of stretches, so that one dimension can be pooled after the other.
    for at, count in enumerate(wanted):
        x = _stretches(run, x, len(run.ops.shape(x)) - spatial + at, count, verb)
    return x


def _stretches(run: Running, x: Any, axis: int, count: int, verb: str) -> Any:
    """Pool a dimension in stretches from ⌊i·side / count⌋ to ⌈(i + 1)·side / count⌉."""
    ops, shape = run.ops, run.ops.shape(x)
    side = shape[axis]
    stretches = [range(i * side // count, -(-(i + 1) * side // count)) for i in range(count)]
    longest = max(map(len, stretches))
    # A stretch that is shorter holds its first element again, which no maximum minds.
    places = [
        stretch[at] if at < len(stretch) else stretch[0]
        for stretch in stretches
        for at in range(longest)
    ]
    x = ops.reshape(
        ops.take(x, places, dim=axis), (*shape[:axis], count, longest, *shape[axis + 1 :])
    )
    if verb == "max_pool2d":
        return ops.max(run.capped(x), dim=axis + 1)
    return ops.sum(ops.weigh(x, _shares(stretches, longest, len(shape) - axis - 1)), dim=axis + 1)


def _shares(stretches: Sequence[range], longest: int, after: int) -> torch.Tensor:
    """Give every element of a stretch its part of the mean, and what is there again none."""
    rows = [[1 / len(one)] * len(one) + [0.0] * (longest - len(one)) for one in stretches]
    return torch.tensor(rows, dtype=torch.float64).reshape(-1, longest, *(1,) * after)
