"""How the kept values are written: as float32, in few bits, or in few bits without bias."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tacit.errors import DataError
from tacit.split.packing import pack_numbers, packed_bytes, unpack_numbers

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
