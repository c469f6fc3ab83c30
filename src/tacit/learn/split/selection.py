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
        """Return the mask of one drawing per row.

        The draws need not be made one after the other: how many fall on the others is binomial,
        cut off where those are used up, and within each of the two groups every subset of the
        drawn size is equally likely.
        """
        rows, width = h.shape
        coins = torch.rand((rows, self.k), generator=generator, device=h.device) < self.alpha
        others = coins.sum(1).clamp_(max=width - self.k)  # (rows,)
        top = h.abs().topk(self.k, dim=1).indices
        order = torch.rand((rows, self.k), generator=generator, device=h.device).argsort(1)
        rank = torch.arange(self.k, device=h.device)
        mask = torch.zeros((rows, width), dtype=torch.bool, device=h.device)
        mask.scatter_(1, top.gather(1, order), rank < (self.k - others)[:, None])
        if h.is_cuda:  # to pick rows out would make the processor wait for the device
            return mask | self._outside(top, others, width, generator)
        changed = others.nonzero()[:, 0]
        mask[changed] |= self._outside(top[changed], others[changed], width, generator)
        return mask

    def _outside(
        self, top: Tensor, others: Tensor, width: int, generator: torch.Generator | None
    ) -> Tensor:
        """Mask `others` uniform columns of every row that are not among its top k."""
        keys = torch.rand((len(top), width), generator=generator, device=top.device)
        drawn = keys.scatter_(1, top, -1.0).topk(self.k, dim=1).indices
        is_kept = torch.arange(self.k, device=top.device) < others[:, None]
        found = torch.zeros((len(top), width), dtype=torch.bool, device=top.device)
        return found.scatter_(1, drawn, is_kept)


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
