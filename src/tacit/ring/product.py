"""Exact matrix products modulo 2^64, on the CPU and on CUDA."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from tacit.errors import DataError
from tacit.ring import fused
from tacit.ring.digits import (
    INT8_DIGITS,
    digits_needed,
    multiply_float,
    multiply_int8,
    multiply_int8_stacked,
    split_int8,
)
from tacit.ring.narrow import NARROW, multiply_narrow

Kernel = Literal["int8", "stacked", "fused", "float64"]
"""How a product is computed on CUDA; all are exact, they differ in speed."""

_THIN = 64  # sides below this leave torch's fast int64 product when the other operand is transposed
_TINY = 512  # products of two matrices up to here take less time than calling one by one
_FEW = 4  # rows up to here are multiplied one by one

# Where one kernel overtakes another on an H200; `benchmarks/ring/products.py` measures them all.
_STACKED_ROWS = 96
_INT8_WORK = 2**29
_SMALL_WORK = 2**21  # multiplications that take less time than launching the kernels of digits


@dataclass(frozen=True, eq=False, repr=False)
class Factor:
    """A right operand prepared once for many products; made by `prepare`.

    Attributes:
        shape: (k, n) of the matrix.
        words: the matrix itself, where the CPU multiplies; it may be narrow.
        planes: its balanced base-256 digits, int8 of shape (n, digits, padded k), highest digit
            first, where CUDA multiplies. Small entries need few digits: one byte each.
    """

    shape: tuple[int, int]
    words: Tensor | None
    planes: Tensor | None

    def __repr__(self) -> str:
        digits = "none" if self.planes is None else str(self.planes.shape[1])
        return f"Factor(shape={self.shape}, digits={digits})"


def prepare(matrix: Tensor) -> Factor:
    """Prepare a (k, n) matrix, such as a layer's weights, to be the right operand of many products.

    On CUDA its entries are measured and split into as few int8 digits as hold them all: two where
    every entry is at most 32639 in magnitude, eight for uniform words. Rows in host memory are
    brought there, and their products back. On the CPU it stays as
    it is: what `narrowed` gave is multiplied panel by panel.
    """
    _check_words(matrix, may_be_narrow=True)
    if matrix.dim() != 2:
        raise DataError(f"only a matrix can be prepared, got shape {tuple(matrix.shape)}")
    shape = (matrix.shape[0], matrix.shape[1])
    if matrix.device.type == "cpu":
        return Factor(shape, matrix, None)
    return Factor(shape, None, _reversed_planes(matrix.long(), _digits_of(matrix)))


def matmul(left: Tensor, right: Tensor | Factor) -> Tensor:
    """Multiply words modulo 2^64, with the shapes and broadcasting of `torch.matmul`.

    The right operand may be narrow, see `narrowed`.

    Guarantee: exact on every device.
    Cost: 0 rounds, 0 bits.
    """
    _check_words(left)
    if isinstance(right, Factor):
        return _matmul_prepared(left, right)
    _check_words(right, may_be_narrow=True)
    if left.dim() == 0 or right.dim() == 0 or left.shape[-1] != right.shape[-2 % right.dim()]:
        raise DataError(
            f"cannot multiply shapes {tuple(left.shape)} and {tuple(right.shape)}: the last extent "
            f"of the left must equal the last but one of the right"
        )
    a = left.unsqueeze(0) if left.dim() == 1 else left
    b = right.unsqueeze(1) if right.dim() == 1 else right
    if b.dtype != torch.int64 and (b.dim() > 2 or b.device.type != "cpu"):
        b = b.long()
    out = _matmul_cpu(a, b) if left.device.type == "cpu" else _matmul_cuda(a, b)
    if left.dim() == 1:
        out = out.squeeze(-2)
    return out.squeeze(-1) if right.dim() == 1 else out


def accumulate(out: Tensor, left: Tensor, right: Factor) -> Tensor:
    """Add left · right to ``out`` (rows, columns), in place where that is faster; returns the sum.

    Guarantee: exact on every device.
    """
    if right.planes is None or out.shape != (left.shape[0], right.shape[1]):
        return out + matmul(left, right)
    kernel = choose(left.shape[0], *right.shape, is_prepared=True)
    if kernel != "fused" or not out.is_contiguous():
        return out + matmul(left, right)
    _check_words(left)
    return fused.multiply_rows(left, right.planes, out=out)


def multiply_with(kernel: Kernel, left: Tensor, right: Tensor | Factor) -> Tensor:
    """Multiply two matrices with the digit kernel of that name; `matmul` chooses one itself."""
    if kernel == "float64":
        if isinstance(right, Factor):
            raise DataError("the float64 kernel multiplies words, not a prepared Factor")
        return multiply_float(left, right)
    planes = right.planes if isinstance(right, Factor) else None
    if planes is None:
        words = right.words if isinstance(right, Factor) else right
        assert words is not None  # noqa: S101 - a Factor has one or the other
        planes = _reversed_planes(words, INT8_DIGITS)
    if kernel == "fused":
        return fused.multiply_rows(left, planes)
    digits = split_int8(left, INT8_DIGITS)
    return (
        multiply_int8_stacked(digits, planes)
        if kernel == "stacked"
        else multiply_int8(digits, planes)
    )


def choose(rows: int, k: int, columns: int, *, is_prepared: bool) -> Kernel:
    """Name the fastest kernel on CUDA for one product of (rows, k) by (k, columns)."""
    if is_prepared:
        if rows <= fused.MAX_ROWS and k <= fused.MAX_K and fused.is_available():
            return "fused"
        return "stacked" if rows <= _STACKED_ROWS else "int8"
    return "int8" if rows * k * columns >= _INT8_WORK else "float64"


def _matmul_prepared(left: Tensor, right: Factor) -> Tensor:
    k, columns = right.shape
    if left.dim() == 0 or left.shape[-1] != k:
        raise DataError(f"cannot multiply shape {tuple(left.shape)} by a Factor of {right.shape}")
    rows = _as_rows(left)
    if right.planes is not None:
        rows = rows.to(right.planes.device)
    if right.words is not None:
        out = _product_cpu(rows, right.words)
    elif rows.numel() == 0 or columns == 0:
        out = rows.new_zeros((rows.shape[0], columns))
    else:
        out = multiply_with(choose(rows.shape[0], k, columns, is_prepared=True), rows, right)
    return out.to(left.device).view(*left.shape[:-1], columns)


def _matmul_cuda(left: Tensor, right: Tensor) -> Tensor:
    m, k, n = left.shape[-2], left.shape[-1], right.shape[-1]
    if max(left.numel() * n, right.numel() * m) <= _SMALL_WORK:
        return (left.unsqueeze(-1) * right.unsqueeze(-3)).sum(-2)
    if right.dim() == 2:
        rows = _as_rows(left)
        out = multiply_with(choose(rows.shape[0], k, n, is_prepared=False), rows, right)
        return out.view(*left.shape[:-1], n)
    if choose(m, k, n, is_prepared=False) == "float64":
        return multiply_float(left, right)
    return _each(left, right, lambda a, b: multiply_with("int8", a, b))


def _matmul_cpu(left: Tensor, right: Tensor) -> Tensor:
    if right.dim() == 2:
        out = _product_cpu(_as_rows(left), right)
        return out.view(*left.shape[:-1], right.shape[-1])
    if left.shape[-2] * right.shape[-2] * right.shape[-1] <= _TINY:
        return (left.unsqueeze(-1) * right.unsqueeze(-3)).sum(-2)
    if min(left.shape[-2], right.shape[-1]) < _THIN:
        return _each(left, right, _product_cpu)
    return torch.matmul(left, right)


def _each(left: Tensor, right: Tensor, product: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Multiply a batch of matrices one by one."""
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    a = left.expand(*batch, *left.shape[-2:]).flatten(0, -3)
    b = right.expand(*batch, *right.shape[-2:]).flatten(0, -3)
    out = left.new_empty((a.shape[0], left.shape[-2], right.shape[-1]))
    for i in range(a.shape[0]):
        out[i] = product(a[i], b[i])
    return out.view(*batch, *out.shape[1:])


def _product_cpu(left: Tensor, right: Tensor) -> Tensor:
    """Multiply two matrices with torch's int64 product, arranged so that it is fast.

    With a thin operand beside a transposed one torch leaves its blocked kernel and is up to
    seventeen times slower: for those, transpose the product, or go row by row.
    """
    m, n = left.shape[0], right.shape[1]
    if right.dtype != torch.int64:
        return multiply_narrow(left, right)
    if min(m, n) >= _THIN:
        return torch.mm(left, right)
    if n < m:
        return _thin_product(right.t(), left.t()).t().contiguous()
    return _thin_product(left, right)


def _thin_product(rows: Tensor, right: Tensor) -> Tensor:
    if right.stride(1) == 1:
        return torch.mm(rows, right)
    if 0 < rows.shape[0] <= _FEW:
        return torch.stack([torch.mv(right.t(), row) for row in rows.unbind()])
    return torch.mm(right.t(), rows.t()).t()


def _as_rows(words: Tensor) -> Tensor:
    return words.reshape(math.prod(words.shape[:-1]), words.shape[-1])


def _reversed_planes(matrix: Tensor, digits: int) -> Tensor:
    return split_int8(matrix.t(), digits).flip(1)


def _digits_of(matrix: Tensor) -> int:
    if matrix.numel() == 0:
        return 1
    low, high = torch.aminmax(matrix)
    return digits_needed(max(-int(low), int(high)))


def _check_words(words: Tensor, *, may_be_narrow: bool = False) -> None:
    if words.dtype != torch.int64 and not (may_be_narrow and words.dtype in NARROW):
        raise DataError(f"ring words must be int64, got dtype {words.dtype}; encode them first")
