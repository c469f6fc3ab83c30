"""Pooling, one-dimensional convolution and norms of channels."""

from typing import TypeVar

from tacit.errors import InputError
from tacit.mpc.functions.norms import layer_norm
from tacit.mpc.functions.ordering import maximum
from tacit.mpc.primitives import Pair, Primitives

V = TypeVar("V")


def max_pool2d(ops: Primitives[V], x: V, *, size: Pair, stride: Pair, padding: Pair) -> V:
    """Give the largest element of every window of images (n, channels, height, width).

    Range: all. Error: that of the inputs. Cost: that of `maximum` of rows as long as a window.
    """
    normalised = ops.normalise_scale(x)
    windows = ops.windows(normalised, size=size, stride=stride, padding=padding, edge_is_least=True)
    return maximum(ops, windows, dim=2)


def avg_pool2d(ops: Primitives[V], x: V, *, size: Pair, stride: Pair, padding: Pair) -> V:
    """Give the mean of every window, counting what is beyond the edge as zeros.

    Range: all. Error: one unit in the last place. Cost: nothing is sent.
    """
    windows = ops.windows(x, size=size, stride=stride, padding=padding)
    return ops.scale(ops.sum(windows, dim=2), 1 / (size[0] * size[1]))


def conv1d(ops: Primitives[V], x: V, weight: V, *, stride: int, padding: int) -> V:
    """Convolve series (n, channels, length) with weights (out, channels, length): as conv2d."""
    if len(ops.shape(x)) != 3 or len(ops.shape(weight)) != 3:
        raise InputError(
            f"cannot convolve {ops.shape(x)} with {ops.shape(weight)}: wanted (n, channels, "
            "length) and (out, channels, length)"
        )
    flat = [ops.reshape(one, (*ops.shape(one)[:2], 1, -1)) for one in (x, weight)]
    out = ops.conv2d(flat[0], flat[1], stride=(1, stride), padding=(0, padding))
    shape = ops.shape(out)
    return ops.reshape(out, (*shape[:2], shape[3]))


def group_norm(ops: Primitives[V], x: V, *, groups: int, eps: float = 1e-5) -> V:
    """Bring groups of channels of (n, channels, …) to mean 0 and variance 1.

    Range, error and cost: as `layer_norm`.
    """
    shape = ops.shape(x)
    if len(shape) < 2 or groups < 1 or shape[1] % groups:
        raise InputError(f"cannot cut the channels of {shape} into {groups} equal groups")
    rows = ops.reshape(x, (shape[0], groups, -1))
    return ops.reshape(layer_norm(ops, rows, eps=eps), shape)
