"""Tensors as bytes and back without copying; little-endian, as every machine we run on is."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tacit.errors import DataError

_TORCH_DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
}
_NUMPY_NAMES = {"f32": "<f4", "f64": "<f8", "i32": "<i4", "i64": "<i8", "u8": "|u1"}
_WIRE_NAMES = {dtype: name for name, dtype in _TORCH_DTYPES.items()}

WIRE_DTYPES = tuple(_TORCH_DTYPES)
"""The names a tensor's element type has on the wire."""


def wire_dtype(tensor: Tensor) -> str:
    """Name a tensor's element type as the wire spells it, e.g. "i64"."""
    name = _WIRE_NAMES.get(tensor.dtype)
    if name is None:
        raise DataError(f"a tensor on the wire must be one of {WIRE_DTYPES}, got {tensor.dtype}")
    return name


def to_bytes(tensor: Tensor) -> memoryview:
    """View a tensor's elements as bytes, in row-major order.

    A contiguous tensor in host memory is not copied: the view shares its memory and keeps it
    alive, so the tensor must not change while the bytes are being sent. A strided tensor and one
    on a device are copied first.
    """
    wire_dtype(tensor)
    if tensor.numel() == 0:
        return memoryview(b"")
    return tensor.detach().cpu().contiguous().view(-1).numpy().data.cast("B")


def from_bytes(data: bytes | bytearray | memoryview, dtype: str, shape: Sequence[int]) -> Tensor:
    """View received bytes as a tensor, without copying.

    The tensor shares memory with `data` and keeps it alive. If `data` is read-only, the tensor
    must not be changed in place: torch has no read-only tensors and would write through.

    Raises:
        DataError: the type is unknown, the shape negative, or the length is not what they need.
    """
    if dtype not in _TORCH_DTYPES:
        raise DataError(f"a tensor on the wire must be one of {WIRE_DTYPES}, got {dtype!r}")
    view = memoryview(data)
    if any(extent < 0 for extent in shape):
        raise DataError(f"the shape of a tensor cannot be negative, got {tuple(shape)}")
    wanted = math.prod(shape) * _TORCH_DTYPES[dtype].itemsize
    if view.nbytes != wanted:
        raise DataError(
            f"{dtype} of shape {tuple(shape)} takes {wanted} bytes, got {view.nbytes} bytes"
        )
    if wanted == 0:
        return torch.empty(tuple(shape), dtype=_TORCH_DTYPES[dtype])
    if view.readonly:
        return torch.from_numpy(np.asarray(_Unlocked(view, dtype, tuple(shape))))
    return torch.frombuffer(view, dtype=_TORCH_DTYPES[dtype]).view(tuple(shape))


class _Unlocked:
    """Read-only memory shown to NumPy as writable, since torch warns about any other."""

    def __init__(self, view: memoryview, dtype: str, shape: tuple[int, ...]) -> None:
        self._view = view
        address = np.frombuffer(view, dtype=np.uint8).ctypes.data
        self.__array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "typestr": _NUMPY_NAMES[dtype],
            "version": 3,
        }
