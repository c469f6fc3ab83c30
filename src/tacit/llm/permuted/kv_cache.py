"""Keys and values of a conversation, as far as one party knows them."""

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

from tacit.errors import DataError
from tacit.llm.permuted.geometry import Heads

_FIRST = 64

Charge = Callable[[int], None]
"""Told how many bytes will be allocated; raises if they may not be."""


def _free(nbytes: int) -> None:
    """Allow any size."""


@final
class KvCache:
    """Rows (n, groups, dim) of keys and of values for every layer, growing at the end.

    Rows may be written again from any place on: what was ordered and not used is forgotten.
    ``version`` changes when rows move to other memory. ``charge`` is asked before memory grows.
    """

    def __init__(
        self,
        layers: int,
        heads: Heads,
        device: torch.device | None = None,
        *,
        charge: Charge = _free,
    ) -> None:
        shape = (2, _FIRST, heads.groups, heads.dim)
        self._charge = charge
        self._row_bytes = 2 * heads.groups * heads.dim * torch.int64.itemsize
        charge(layers * _FIRST * self._row_bytes)
        self._rows = [torch.zeros(shape, dtype=torch.int64, device=device) for _ in range(layers)]
        self._filled = [0] * layers
        self.version = 0

    @property
    def nbytes(self) -> int:
        """Return how much memory this takes, all of which was charged."""
        return sum(rows.shape[1] for rows in self._rows) * self._row_bytes

    def put(self, layer: int, at: int, keys: Tensor, values: Tensor) -> None:
        """Write rows from place ``at`` on; what was behind them is forgotten.

        Raises:
            DataError: rows before them were never written.
        """
        rows, end = self._room(layer, at, len(keys)), at + len(keys)
        rows[0, at:end], rows[1, at:end] = keys, values

    def reserve(self, at: int, most: int) -> None:
        """Count place ``at`` of every layer as written, in memory with room for ``most`` rows."""
        for layer in range(len(self._rows)):
            self._room(layer, at, 1, most)

    def whole(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return the memory of keys and values, written or not."""
        keys, values = self._rows[layer].unbind(0)
        return keys, values

    def _room(self, layer: int, at: int, count: int, most: int = 0) -> Tensor:
        """Make room for rows, which count as written."""
        rows, end = self._rows[layer], at + count
        self._check(layer, at)
        if max(end, most) > rows.shape[1]:
            # A new tensor: a thread that reads the old one keeps what it has.
            size = max(end, most, 2 * rows.shape[1])
            self._charge((size - rows.shape[1]) * self._row_bytes)
            grown = rows.new_zeros((2, size, *rows.shape[2:]))
            grown[:, :at] = rows[:, :at]
            self._rows[layer] = rows = grown
            self.version += 1
        self._filled[layer] = end
        return rows

    def upto(self, layer: int, n: int) -> tuple[Tensor, Tensor]:
        """Return the first n keys and values, without copying.

        Raises:
            DataError: so many were never written.
        """
        self._check(layer, n)
        keys, values = self._rows[layer][:, :n].unbind(0)
        return keys, values

    def _check(self, layer: int, n: int) -> None:
        """Refuse a batch that counts on rows nobody wrote: memory may hold anything there."""
        if n > self._filled[layer]:
            raise DataError(
                f"a batch counts on {n} tokens in the cache, but {self._filled[layer]} are there"
            )
