"""Which values of the cut layer are kept: everything, the first, the largest, or some at random."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Support = Tensor | None
"""Which values a message carries: of every row the same number, as ascending columns (rows, k) of
int64; else a mask (rows, width); None for all of them."""
_FEW = 16
"""Up to so many of the largest are looked for one by one."""


@dataclass(frozen=True, eq=False)
class Draws:
    """What randomised Top-k draws for a batch, which does not depend on the values.

    Attributes:
        rows: on a processor, the rows of the places that go to one of the others (places,); on
            a device None.
        places: those places among the k, in the order of the top k's columns (places,); on a
            device a mask of them (rows, k).
        ranks: to which of the others they go, counted from the left; shaped like `places`.
    """

    rows: Tensor | None
    places: Tensor
    ranks: Tensor


class Sparsifier(Protocol):
    """Chooses, row by row, the values that travel."""

    @property
    def count(self) -> int | None:
        """Return how many values a row keeps, or None if rows differ."""
        ...

    def keep(
        self, h: Tensor, generator: torch.Generator | None = None, draws: Draws | None = None
    ) -> Support:
        """Return what is kept of `h` (rows, width); `draws` are those made before, if any are."""
        ...


@dataclass(frozen=True)
class Everything:
    """Keep all values."""

    count: int

    def keep(
        self, h: Tensor, generator: torch.Generator | None = None, draws: Draws | None = None
    ) -> None:
        """Keep all."""
        return


@dataclass(frozen=True)
class First:
    """Keep the first k values: what a cut layer of k neurons would send."""

    count: int

    def keep(
        self, h: Tensor, generator: torch.Generator | None = None, draws: Draws | None = None
    ) -> Tensor:
        """Keep the first k columns."""
        return self.columns(len(h), h.device)

    def columns(self, rows: int, device: torch.device) -> Tensor:
        """Return the first k columns, for every row (rows, k)."""
        return torch.arange(self.count, device=device).expand(rows, self.count)


@dataclass(frozen=True)
class TopK:
    """Keep the k values of largest magnitude."""

    count: int

    def keep(
        self, h: Tensor, generator: torch.Generator | None = None, draws: Draws | None = None
    ) -> Tensor:
        """Keep the columns of the top k."""
        return self.columns(h)

    def columns(self, h: Tensor) -> Tensor:
        """Return the columns of the top k, ascending (rows, k)."""
        if h.device.type != "cpu":
            return h.abs().topk(self.count, dim=1).indices.sort(1).values
        found = _largest(h.detach().abs().float().contiguous().numpy(), self.count)
        found.sort(1)
        return torch.from_numpy(found)


@dataclass(frozen=True)
class RandomisedTopK:
    """Keep k values drawn one by one: of the top k with probability 1 − alpha (eq. 3-19).

    Each draw takes a uniform one of the top-k values that are not chosen yet with probability
    1 − alpha, else a uniform one of the others; when the others are used up, a top-k one.
    """

    count: int
    alpha: float

    def keep(
        self, h: Tensor, generator: torch.Generator | None = None, draws: Draws | None = None
    ) -> Tensor:
        """Keep one drawing per row."""
        return self.pick(h, draws or self.draw(h.shape, generator, h.device))

    def draw(
        self, shape: torch.Size, generator: torch.Generator | None, device: torch.device
    ) -> Draws:
        """Draw what can be drawn before the values are there.

        The draws need not be made one after the other: how many fall on the others is binomial,
        cut off where those are used up, and within each of the two groups every subset of the
        drawn size is equally likely.
        """
        if device.type == "cpu":
            return self.draw_here(shape, generator)
        return self.draw_there(shape, generator, device)

    def pick(self, h: Tensor, draws: Draws) -> Tensor:
        """Return the columns that the draws make of the values, ascending (rows, k).

        Of the columns that are not in the top k, that of rank r has those of the top k to its
        left for which top[j] - j <= r.
        """
        top = TopK(self.count).columns(h)
        if draws.rows is None:
            steps = top - torch.arange(self.count, device=h.device)
            passed = (steps.T[:, :, None] <= draws.ranks).sum(0)
            return torch.where(draws.places, draws.ranks + passed, top).sort(1).values
        if len(draws.ranks):
            columns, rows, ranks = top.numpy(), draws.rows.numpy(), draws.ranks.numpy()
            steps_here = columns[rows] - np.arange(self.count)
            columns[rows, draws.places.numpy()] = ranks + (steps_here <= ranks[:, None]).sum(1)
            columns.sort(1)
        return top

    def draw_here(self, shape: torch.Size, generator: torch.Generator | None) -> Draws:
        """Draw on a processor, the others only for rows that keep some of them."""
        (rows, width), k = shape, self.count
        coins = torch.rand((rows, 2 * k), generator=generator).numpy()
        # How many of the k draws fall on the others; then which of the k places these take.
        others = np.minimum((coins[:, :k] < self.alpha).sum(1), width - k)
        changed = others.nonzero()[0]
        order = coins[changed, k:].argsort(1)
        row, place = (order < others[changed, None]).nonzero()
        keys = torch.rand((len(changed), width - k), generator=generator).numpy()
        ranks = _largest(keys, min(k, width - k))[row, order[row, place]]
        return Draws(*(torch.from_numpy(one) for one in (changed[row], place, ranks)))

    def draw_there(
        self, shape: torch.Size, generator: torch.Generator | None, device: torch.device
    ) -> Draws:
        """Draw on a device, for all rows: to pick some out would make the processor wait for it."""
        (rows, width), k = shape, self.count
        coins = torch.rand((rows, k), generator=generator, device=device) < self.alpha
        order = torch.rand((rows, k), generator=generator, device=device).argsort(1)
        keys = torch.rand((rows, width - k), generator=generator, device=device)
        others = coins.sum(1, keepdim=True).clamp_(max=width - k)  # (rows, 1)
        ranks = keys.topk(min(k, width - k), dim=1).indices
        padded = torch.nn.functional.pad(ranks, (0, max(2 * k - width, 0)))
        return Draws(None, order < others, padded.gather(1, order))


@dataclass(frozen=True)
class Above:
    """Keep the values whose magnitude passes a threshold; rows differ in how many."""

    threshold: float
    count: None = None

    def keep(
        self, h: Tensor, generator: torch.Generator | None = None, draws: Draws | None = None
    ) -> Tensor:
        """Keep what passes, as a mask."""
        return h.abs() > self.threshold


def _largest(values: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Return the columns of every row's k largest, largest first; values ≥ 0 are used up.

    A few passes for one maximum each take a fifth of the time of torch's `topk`, whose branches
    the processor cannot foresee.
    """
    rows, width = values.shape
    if k > _FEW:
        return torch.from_numpy(values).topk(k, dim=1).indices.numpy()
    found, flat = np.empty((k, rows), np.int64), values.reshape(-1)
    first = width * np.arange(rows)
    for place in range(k):
        if place:
            flat[first + found[place - 1]] = -1.0
        values.argmax(1, out=found[place])
    return np.ascontiguousarray(found.T)


def as_mask(kept: Tensor, width: int) -> Tensor:
    """Return what was kept as a mask (rows, width)."""
    if kept.dtype == torch.bool:
        return kept
    mask = torch.zeros((kept.shape[0], width), dtype=torch.bool, device=kept.device)
    return mask.scatter_(1, kept, True)
