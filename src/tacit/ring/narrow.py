"""Words in as few bytes as hold them, and products with what is made panel by panel.

A weight with 16 fraction bits is a small number: as an int64 it would take twice the memory, and a
product of few rows waits for memory most of its time. So it lies narrow, and a panel of it at a
time is widened into a buffer that stays in a core's cache.
"""

import math
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from tacit.ring.fixed import encode

NARROW = (torch.int8, torch.int16, torch.int32)
PANEL_BYTES = 4 << 20
"""Of words, at a time: large enough for torch's product to be fast, small enough for a cache."""
_FEW = 4  # rows up to here are multiplied one by one, as in `product`


def narrowed(words: Tensor) -> Tensor:
    """Return the same numbers in the narrowest of int8, int16, int32 and int64 that holds them."""
    if words.numel() == 0:
        return words
    low, high = (int(one) for one in torch.aminmax(words))
    for dtype in NARROW:
        limits = torch.iinfo(dtype)
        if limits.min <= low and high <= limits.max:
            return words.to(dtype)
    return words


def encode_narrow(panels: Iterable[Tensor], shape: tuple[int, ...], *, frac_bits: int) -> Tensor:
    """Encode real numbers that come as panels of rows into the narrowest integers that hold all.

    Raises:
        RangeError: as `encode` does.
    """
    out, at = torch.empty(shape, dtype=torch.int32), 0
    for panel in panels:
        words = narrowed(encode(panel, frac_bits=frac_bits))
        if words.dtype == torch.int64:
            out = out.long()
        out[at : at + len(words)] = words
        at += len(words)
    return narrowed(out)


def panel_rows(shape: tuple[int, ...], nbytes: int = PANEL_BYTES) -> list[int]:
    """Cut a tensor into panels of whole rows of at most so many bytes of words, one row at least.

    Returns:
        How many rows each has.
    """
    step = max(1, nbytes // 8 // max(1, math.prod(shape[1:])))
    return [min(step, shape[0] - at) for at in range(0, shape[0], step)]


def multiply_panels(left: Tensor, panels: Iterable[Tensor], columns: int) -> Tensor:
    """Multiply words (…, k) by a matrix (k, columns) that comes as panels of its rows, in order.

    Guarantee: exact modulo 2^64.
    """
    rows = left.reshape(-1, left.shape[-1])
    out, at = rows.new_zeros((len(rows), columns)), 0
    for panel in panels:
        out.addmm_(rows[:, at : at + len(panel)], panel)
        at += len(panel)
    return out.view(*left.shape[:-1], columns)


def multiply_narrow(rows: Tensor, right: Tensor) -> Tensor:
    """Multiply words (m, k) by a narrow matrix (k, n) in host memory, modulo 2^64."""
    if right.stride(0) == 1:
        return _multiply_columns(rows, right.t())
    return multiply_panels(rows, _widened(right), right.shape[1])


def _multiply_columns(rows: Tensor, right: Tensor) -> Tensor:
    """Multiply by the transpose of (n, k), whose rows lie in one piece: dot products, the fastest.

    Many rows at once are multiplied from the other side, as torch is fast there.
    """
    is_few, columns = len(rows) <= _FEW, rows.t()
    out = rows.new_empty((len(rows), right.shape[0]) if is_few else (right.shape[0], len(rows)))
    at = 0
    for panel in _widened(right):
        there = slice(at, at + len(panel))
        if is_few:
            for i, row in enumerate(rows):
                out[i, there] = torch.mv(panel, row)
        else:
            out[there] = torch.mm(panel, columns)
        at += len(panel)
    return out if is_few else out.t().contiguous()


def _widened(matrix: Tensor) -> Iterator[Tensor]:
    """Give panels of rows as words, all in one buffer."""
    sizes, at = panel_rows(tuple(matrix.shape)), 0
    buffer = torch.empty((max(sizes, default=0), matrix.shape[1]), dtype=torch.int64)
    for size in sizes:
        # Not torch's copy: it wakes all threads for every panel, and waits for the last of them.
        np.copyto(buffer[:size].numpy(), matrix[at : at + size].numpy())
        yield buffer[:size]
        at += size
