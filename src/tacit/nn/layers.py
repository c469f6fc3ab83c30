"""Layers of torch.nn as functions of ops: affine maps, norms, activations, pooling."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tacit.errors import InputError
from tacit.nn.running import Running

# A layer is called with the run, its name, the module, and what the graph passes.
Layer = Callable[..., Any]
BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d


def pair(value: Any) -> tuple[int, int]:
    """Turn torch's number-or-pair into a pair."""
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def linear(run: Running, name: str, layer: nn.Linear, x: Any) -> Any:
    """Apply an affine map."""
    return run.affine(name, x)


def convolution(run: Running, name: str, layer: Any, x: Any) -> Any:
    """Convolve series or images."""
    x, weight = run.capped(x), run.weight(name, "weight")
    stride, padding = layer.stride, layer.padding
    if isinstance(layer, nn.Conv1d):
        out = run.ops.conv1d(x, weight, stride=stride[0], padding=padding[0])
    else:
        out = run.ops.conv2d(x, weight, stride=stride, padding=padding)
    out, bias = run.product(name, "weight", x, out), run.weight(name, "bias")
    return out if bias is None else run.ops.add(out, _channels(run, bias, out))


def _channels(run: Running, values: Any, x: Any) -> Any:
    """Shape one number per channel so that it goes with (n, channels, …)."""
    return run.ops.reshape(values, (-1, *(1,) * (len(run.ops.shape(x)) - 2)))


def batch_norm(run: Running, name: str, layer: BatchNorm, x: Any) -> Any:
    """Apply the factor and offset that a batch norm was folded into."""
    x = run.capped(x)
    scaled = run.ops.mul(x, _channels(run, run.weight(name, "factor"), x))
    return run.ops.add(scaled, _channels(run, run.weight(name, "offset"), x))


def layer_norm(run: Running, name: str, layer: nn.LayerNorm, x: Any) -> Any:
    """Normalise the last dimension."""
    return _adjusted(run, name, run.ops.layer_norm(run.capped(x), eps=layer.eps))


def rms_norm(run: Running, name: str, layer: nn.RMSNorm, x: Any) -> Any:
    """Bring the last dimension to a mean square of 1."""
    eps = torch.finfo(torch.float32).eps if layer.eps is None else layer.eps
    return _adjusted(run, name, run.ops.rms_norm(run.capped(x), eps=eps))


def group_norm(run: Running, name: str, layer: nn.GroupNorm, x: Any) -> Any:
    """Normalise groups of channels."""
    out = run.ops.group_norm(run.capped(x), groups=layer.num_groups, eps=layer.eps)
    return _adjusted(run, name, out, is_channels=True)


def _adjusted(run: Running, name: str, x: Any, *, is_channels: bool = False) -> Any:
    """Apply the gain and the offset of a norm, if it has them."""
    for what, verb in (("weight", run.ops.mul), ("bias", run.ops.add)):
        value = run.weight(name, what)
        if value is not None:
            x = verb(x, _channels(run, value, x) if is_channels else value)
    return x


def embedding(run: Running, name: str, layer: nn.Embedding, ids: Any) -> Any:
    """Read rows of a table by secret whole numbers."""
    return run.ops.embedding(run.weight(name, "weight"), ids)


def function(verb: str) -> Layer:
    """Make a layer of a verb of one argument."""
    return lambda run, name, layer, x: getattr(run.ops, verb)(run.capped(x))


def relu_layer(run: Running, name: str, layer: nn.Module, x: Any) -> Any:
    """Give the positive part."""
    return relu(run, x)


def relu(run: Running, x: Any) -> Any:
    """Give the positive part; a cap costs one comparison more, where it could be reached."""
    is_capped = run.cap is not None and run.ops.reaches(x, bound=run.cap)
    return run.ops.clamp(x, 0.0, run.cap) if is_capped else run.ops.relu(x)


def clamp(run: Running, name: str, layer: nn.Hardtanh, x: Any) -> Any:
    """Keep values in the range of a Hardtanh or ReLU6."""
    return run.ops.clamp(x, layer.min_val, layer.max_val)


def leaky_relu(run: Running, name: str, layer: nn.LeakyReLU, x: Any) -> Any:
    """Scale the negative part."""
    slope = layer.negative_slope
    return run.ops.piecewise(run.capped(x), (0.0,), ((0.0, slope), (0.0, 1.0)))


def hardswish(run: Running, name: str, layer: nn.Hardswish, x: Any) -> Any:
    """Apply x·hardsigmoid(x)."""
    middle = (0.0, 0.5, 1 / 6)
    return run.ops.piecewise(run.capped(x), (-3.0, 3.0), ((0.0,), middle, (0.0, 1.0)))


def hardsigmoid(run: Running, name: str, layer: nn.Hardsigmoid, x: Any) -> Any:
    """Apply the piecewise linear sigmoid."""
    return run.ops.piecewise(run.capped(x), (-3.0, 3.0), ((0.0,), (0.5, 1 / 6), (1.0,)))


def softmax(run: Running, name: str, layer: Any, x: Any) -> Any:
    """Apply a softmax or its logarithm."""
    verb = run.ops.log_softmax if isinstance(layer, nn.LogSoftmax) else run.ops.softmax
    return verb(run.capped(x), dim=-1 if layer.dim is None else layer.dim)


def flatten_layer(run: Running, name: str, layer: nn.Flatten, x: Any) -> Any:
    """Join neighbouring dimensions."""
    return flatten(run, x, layer.start_dim, layer.end_dim)


def flatten(run: Running, x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    """Join neighbouring dimensions."""
    shape = run.ops.shape(x)
    first, last = start_dim % len(shape), end_dim % len(shape)
    return run.ops.reshape(x, (*shape[:first], -1, *shape[last + 1 :]))


def unflatten(run: Running, name: str, layer: Any, x: Any) -> Any:
    """Cut a dimension into several."""
    shape = run.ops.shape(x)
    at = layer.dim % len(shape)
    return run.ops.reshape(x, (*shape[:at], *layer.unflattened_size, *shape[at + 1 :]))


def same(run: Running, name: str, layer: nn.Module, x: Any) -> Any:
    """Change nothing: what a model in use does not do."""
    return x


def pool_layer(verb: str) -> Layer:
    """Make a layer that pools with a verb."""

    def apply(run: Running, name: str, layer: Any, x: Any) -> Any:
        return pool(run, verb, x, layer.kernel_size, layer.stride, layer.padding)

    return apply


def pool(run: Running, verb: str, x: Any, size: Any, stride: Any = None, padding: Any = 0) -> Any:
    """Pool images (n, c, h, w), or series (n, c, l) as images of one row."""
    stride = size if stride is None else stride
    call = getattr(run.ops, verb)
    shape = run.ops.shape(x)
    if len(shape) == 4:
        return call(x, size=pair(size), stride=pair(stride), padding=pair(padding))
    row = run.ops.reshape(x, (*shape[:2], 1, shape[-1]))
    one, step, pad = (
        value if isinstance(value, int) else value[0] for value in (size, stride, padding)
    )
    out = call(row, size=(1, one), stride=(1, step), padding=(0, pad))
    return run.ops.reshape(out, (*shape[:2], -1))


def adaptive_layer(run: Running, name: str, layer: Any, x: Any) -> Any:
    """Average-pool to a wanted size."""
    return adaptive(run, x, layer.output_size)


def adaptive(run: Running, x: Any, output_size: Any) -> Any:
    """Average-pool to a wanted size, if the input is a multiple of it."""
    sides = run.ops.shape(x)[2:]
    wanted = [output_size] * len(sides) if isinstance(output_size, int) else list(output_size)
    wanted = [side if one is None else one for one, side in zip(wanted, sides, strict=True)]
    if any(side % one for one, side in zip(wanted, sides, strict=True)):
        raise InputError(f"adaptive pooling wants sides {sides} to be multiples of {wanted}")
    size = tuple(side // one for one, side in zip(wanted, sides, strict=True))
    return pool(run, "avg_pool2d", x, size, size)
