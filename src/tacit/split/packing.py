"""How what travels is written: whole numbers and k-subsets as dense bits, values in few of them.

A k-subset is its rank among all of them; values are float32, or in few bits with or without bias.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import Any, Protocol

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


_RANGE_BYTES = 8
"""Two floats: the smallest and the largest value of a message."""
_LEAST_SPAN = torch.finfo(torch.float32).tiny
"""In place of 0, where all values are alike."""


class ValueCode(Protocol):
    """Writes a flat float32 tensor as bytes and reads it back."""

    def bytes_of(self, count: int) -> int:
        """Return how many bytes `count` values take."""
        ...

    def write(self, values: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return the bytes (uint8) of flat values."""
        ...

    def read(self, data: Tensor, count: int) -> Tensor:
        """Return the values (float32) that the bytes stand for."""
        ...

    def rounded(self, values: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return what `read` gives for what `write` writes, of messages (…, rows, width)."""
        ...


@dataclass(frozen=True)
class Exact:
    """Values as float32."""

    def bytes_of(self, count: int) -> int:
        """Return four bytes each."""
        return 4 * count

    def write(self, values: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return the bytes of the values."""
        if values.dtype != torch.float32 or not values.is_cpu or values.requires_grad:
            values = values.detach().to("cpu", torch.float32)
        return values.contiguous().view(torch.uint8)

    def read(self, data: Tensor, count: int) -> Tensor:
        """Return the values."""
        if data.storage_offset() % 4:
            data = data.clone()  # torch views bytes as floats only where floats may lie
        return data.view(torch.float32)

    def rounded(self, values: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return the values themselves."""
        return values


class _Spaced(ABC):
    """Values in a few bits each, as levels that are evenly spaced between the message's extremes.

    One range per message and not one per row: two floats for each row would be 12 % on top of
    128 values of 4 bits.
    """

    bits: int

    @abstractmethod
    def _levels(
        self, values: Tensor, low: Tensor, high: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        """Return the levels, below 2^bits, that the values are rounded to."""

    @abstractmethod
    def _values(self, levels: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Return what the levels stand for."""

    def bytes_of(self, count: int) -> int:
        """Return the bytes of the range and of the levels."""
        return _RANGE_BYTES + packed_bytes(count, self.bits)

    def write(self, values: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return the range and the levels as bytes."""
        low, high = _extremes(values)
        levels = self._levels(values, low, high, generator)
        ends = Exact().write(torch.stack([low, high]), None)
        return torch.cat([ends, pack_numbers(levels, self.bits)])

    def read(self, data: Tensor, count: int) -> Tensor:
        """Return what the levels stand for."""
        low, high = Exact().read(data[:_RANGE_BYTES].contiguous(), 2)
        if not (torch.isfinite(low) and torch.isfinite(high) and low <= high):
            raise DataError(
                f"the range of packed values must be finite and ascend, got {low}…{high}"
            )
        return self._values(unpack_numbers(data[_RANGE_BYTES:], count, self.bits), low, high)

    def rounded(self, values: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return what the levels stand for that the values are rounded to."""
        low, high = _extremes(values)
        return self._values(self._levels(values, low, high, generator), low, high)


@dataclass(frozen=True)
class Uniform(_Spaced):
    """The middles of 2^bits stretches of the same length (eq. 3-1, 3-2)."""

    bits: int

    def _levels(
        self, values: Tensor, low: Tensor, high: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        steps = (values - low) / (high - low).clamp(min=_LEAST_SPAN)
        return (steps * (1 << self.bits)).floor().clamp(0, (1 << self.bits) - 1).to(torch.int64)

    def _values(self, levels: Tensor, low: Tensor, high: Tensor) -> Tensor:
        return low + (levels.to(torch.float32) + 0.5) * ((high - low) / (1 << self.bits))


@dataclass(frozen=True)
class Unbiased(_Spaced):
    """Values rounded up or down by a fair coin: right on average.

    For gradients: rounding to the nearest would lose the many small ones of every batch.
    """

    bits: int

    def _levels(
        self, values: Tensor, low: Tensor, high: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        coins = torch.rand(values.shape, generator=generator, device=values.device)
        steps = (values - low) / (high - low).clamp(min=_LEAST_SPAN) * ((1 << self.bits) - 1)
        return (steps + coins).floor().clamp(0, (1 << self.bits) - 1).to(torch.int64)

    def _values(self, levels: Tensor, low: Tensor, high: Tensor) -> Tensor:
        return low + levels.to(torch.float32) * ((high - low) / ((1 << self.bits) - 1))


def _extremes(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest of flat values, or of each message (…, rows, width)."""
    if values.numel() == 0:
        zero = torch.zeros((), device=values.device)
        return zero, zero
    values = values.detach().to(torch.float32)
    if values.dim() > 2:
        return values.amin((-2, -1), keepdim=True), values.amax((-2, -1), keepdim=True)
    low, high = torch.aminmax(values)
    return low, high
