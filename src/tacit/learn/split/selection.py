"""Which values of the cut layer are kept: everything, the first, the largest, or some at random."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Selection(Protocol):
    """Chooses, row by row, the values that travel."""

    @property
    def count(self) -> int | None:
        """Return how many values a row keeps, or None if rows differ."""
        ...

    def __call__(self, h: Tensor, generator: torch.Generator | None) -> Tensor | None:
        """Return a mask shaped like `h` (rows, width), or None where all is kept."""
        ...


@dataclass(frozen=True)
class Everything:
    """Keep all values."""

    width: int

    @property
    def count(self) -> int:
        """Return the width."""
        return self.width

    def __call__(self, h: Tensor, generator: torch.Generator | None) -> None:
        """Keep all."""
        return


@dataclass(frozen=True)
class First:
    """Keep the first k values: what a cut layer of k neurons would send."""

    k: int

    @property
    def count(self) -> int:
        """Return k."""
        return self.k

    def __call__(self, h: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return the mask of the first k columns."""
        return (torch.arange(h.shape[1], device=h.device) < self.k).expand(h.shape)


@dataclass(frozen=True)
class Largest:
    """Keep the k values of largest magnitude."""

    k: int

    @property
    def count(self) -> int:
        """Return k."""
        return self.k

    def __call__(self, h: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return the mask of the top k."""
        return mask_of(h.abs().topk(self.k, dim=1).indices, h.shape[1])


@dataclass(frozen=True, eq=False)
class Draws:
    """What randomised Top-k draws for a batch, which does not depend on the values.

    Attributes:
        order: of the top k (rows, k).
        changed: the rows that keep some of the others, or None for all rows.
        is_other: which of their k places the others take (changed, k).
        keys: those of the others with the largest are kept (changed, width).
    """

    order: Tensor
    changed: Tensor | None
    is_other: Tensor
    keys: Tensor


@dataclass(frozen=True)
class RandomisedLargest:
    """Keep k values drawn one by one: of the top k with probability 1 − alpha (eq. 3-19).

    Each draw takes a uniform one of the top-k values that are not chosen yet with probability
    1 − alpha, else a uniform one of the others; when the others are used up, a top-k one.
    """

    k: int
    alpha: float

    @property
    def count(self) -> int:
        """Return k."""
        return self.k

    def __call__(self, h: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return the mask of one drawing per row."""
        return self.pick(h, self.draw(h.shape, generator, h.device))

    def draw(
        self, shape: torch.Size, generator: torch.Generator | None, device: torch.device
    ) -> Draws:
        """Draw what can be drawn before the values are there.

        The draws need not be made one after the other: how many fall on the others is binomial,
        cut off where those are used up, and within each of the two groups every subset of the
        drawn size is equally likely.
        """
        rows, width = shape
        coins = torch.rand((rows, self.k), generator=generator, device=device) < self.alpha
        others = coins.sum(1).clamp_(max=width - self.k)  # (rows,)
        order = torch.rand((rows, self.k), generator=generator, device=device).argsort(1)
        changed = None
        if device.type != "cuda":  # to pick rows out would make the processor wait for the device
            changed = others.nonzero()[:, 0]
            others = others[changed]
        is_other = torch.arange(self.k, device=device) >= self.k - others[:, None]
        keys = torch.rand((len(others), width), generator=generator, device=device)
        return Draws(order, changed, is_other, keys)

    def pick(self, h: Tensor, draws: Draws) -> Tensor:
        """Return the mask that the draws make of the values."""
        top = h.abs().topk(self.k, dim=1).indices
        columns = top.gather(1, draws.order)
        if draws.changed is None:
            columns = self._replace(columns, top, draws)
        elif len(draws.changed):
            some = draws.changed
            columns[some] = self._replace(columns[some], top[some], draws)
        return mask_of(columns, h.shape[1])

    def _replace(self, columns: Tensor, top: Tensor, draws: Draws) -> Tensor:
        """Put uniform columns that are not among the top k in the places of the others."""
        drawn = draws.keys.scatter(1, top, -1.0).topk(self.k, dim=1).indices
        return torch.where(draws.is_other, drawn.flip(1), columns)


@dataclass(frozen=True)
class Above:
    """Keep the values whose magnitude passes a threshold; rows differ in how many."""

    threshold: float

    @property
    def count(self) -> None:
        """Return None: rows differ."""
        return

    def __call__(self, h: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return the mask of what passes."""
        return h.abs() > self.threshold


def mask_of(columns: Tensor, width: int) -> Tensor:
    """Turn (rows, k) columns into a mask (rows, width)."""
    mask = torch.zeros((columns.shape[0], width), dtype=torch.bool, device=columns.device)
    return mask.scatter_(1, columns, True)


def columns_of(mask: Tensor, k: int) -> Tensor:
    """Turn a mask with k ones in every row into ascending columns (rows, k)."""
    return mask.nonzero()[:, 1].view(mask.shape[0], k)
