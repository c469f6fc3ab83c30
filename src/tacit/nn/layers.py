"""What layers and functions of torch have in common: norms, activations, tables of rows."""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import nn

from tacit.errors import InputError
from tacit.nn.running import Constant, Running

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d
EPS = torch.finfo(torch.float32).eps
"""What torch adds to mean squares where a module names nothing."""


def linear(run: Running, name: str, layer: nn.Linear, x: Any) -> Any:
    """Apply an affine map."""
    return run.affine(name, x)


def channels(run: Running, values: Any, x: Any) -> Any:
    """Shape one number per channel so that it goes with (n, channels, …)."""
    shape = (-1, *(1,) * (len(run.ops.shape(x)) - 2))
    if isinstance(values, Constant):
        return Constant(values.values.reshape(shape))
    return run.ops.reshape(values, shape)


def batch_norm(run: Running, name: str, layer: BatchNorm, x: Any) -> Any:
    """Apply the factor and offset that a batch norm was folded into."""
    x = run.capped(x)
    scaled = run.mul(x, channels(run, run.weight(name, "factor"), x))
    return run.add(scaled, channels(run, run.weight(name, "offset"), x))


def layer_norm(run: Running, name: str, layer: nn.LayerNorm, x: Any) -> Any:
    """Normalise the last dimension."""
    out = run.normed(x, eps=layer.eps, centred=True)
    return adjusted(run, out, run.weight(name, "weight"), run.weight(name, "bias"))


def check_normalised(shape: Any, place: str = "") -> None:
    """Refuse a norm over more than the last dimension.

    Raises:
        InputError: names the shape.
    """
    if len(shape) != 1:
        raise InputError(f"{place}wanted the last dimension alone, got {tuple(shape)}")


def adjusted(
    run: Running, x: Any, weight: Any, bias: Any = None, *, is_channels: bool = False
) -> Any:
    """Apply the gain and the offset of a norm, if it has them."""
    for value, verb in ((weight, run.mul), (bias, run.add)):
        if value is not None:
            x = verb(x, channels(run, value, x) if is_channels else value)
    return x


def rows_of(run: Running, table: Any, ids: Any, padding: int | None) -> Any:
    """Read rows of a table by whole numbers; either may be public."""
    if run.hot is not None and ids is run.hot:
        return run.follows(run.ops.lookup(run.lifted(table, ids), ids), table)
    if not isinstance(ids, Constant):
        return run.follows(run.ops.embedding(run.lifted(table, ids), ids, padding=padding), table)
    places = ids.values.long()
    if isinstance(table, Constant):
        return Constant(table.values[places])
    if padding is not None:
        raise InputError("a table that is read by public numbers must have no padding")
    rows = run.ops.take(table, places.flatten().tolist(), dim=0)
    return run.follows(run.ops.reshape(rows, (*places.shape, run.ops.shape(table)[1])), table)


SHRINKING = frozenset({"gelu", "relu", "silu", "tanh"})
"""Functions of which no value is larger than its argument."""
OFF = 2.0**-10
"""How far off their approximations can be."""


def shrunk(run: Running, verb: str, x: Any) -> Any:
    """Apply a verb of one argument; of some it is known that rows get no longer."""
    x = run.capped(x)
    out = getattr(run.ops, verb)(x)
    return run.follows(out, x, off=OFF) if verb in SHRINKING else out


def relu(run: Running, x: Any, inplace: bool = False) -> Any:
    """Give the positive part; a cap costs one comparison more, where it could be reached."""
    is_capped = run.cap is not None and run.ops.reaches(x, bound=run.cap)
    return run.follows(run.ops.clamp(x, 0.0, run.cap) if is_capped else run.ops.relu(x), x)


def leaky_relu(run: Running, x: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    """Scale the negative part."""
    return run.ops.piecewise(run.capped(x), (0.0,), ((0.0, negative_slope), (0.0, 1.0)))


def hardswish(run: Running, x: Any, inplace: bool = False) -> Any:
    """Apply x·hardsigmoid(x)."""
    middle = (0.0, 0.5, 1 / 6)
    return run.ops.piecewise(run.capped(x), (-3.0, 3.0), ((0.0,), middle, (0.0, 1.0)))


def hardsigmoid(run: Running, x: Any, inplace: bool = False) -> Any:
    """Apply the piecewise linear sigmoid."""
    return run.ops.piecewise(run.capped(x), (-3.0, 3.0), ((0.0,), (0.5, 1 / 6), (1.0,)))


def softmax_dim(run: Running, x: Any, dim: int | None) -> int:
    """Return the dimension that torch chooses where none was named."""
    if dim is not None:
        return dim
    return 0 if len(run.ops.shape(x)) in (1, 3) else 1


def flatten(run: Running, x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    """Join neighbouring dimensions."""
    shape = run.ops.shape(x)
    rank = max(len(shape), 1)  # a number becomes a row of one
    first, last = start_dim % rank, end_dim % rank
    joined = prod(shape[first : last + 1])
    return run.ops.reshape(x, (*shape[:first], joined, *shape[last + 1 :]))


def unflatten(run: Running, x: Any, dim: int, sizes: Sequence[int]) -> Any:
    """Cut a dimension into several; one of them may be -1, for what is left."""
    shape = run.ops.shape(x)
    at, known = dim % len(shape), prod(size for size in sizes if size != -1)
    filled = [shape[at] // known if size == -1 else size for size in sizes]
    return run.ops.reshape(x, (*shape[:at], *filled, *shape[at + 1 :]))
