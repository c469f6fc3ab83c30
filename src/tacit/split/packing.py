"""Whole numbers as dense bits: fixed width, and k-subsets by their rank among all of them."""

from functools import lru_cache
from math import comb
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import DataError

_GROUP = 8
"""So many numbers of up to as many bits fill whole bytes, and fit one word."""
_LARGEST_RANK_BITS = 62
"""Numbers beyond this do not fit an int64 and are counted in Python's own integers."""


def bits_below(count: int) -> int:
    """Return how many bits tell `count` values apart: ⌈log2 count⌉."""
    return max(count - 1, 0).bit_length()


def packed_bytes(count: int, bits: int) -> int:
    """Return how many bytes `count` numbers of `bits` bits take."""
    return -(-count * bits // 8)


def pack_numbers(numbers: Tensor, bits: int) -> Tensor:
    """Pack numbers in [0, 2^bits) one after the other, low bit first, into bytes."""
    flat = numbers.reshape(-1).cpu().numpy()
    if bits == 0 or flat.size == 0:
        return torch.empty(0, dtype=torch.uint8)
    if bits <= _GROUP:
        return torch.from_numpy(_pack_groups(flat, bits))
    small = np.ascontiguousarray(flat.astype(_word(bits)))
    spread = np.unpackbits(small.view(np.uint8).reshape(flat.size, -1), axis=1, bitorder="little")
    return torch.from_numpy(np.packbits(spread[:, :bits], bitorder="little"))


def unpack_numbers(packed: Tensor, count: int, bits: int) -> Tensor:
    """Unpack what `pack_numbers` packed, as int64."""
    if bits == 0 or count == 0:
        return torch.zeros(count, dtype=torch.int64)
    _check_length(packed, packed_bytes(count, bits))
    if bits <= _GROUP:
        return torch.from_numpy(_unpack_groups(packed.cpu().numpy(), count, bits))
    stream = np.unpackbits(packed.cpu().numpy(), count=count * bits, bitorder="little")
    word = _word(bits)
    padded = np.zeros((count, word.itemsize * 8), np.uint8)
    padded[:, :bits] = stream.reshape(count, bits)
    numbers = np.packbits(padded, axis=1, bitorder="little").view(word)[:, 0]
    return torch.from_numpy(numbers.astype(np.int64))


def _pack_groups(numbers: NDArray[np.int64], bits: int) -> NDArray[np.uint8]:
    """Pack eight numbers at a time: they lie side by side in a word, of which so many bytes count.

    A third of the time of spreading every bit over a byte.
    """
    size = numbers.size
    if size % _GROUP:
        numbers = np.concatenate([numbers, np.zeros(-size % _GROUP, np.int64)])
    joined = numbers.astype(np.int64, copy=False).reshape(-1, _GROUP) @ _places(bits)
    whole = joined.view(np.uint8).reshape(-1, 8)[:, :bits].reshape(-1)
    return whole[: packed_bytes(size, bits)] if size % _GROUP else whole


def _unpack_groups(packed: NDArray[np.uint8], count: int, bits: int) -> NDArray[np.int64]:
    groups = -(-count // _GROUP)
    if count % _GROUP:
        packed = np.concatenate([packed, np.zeros(groups * bits - packed.size, np.uint8)])
    padded = np.zeros((groups, 8), np.uint8)
    padded[:, :bits] = packed.reshape(groups, bits)
    numbers = (padded.view("<i8") >> _shifts(bits) & ((1 << bits) - 1)).reshape(-1)
    return numbers[:count] if count % _GROUP else numbers


@lru_cache
def _shifts(bits: int) -> NDArray[np.int64]:
    return bits * np.arange(_GROUP)


@lru_cache
def _places(bits: int) -> NDArray[np.int64]:
    return np.left_shift(1, _shifts(bits))  # the last bit of the last number may be the sign: fine


def subset_bits(width: int, k: int) -> int:
    """Return how many bits tell the k-subsets of `width` things apart."""
    return bits_below(comb(width, k))


def pack_subsets(columns: Tensor, width: int) -> Tensor:
    """Pack rows of k ascending columns by their rank in the combinatorial number system.

    The rank of c_1 < … < c_k is the sum of the binomials C(c_j, j): ⌈log2 C(width, k)⌉ bits a
    row, the fewest that any code can take if all subsets are equally likely.
    """
    rows, k = columns.shape
    table, order = _binomials(width, k), columns.cpu().numpy()
    ranks = table[order, np.arange(1, k + 1)].sum(axis=1) if k else np.zeros(rows, np.int64)
    bits = subset_bits(width, k)
    if table.dtype != object:
        return pack_numbers(torch.from_numpy(ranks.astype(np.int64)), bits)
    length = max(-(-bits // 8), 1)
    raw = b"".join(int(rank).to_bytes(length, "little") for rank in ranks)
    spread = np.unpackbits(
        np.frombuffer(raw, np.uint8).reshape(rows, length), axis=1, bitorder="little"
    )
    return torch.from_numpy(np.packbits(spread[:, :bits], bitorder="little"))


def unpack_subsets(packed: Tensor, rows: int, width: int, k: int) -> Tensor:
    """Unpack what `pack_subsets` packed.

    Raises:
        DataError: a rank is beyond the last subset.
    """
    table, bits = _binomials(width, k), subset_bits(width, k)
    left = _ranks(packed, rows, bits, is_wide=table.dtype == object)
    if any(rank >= comb(width, k) for rank in left.tolist()):
        raise DataError(f"a packed subset is beyond the last of {k} out of {width}")
    columns = np.empty((rows, k), np.int64)
    for j in range(k, 0, -1):
        columns[:, j - 1] = np.searchsorted(table[:, j], left, side="right") - 1
        left = left - table[columns[:, j - 1], j]
    return torch.from_numpy(columns)


def _ranks(packed: Tensor, rows: int, bits: int, *, is_wide: bool) -> NDArray[Any]:
    if not is_wide:
        return unpack_numbers(packed, rows, bits).numpy()
    _check_length(packed, packed_bytes(rows, bits))
    stream = np.unpackbits(packed.cpu().numpy(), count=rows * bits, bitorder="little")
    raw = np.packbits(stream.reshape(rows, bits), axis=1, bitorder="little")
    return np.array([int.from_bytes(row.tobytes(), "little") for row in raw], dtype=object)


@lru_cache(maxsize=32)
def _binomials(width: int, k: int) -> NDArray[Any]:  # of int64, or of Python integers
    """Return C(c, j) for c < width and j ≤ k."""
    rows = [[comb(c, j) for j in range(k + 1)] for c in range(width)]
    # A single binomial can be larger than the number of subsets, when k is near the width.
    is_wide = max(max(row) for row in rows) >= 2**_LARGEST_RANK_BITS
    return np.array(rows, dtype=object if is_wide else np.int64).reshape(width, k + 1)


def _word(bits: int) -> np.dtype[Any]:
    return np.dtype(next(f"<u{size}" for size in (1, 2, 4, 8) if bits <= 8 * size))


def _check_length(packed: Tensor, wanted: int) -> None:
    if packed.numel() != wanted:
        raise DataError(f"wanted {wanted} packed bytes, got {packed.numel()}")
