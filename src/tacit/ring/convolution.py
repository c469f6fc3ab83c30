"""Exact convolutions modulo 2^64: windows are laid out as columns and multiplied."""

from collections.abc import Callable

import torch
from torch import Tensor

from tacit.errors import DataError
from tacit.ring.product import matmul

Pair = int | tuple[int, int]

# Larger batches are convolved in parts. 2 MiB stay in a core's cache and need no fresh pages, which
# makes a training step of LeNet's convolutions twice as fast; an accelerator wants large products.
_COLUMN_WORDS = {"cpu": 1 << 18}
_MAX_COLUMN_WORDS = 1 << 25


def conv2d(
    images: Tensor,
    weights: Tensor,
    *,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    multiply: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor:
    """Convolve (batch, channels, height, width) words as `torch.nn.functional.conv2d` does.

    The weights are (filters, channels / groups, rows, columns). ``multiply`` is who multiplies
    (windows, k) matrices with (k, filters) ones, if not this process.

    Guarantee: exact on every device.
    Cost: 0 rounds, 0 bits.
    """
    _check_shapes(images, weights, groups)
    pad_y, pad_x = _pair(padding)
    if pad_y or pad_x:
        images = torch.nn.functional.pad(images, (pad_x, pad_x, pad_y, pad_y))
    windows = _windows(images, weights, _pair(stride), _pair(dilation))
    most = _COLUMN_WORDS.get(images.device.type, _MAX_COLUMN_WORDS)
    step = max(1, (_MAX_COLUMN_WORDS if multiply else most) // max(1, windows[:1].numel()))
    starts = range(0, max(1, windows.shape[0]), step)
    return torch.cat(
        [_convolve(windows[at : at + step], weights, groups, multiply) for at in starts]
    )


def conv1d(
    signals: Tensor,
    weights: Tensor,
    *,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve (batch, channels, length) words as `torch.nn.functional.conv1d` does.

    The weights are (filters, channels / groups, taps).

    Guarantee: exact on every device.
    Cost: 0 rounds, 0 bits.
    """
    if signals.dim() != 3 or weights.dim() != 3:
        raise DataError(
            f"conv1d takes (batch, channels, length) and (filters, channels, taps), got shapes "
            f"{tuple(signals.shape)} and {tuple(weights.shape)}"
        )
    out = conv2d(
        signals.unsqueeze(2),
        weights.unsqueeze(2),
        stride=(1, stride),
        padding=(0, padding),
        dilation=(1, dilation),
        groups=groups,
    )
    return out.squeeze(2)


def _windows(
    images: Tensor, weights: Tensor, stride: tuple[int, int], dilation: tuple[int, int]
) -> Tensor:
    """View padded images as (batch, channels, rows, columns, out height, out width)."""
    extents = []
    for axis in (2, 3):
        reach = dilation[axis - 2] * (weights.shape[axis] - 1) + 1
        if images.shape[axis] < reach:
            raise DataError(
                f"a window of {reach} does not fit padded images of shape {tuple(images.shape)}"
            )
        extents.append((images.shape[axis] - reach) // stride[axis - 2] + 1)
    batch, channels, y, x = images.stride()
    return images.as_strided(
        (*images.shape[:2], *weights.shape[2:], *extents),
        (batch, channels, dilation[0] * y, dilation[1] * x, stride[0] * y, stride[1] * x),
        images.storage_offset(),
    )


def _convolve(
    windows: Tensor,
    weights: Tensor,
    groups: int,
    multiply: Callable[[Tensor, Tensor], Tensor] | None,
) -> Tensor:
    batch, channels, rows, columns, height, width = windows.shape
    filters = weights.shape[0]
    k = channels // groups * rows * columns
    unfolded = windows.permute(1, 2, 3, 0, 4, 5).reshape(groups, k, batch * height * width)
    laid = weights.reshape(groups, filters // groups, k)
    if multiply is None:
        out = matmul(laid, unfolded)
    else:  # many rows by few columns; the weights, which come again, on the right
        out = torch.stack([multiply(x.t(), w.t()).t() for x, w in zip(unfolded, laid, strict=True)])
    return out.reshape(filters, batch, height, width).transpose(0, 1).contiguous()


def _check_shapes(images: Tensor, weights: Tensor, groups: int) -> None:
    fits = (
        images.dim() == 4
        and weights.dim() == 4
        and groups >= 1
        and images.shape[1] == weights.shape[1] * groups
        and weights.shape[0] % groups == 0
    )
    if not fits:
        raise DataError(
            f"conv2d takes (batch, channels, height, width) and (filters, channels / groups, rows, "
            f"columns), got shapes {tuple(images.shape)} and {tuple(weights.shape)} with "
            f"groups={groups}"
        )


def _pair(value: Pair) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value
