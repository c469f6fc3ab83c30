"""Gradients of a convolution, as convolutions: any interpreter that has those has these."""

from typing import TypeVar

from tacit.nn.ops import Pair, TrainableOps

T = TypeVar("T")


def weight_gradient(
    ops: TrainableOps[T], x: T, gradient: T, shape: tuple[int, ...], stride: Pair, padding: Pair
) -> T:
    """Differentiate by the weights: images and gradients are convolved over the batch."""
    spread = _spread(ops, gradient, stride)
    swapped = ops.conv2d(
        ops.transpose(x, 0, 1), ops.transpose(spread, 0, 1), stride=(1, 1), padding=padding
    )
    # Rows and columns that no window reached leave a rim.
    for axis in (2, 3):
        swapped = ops.take(swapped, range(shape[axis]), dim=axis)
    return ops.transpose(swapped, 0, 1)


def input_gradient(
    ops: TrainableOps[T],
    gradient: T,
    weight: T,
    shape: tuple[int, ...],
    stride: Pair,
    padding: Pair,
) -> T:
    """Differentiate by the images: gradients are convolved with the weights turned round."""
    turned = ops.transpose(weight, 0, 1)
    sizes = ops.shape(weight)[2:]
    for axis, size in enumerate(sizes):
        turned = ops.take(turned, range(size - 1, -1, -1), dim=2 + axis)
    spread = _spread(ops, gradient, stride)
    rim = (sizes[0] - 1, sizes[1] - 1)
    whole = ops.conv2d(spread, turned, stride=(1, 1), padding=rim)
    for axis, (size, pad) in enumerate(zip(shape[2:], padding, strict=True)):
        whole = _window(ops, whole, 2 + axis, pad, size)
    return whole


def _spread(ops: TrainableOps[T], x: T, stride: Pair) -> T:
    """Put stride − 1 zeros between neighbours."""
    for axis, step in enumerate(stride):
        if step > 1:
            size = ops.shape(x)[2 + axis]
            picks = [at // step if at % step == 0 else size for at in range((size - 1) * step + 1)]
            x = ops.take(_with_zero(ops, x, 2 + axis), picks, dim=2 + axis)
    return x


def _window(ops: TrainableOps[T], x: T, axis: int, start: int, size: int) -> T:
    """Cut a stretch out of a dimension, with zeros where it reaches beyond the end."""
    there = ops.shape(x)[axis]
    if start + size <= there:
        return ops.take(x, range(start, start + size), dim=axis)
    picks = [min(at, there) for at in range(start, start + size)]
    return ops.take(_with_zero(ops, x, axis), picks, dim=axis)


def _with_zero(ops: TrainableOps[T], x: T, axis: int) -> T:
    """Append one slice of zeros."""
    return ops.concatenate([x, ops.scale(ops.take(x, (0,), dim=axis), 0.0)], dim=axis)
