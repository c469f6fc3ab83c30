"""Exact products modulo 2^64 from small digits, for devices without 64-bit matrix units.

A word is written in balanced digits, x = Σ dᵢ · 2^(w·i) with |dᵢ| ≤ 2^(w−1), and the digits of both
operands are multiplied where the hardware is fast: 8-bit digits as int8 with sums in int32, 22-bit
digits as doubles. A pair of digits with w·(i + j) ≥ 64 does not reach the result. Pairs with the
same i + j are summed inside one product, by laying the digits of a row side by side.

Nothing here needs a device; on a CPU the same code is slower than torch's own int64 product.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

INT8_BITS = 8
INT8_DIGITS = 8
FLOAT_BITS = 22

_K_STEP = 16  # int8 rows are padded to this many bytes, which the tensor cores want aligned
_INT8_SUM = 2**17 - 1  # products of two digits, 2^14 each, that an int32 can sum
_FLOAT_SUM = 2**11  # products of two digits, 2^42 each, that a double sums exactly: 2^53 in all
_BALANCE = -0x7F7F7F7F7F7F7F80  # 0x8080…80 as a signed word: 128 in every byte


def digits_needed(bound: int) -> int:
    """Say how many 8-bit digits hold every integer up to `bound` in magnitude."""
    count = 1
    while count < INT8_DIGITS and bound > 127 * (256**count - 1) // 255:
        count += 1
    return count


def split_int8(words: Tensor, count: int) -> Tensor:
    """Write (rows, k) words as `count` digits each, int8: (rows, count, padded k), lowest first."""
    rows, k = words.shape
    # Adding 128 to every byte makes all digits non-negative; flipping its top bit takes 128 away.
    octets = ((words + _BALANCE) ^ _BALANCE).unsqueeze(-1).view(torch.int8)  # (rows, k, 8)
    planes = octets.new_zeros((rows, count, -(-k // _K_STEP) * _K_STEP))
    planes[:, :, :k] = octets[:, :, :count].transpose(1, 2)
    return planes


def split_float(words: Tensor) -> Tensor:
    """Write (…, rows, k) words as three digits each, float64: (…, rows, 3, k), lowest first."""
    half, mask = 1 << (FLOAT_BITS - 1), (1 << FLOAT_BITS) - 1
    balanced = words + (half + (half << FLOAT_BITS))
    digits = (
        (balanced & mask) - half,
        ((balanced >> FLOAT_BITS) & mask) - half,
        balanced >> (2 * FLOAT_BITS),
    )
    return torch.stack(digits, dim=-2).to(torch.float64)


def multiply_int8(left: Tensor, right: Tensor) -> Tensor:
    """Multiply digit planes (m, i, k) and (n, j, k), the latter reversed: words (m, n).

    `right` has its highest digit first, so that the digits that meet lie in the same order.
    """
    pairs = min(left.shape[1], right.shape[1])
    step = _INT8_SUM // pairs // _K_STEP * _K_STEP
    out = torch.zeros((left.shape[0], right.shape[0]), dtype=torch.int64, device=left.device)
    for start in range(0, left.shape[2], step):
        part = slice(start, start + step)
        _add_diagonals(out, left[:, :, part], right[:, :, part], INT8_BITS, _int8_product)
    return out


def multiply_int8_stacked(left: Tensor, right: Tensor) -> Tensor:
    """Do as `multiply_int8`, for few rows: one product of all digits reads `right` only once."""
    (m, i, k), (n, j, _) = left.shape, right.shape
    if k > _INT8_SUM:
        return multiply_int8(left, right)
    sums = _int8_product(left.reshape(m * i, k), right.reshape(n * j, k)).view(m, i, n, j)
    shifts = torch.arange(i, device=left.device).view(i, 1, 1) + torch.arange(
        j - 1, -1, -1, device=left.device
    )
    terms = torch.where(shifts < INT8_DIGITS, sums.to(torch.int64) << (INT8_BITS * shifts), 0)
    return terms.sum((1, 3))


def multiply_float(left: Tensor, right: Tensor) -> Tensor:
    """Multiply (…, m, k) words by (…, k, n) words in double precision."""
    k = left.shape[-1]
    # Two pairs of full digits meet on the middle diagonal.
    step = _FLOAT_SUM // 2
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    size = (*batch, left.shape[-2], right.shape[-1])
    out = torch.zeros(size, dtype=torch.int64, device=left.device)
    for start in range(0, k, step):
        a = split_float(left[..., start : start + step])
        b = split_float(right[..., start : start + step, :].transpose(-1, -2)).flip(-2)
        _add_diagonals(out, a, b, FLOAT_BITS, _float_product)
    return out


def _add_diagonals(
    out: Tensor,
    left: Tensor,
    right: Tensor,
    bits: int,
    product: Callable[[Tensor, Tensor], Tensor],
) -> None:
    """Add Σ left[i] · right[j] · 2^(bits·(i + j)) to `out`, one product for each i + j."""
    i_count, j_count = left.shape[-2], right.shape[-2]
    for diagonal in range(min(i_count + j_count - 1, -(-64 // bits))):
        first = max(0, diagonal - j_count + 1)
        last = min(diagonal, i_count - 1)
        shift = j_count - 1 - diagonal  # right is reversed: digit j lies at j_count − 1 − j
        a = left[..., first : last + 1, :].flatten(-2)
        b = right[..., shift + first : shift + last + 1, :].flatten(-2)
        out.add_(product(a, b), alpha=1 << (bits * diagonal))


def _int8_product(left: Tensor, right: Tensor) -> Tensor:
    """Multiply int8 (m, k) by the transpose of (n, k) into int32 (m, n)."""
    m, n = left.shape[0], right.shape[0]
    if left.device.type != "cuda":
        return torch._int_mm(left, right.t())
    # cuBLAS wants more than 16 rows and columns in eights.
    if m < 32:
        left = torch.nn.functional.pad(left, (0, 0, 0, 32 - m))
    if n % 8:
        right = torch.nn.functional.pad(right, (0, 0, 0, -n % 8))
    return torch._int_mm(left, right.t())[:m, :n]


def _float_product(left: Tensor, right: Tensor) -> Tensor:
    return torch.matmul(left, right.transpose(-1, -2)).to(torch.int64)
