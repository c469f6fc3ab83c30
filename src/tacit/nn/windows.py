"""Windows of torch as functions of ops: pooling, and convolutions of every kind."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from tacit.errors import InputError
from tacit.nn.ops import Pair
from tacit.nn.running import Running
from tacit.nn.spreading import Sweep

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
    return lambda run, x, output_size: _adaptive(run, spatial, x, output_size, "avg_pool2d")


def adaptive_max_pool(spatial: int) -> Call:
    """Make torch's adaptive_max_pool1d or adaptive_max_pool2d."""
    return lambda run, x, output_size, return_indices=False: _adaptive(
        run, spatial, x, output_size, "max_pool2d"
    )


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


def convolution(spatial: int) -> Call:
    """Make torch's conv1d or conv2d."""

    def apply(
        run: Running,
        x: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        weight = run.lifted(weight, x)
        rims = _rims(padding, run.ops.shape(weight)[2:], dilation, sizes_of(stride, spatial))
        return _swept(run, spatial, x, weight, bias, (stride, rims, dilation, groups))

    return apply


def transposed(spatial: int) -> Call:
    """Make torch's conv_transpose1d or conv_transpose2d."""

    def apply(
        run: Running,
        x: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Any:
        how, beyond = (stride, padding, dilation, groups), _plane(output_padding, 0, spatial)
        return _swept(run, spatial, x, run.lifted(weight, x), bias, how, beyond)

    return apply


def convolution_layer(spatial: int) -> Call:
    """Make a layer that convolves; how large its products can be follows from its weights."""
    return _layer(convolution(spatial), spatial, ("stride", "padding", "dilation", "groups"))


def transposed_layer(spatial: int) -> Call:
    """Make a layer that convolves the other way round."""
    fields = ("stride", "padding", "output_padding", "groups", "dilation")
    return _layer(transposed(spatial), spatial, fields)


def _layer(call: Call, spatial: int, fields: tuple[str, ...]) -> Call:
    def apply(run: Running, name: str, layer: nn.Module, x: Any) -> Any:
        how = [getattr(layer, field) for field in fields]
        x = run.capped(x)
        out = run.product(name, "weight", x, call(run, x, run.weight(name, "weight"), None, *how))
        return _with_bias(run, out, run.weight(name, "bias"), spatial)

    return apply


def _swept(
    run: Running,
    spatial: int,
    x: Any,
    weight: Any,
    bias: Any,
    how: tuple[Any, Any, Any, int],
    beyond: Pair | None = None,
) -> Any:
    """Convolve images, or series as images of one row; back, if something is to be added beyond."""
    stride, padding, dilation, groups = how
    pairs = (_plane(stride, 1, spatial), _plane(padding, 0, spatial), _plane(dilation, 1, spatial))
    sweep, ops = Sweep(*pairs, groups), run.ops

    def flat(y: Any) -> Any:
        shape = ops.shape(y)
        return y if spatial == 2 else ops.reshape(y, (*shape[:2], 1, shape[2]))

    def apply(images: Any) -> Any:
        if beyond is None:
            out = sweep.convolve(ops, flat(images), flat(weight))
        else:
            out = sweep.transpose(ops, flat(images), flat(weight), beyond)
        shape = ops.shape(out)
        return out if spatial == 2 else ops.reshape(out, (*shape[:2], shape[3]))

    return _with_bias(run, batched(run, run.capped(x), spatial, apply), bias, spatial)


def _rims(padding: Any, sizes: Any, dilation: Any, stride: Any) -> tuple[int, ...]:
    """Give torch's padding in numbers."""
    if padding == "valid":
        return (0,) * len(sizes)
    if padding != "same":
        return sizes_of(padding, len(sizes))
    apart = sizes_of(dilation, len(sizes))
    reach = [gap * (size - 1) for gap, size in zip(apart, sizes, strict=True)]
    if any(one % 2 for one in reach) or set(stride) != {1}:
        raise InputError(
            f"padding 'same' wants a kernel that reaches as far to both sides, and no stride, got "
            f"a kernel of {tuple(sizes)}; give the padding in numbers"
        )
    return tuple(one // 2 for one in reach)


def _plane(value: Any, line: int, spatial: int) -> Pair:
    """Turn numbers of images, or of series with ``line`` for their one row, into a pair."""
    first, second = (line, *sizes_of(value, spatial))[-2:]
    return first, second


def _with_bias(run: Running, out: Any, bias: Any, spatial: int) -> Any:
    """Add one number per channel."""
    if bias is None:
        return out
    return run.ops.add(out, run.ops.reshape(run.lifted(bias, out), (-1, *(1,) * spatial)))
