"""Keys and values of a conversation, as far as one party knows them."""

from typing import final

import torch
from torch import Tensor

from tacit.errors import DataError
from tacit.llm.private.geometry import Heads

_FIRST = 64


@final
class Shelf:
    """Rows (n, groups, dim) of keys and of values for every layer, growing at the end.

    Rows may be written again from any place on: what was ordered and not used is forgotten.
    """

    def __init__(self, layers: int, heads: Heads, device: torch.device | None = None) -> None:
        shape = (2, _FIRST, heads.groups, heads.dim)
        self._rows = [torch.zeros(shape, dtype=torch.int64, device=device) for _ in range(layers)]
        self._filled = [0] * layers

    def put(self, layer: int, at: int, keys: Tensor, values: Tensor) -> None:
        """Write rows from place ``at`` on; what was behind them is forgotten.

        Raises:
            DataError: rows before them were never written.
        """
        rows, end = self._rows[layer], at + len(keys)
        self._check(layer, at)
        if end > rows.shape[1]:
            # A new tensor: a thread that reads the old one keeps what it has.
            grown = rows.new_zeros((2, max(end, 2 * rows.shape[1]), *rows.shape[2:]))
            grown[:, :at] = rows[:, :at]
            self._rows[layer] = rows = grown
        rows[0, at:end], rows[1, at:end] = keys, values
        self._filled[layer] = end

    def upto(self, layer: int, n: int) -> tuple[Tensor, Tensor]:
        """Return the first n keys and values, without copying.

        Raises:
            DataError: so many were never written.
        """
        self._check(layer, n)
        keys, values = self._rows[layer][:, :n].unbind(0)
        return keys, values

    def _check(self, layer: int, n: int) -> None:
        """Refuse an order that counts on rows nobody wrote: memory may hold anything there."""
        if n > self._filled[layer]:
            raise DataError(
                f"an order counts on {n} tokens in the cache, but {self._filled[layer]} are there"
            )
