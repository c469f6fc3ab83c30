"""Random orders for values that someone is allowed to see, but not where they come from."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.ring import Prg


@dataclass(frozen=True)
class RowLayout:
    """Rows of values; a function of single values has rows of one."""

    rows: int
    columns: int

    @property
    def elements(self) -> int:
        """Return the number of values."""
        return self.rows * self.columns

    def draw(self, prg: Prg) -> Tensor:
        """Draw an order: rows are shuffled, and the values within every row.

        Guarantee: uniform over all such orders if the generator is: element i of the result is
        the index of the value that comes to place i.
        Cost: a sort of the rows; if they hold more than one value, two sorts of the values.
        """
        rows = prg.permutation(self.rows)
        if self.columns == 1:
            return rows.to(torch.int32)
        places = prg.permutation(self.elements)
        # A stable sort by row keeps the random order in which the values of a row come.
        by_row = torch.sort((places // self.columns).to(torch.int32), stable=True).indices
        within = places[by_row].view(self.rows, self.columns)
        return within[rows].view(-1).to(torch.int32)

    def way_back(self, order: Tensor, *, columns: int, follows: bool) -> Tensor:
        """Return the order that brings results back to where they belong.

        Args:
            order: the one that the values were put into.
            columns: how many values of the result belong to one row.
            follows: each of them belongs to the value in its place; otherwise to its row alone.
        """
        if follows:
            return invert(order)
        rows = invert(order.view(self.rows, self.columns)[:, 0] // self.columns)
        within = torch.arange(columns, dtype=order.dtype)
        return (rows[:, None] * columns + within).view(-1)


def invert(order: Tensor) -> Tensor:
    """Return the inverse of a permutation."""
    back = torch.empty_like(order)
    back[order.long()] = torch.arange(len(order), dtype=order.dtype, device=order.device)
    return back


def take(words: Tensor, order: Tensor) -> Tensor:
    """Put words into an order."""
    return torch.index_select(words, 0, order)
