"""Keys and values of a conversation, as far as one party knows them."""

from typing import final

import torch
from torch import Tensor

from tacit.llm.private.geometry import Heads

_FIRST = 64


@final
class Shelf:
    """Rows (n, groups, dim) of keys and of values for every layer, growing at the end.

    Rows may be written again from any place on: what was ordered and not used is forgotten.
    """

    def __init__(self, layers: int, heads: Heads) -> None:
        self._rows = [
            torch.empty((2, _FIRST, heads.groups, heads.dim), dtype=torch.int64)
            for _ in range(layers)
        ]

    def put(self, layer: int, at: int, keys: Tensor, values: Tensor) -> None:
        """Write rows from place ``at`` on."""
        rows, end = self._rows[layer], at + len(keys)
        if end > rows.shape[1]:
            # A new tensor: a thread that reads the old one keeps what it has.
            grown = rows.new_empty((2, max(end, 2 * rows.shape[1]), *rows.shape[2:]))
            grown[:, :at] = rows[:, :at]
            self._rows[layer] = rows = grown
        rows[0, at:end], rows[1, at:end] = keys, values

    def upto(self, layer: int, n: int) -> tuple[Tensor, Tensor]:
        """Return the first n keys and values, without copying."""
        keys, values = self._rows[layer][:, :n].unbind(0)
        return keys, values
