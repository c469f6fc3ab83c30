"""Convolutions of torch as functions of ops: grouped, dilated and transposed ones, too."""

from collections.abc import Callable
from typing import Any

from torch import nn

from tacit.errors import InputError
from tacit.nn.convolving import Sweep
from tacit.nn.pooling import batched, sizes_of
from tacit.nn.running import Running

Call = Callable[..., Any]


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
        sizes = run.ops.shape(weight)[2:]
        apart = sizes_of(dilation, spatial)
        rims = _rims(padding, sizes, apart, sizes_of(stride, spatial))
        sweep = Sweep(
            _plane(stride, 1, spatial),
            _plane(rims, 0, spatial),
            _plane(apart, 1, spatial),
            groups,
        )

        def convolve(images: Any) -> Any:
            return sweep.convolve(run.ops, images, _flat(run, weight))

        return _with_bias(run, _swept(run, x, spatial, convolve), bias, spatial)

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
        sweep = Sweep(
            _plane(stride, 1, spatial),
            _plane(padding, 0, spatial),
            _plane(dilation, 1, spatial),
            groups,
        )
        weight, beyond = run.lifted(weight, x), _plane(output_padding, 0, spatial)

        def convolve(images: Any) -> Any:
            return sweep.transpose(run.ops, images, _flat(run, weight), beyond)

        return _with_bias(run, _swept(run, x, spatial, convolve), bias, spatial)

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


def _swept(run: Running, x: Any, spatial: int, convolve: Callable[[Any], Any]) -> Any:
    """Convolve images, or series as images of one row."""

    def apply(images: Any) -> Any:
        return _unflat(run, convolve(_flat(run, images)), spatial)

    return batched(run, run.capped(x), spatial, apply)


def _rims(padding: Any, sizes: Any, apart: Any, stride: Any) -> tuple[int, ...]:
    """Give torch's padding in numbers."""
    if padding == "valid":
        return (0,) * len(sizes)
    if padding != "same":
        return sizes_of(padding, len(sizes))
    reach = [gap * (size - 1) for gap, size in zip(apart, sizes, strict=True)]
    if any(one % 2 for one in reach) or set(stride) != {1}:
        raise InputError(
            f"padding 'same' wants a kernel that reaches as far to both sides, and no stride, got "
            f"a kernel of {tuple(sizes)}; give the padding in numbers"
        )
    return tuple(one // 2 for one in reach)


def _plane(value: Any, line: int, spatial: int) -> tuple[int, int]:
    """Turn numbers of images, or of series with ``line`` for their one row, into a pair."""
    first, second = (line, *sizes_of(value, spatial))[-2:]
    return first, second


def _flat(run: Running, x: Any) -> Any:
    """Turn series into images of one row."""
    shape = run.ops.shape(x)
    return x if len(shape) == 4 else run.ops.reshape(x, (*shape[:2], 1, shape[2]))


def _unflat(run: Running, x: Any, spatial: int) -> Any:
    shape = run.ops.shape(x)
    return x if spatial == 2 else run.ops.reshape(x, (*shape[:2], shape[3]))


def _with_bias(run: Running, out: Any, bias: Any, spatial: int) -> Any:
    """Add one number per channel."""
    if bias is None:
        return out
    return run.ops.add(out, run.ops.reshape(run.lifted(bias, out), (-1, *(1,) * spatial)))
