"""Heads and keys: the cache, products of shares by group, the secret permutations of attention."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import final

import numpy as np
import torch
from torch import Tensor

from tacit import ring
from tacit.errors import DataError
from tacit.llm.model.architecture import Architecture
from tacit.llm.model.rotary import visible
from tacit.llm.permuted.prf_stream import PrfStream

_FEW = 8  # rows of one batch up to which torch's plain loops win
_ROOM = 1 << 26  # products on a device at once
_SMALL = 1 << 19  # products up to which all of them at once win


@dataclass(frozen=True)
class Heads:
    """``groups`` key heads with ``size`` query heads each."""

    groups: int
    size: int
    dim: int

    @property
    def count(self) -> int:
        """Return how many query heads there are."""
        return self.groups * self.size

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Multiply queries (rows, heads, dim) and keys (n, groups, dim): (rows, heads, n)."""
        rows = queries.shape[0]
        left = queries.view(rows, self.groups, self.size, self.dim)
        if (
            rows * self.size <= _FEW and not keys.is_cuda
        ):  # NumPy's loops need neither copies nor room for products
            found = np.einsum("rgsd,ngd->rgsn", left.numpy(), keys.numpy(), order="C")
            return torch.from_numpy(found).view(rows, self.count, -1)
        out = inner(left.transpose(0, 1).flatten(1, 2), keys.transpose(0, 1))
        out = out.view(self.groups, rows, self.size, -1).transpose(0, 1)
        return out.reshape(rows, self.count, -1).contiguous()

    def mix(self, weights: Tensor, values: Tensor) -> Tensor:
        """Multiply weights (rows, heads, n) and values (n, groups, dim): (rows, heads, dim)."""
        rows, _, n = weights.shape
        left = weights.view(rows, self.groups, self.size, n).transpose(0, 1)
        out = multiply(left.reshape(self.groups, -1, n), values.transpose(0, 1))
        out = out.view(self.groups, rows, self.size, self.dim).transpose(0, 1)
        return out.reshape(rows, self.count, self.dim).contiguous()


def multiply(left: Tensor, right: Tensor) -> Tensor:
    """Multiply batches of matrices, few of them large: (b, m, k) by (b, k, n)."""
    if left.is_cuda:  # no products of long integers there
        return _by_parts(left, right.transpose(1, 2))
    return torch.bmm(left, right) if left.shape[1] <= _FEW else ring.matmul(left, right)


def inner(left: Tensor, right: Tensor) -> Tensor:
    """Multiply batches of rows with each other: (b, m, k) by (b, n, k) gives (b, m, n)."""
    if left.is_cuda:
        return _by_parts(left, right)
    if left.shape[1] <= _FEW and left.shape[1] * right.numel() <= _SMALL:
        return (left.unsqueeze(2) * right.unsqueeze(1)).sum(3)
    return ring.matmul(left, right.transpose(1, 2))


def _by_parts(left: Tensor, right: Tensor) -> Tensor:
    """Multiply rows with rows as `inner`, so many at once that their products have room."""
    pieces = max(1, left.shape[1] * right.numel() // _ROOM)
    parts = [(rows.unsqueeze(2) * right.unsqueeze(1)).sum(3) for rows in left.chunk(pieces, 1)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


@dataclass(frozen=True, eq=False)
class ScoreLayout:
    """Where scores lie: dense as (rows, heads, n), packed without the places that are hidden.

    Attributes:
        visible: bool (rows, n).
        count: how many scores there are, of all heads.
        places: the packed ones as indices into the dense, in order.
        slots: the first places of every row and head, as many as it sees, as such indices too.
        shape: of the dense.
    """

    visible: Tensor
    count: int
    places: Tensor
    slots: Tensor
    shape: tuple[int, int, int]

    @property
    def is_full(self) -> bool:
        """Say whether no place is hidden."""
        return self.count == prod(self.shape)

    def dense(self, packed: Tensor) -> Tensor:
        """Lay packed scores out, with zeros where nothing is seen."""
        return self._spread(packed, self.places, 0)

    def packed(self, dense: Tensor) -> Tensor:
        """Undo `dense`."""
        return dense.view(-1) if self.is_full else dense.view(-1)[self.places]

    def segments(self, slots: Tensor, rest: float) -> Tensor:
        """Lay what was shuffled out by row and head, with ``rest`` behind the end of each."""
        return self._spread(slots, self.slots, rest)

    def flat(self, segments: Tensor) -> Tensor:
        """Undo `segments`."""
        return segments.view(-1) if self.is_full else segments.view(-1)[self.slots]

    def _spread(self, packed: Tensor, places: Tensor, rest: float) -> Tensor:
        if self.is_full:
            return packed.view(self.shape)
        out = packed.new_full((prod(self.shape),), rest)
        out[places] = packed
        return out.view(self.shape)

    def shuffled(self, prf: PrfStream, label: str) -> Tensor:
        """Draw the secret permutation: for every row its heads, for each of them its keys, anew.

        Returns:
            Indices into the dense scores, (count,), row by row and slot by slot.
        """
        rows, heads, n = self.shape
        keys = prf.shuffles_within(f"{label}.keys", heads, self.visible)
        permutation = prf.shuffles(f"{label}.heads", rows, heads)
        head = permutation.unsqueeze(2)
        keys = keys.gather(1, head.expand(-1, -1, n))
        row = torch.arange(rows, device=keys.device).view(-1, 1, 1)
        return self.flat(((row * heads + head) * n + keys).contiguous())


@lru_cache(maxsize=16)
def rows_of(
    a: Architecture, past: int, rows: int, prompt: int, window: int, device: torch.device
) -> ScoreLayout:
    """Lay out the scores of new rows over all keys that they see."""
    seen = visible(a, start=past, count=rows, prompt=prompt, window=window)
    return rowwise(seen.to(device), a.heads)


def rowwise(seen: Tensor, heads: int) -> ScoreLayout:
    """Lay out the scores of rows that see different keys."""
    rows, n = seen.shape
    wide = seen.unsqueeze(1).expand(rows, heads, n)
    lengths = seen.sum(1)
    slots = (torch.arange(n, device=seen.device) < lengths.view(-1, 1)).unsqueeze(1)
    return ScoreLayout(
        visible=seen,
        count=int(lengths.sum()) * heads,
        places=wide.reshape(-1).nonzero().view(-1),
        slots=slots.expand(rows, heads, n).reshape(-1).nonzero().view(-1),
        shape=(rows, heads, n),
    )


@dataclass(frozen=True, eq=False)
class Grouped:
    """The secret permutation of one new token: groups, heads in their group, and keys by group.

    Heads of one group share their keys, which travel once; so they share the order of the keys.
    """

    heads: Heads
    group: Tensor  # (groups,)
    member: Tensor  # (groups, size), in the order of `group`
    keys: Tensor  # (groups, n), in the order of `group`

    def queries(self, values: Tensor) -> Tensor:
        """Permute (heads, …) to (groups, size, …)."""
        return values[self._flat].view(self.heads.groups, self.heads.size, *values.shape[1:])

    def cached(self, values: Tensor) -> Tensor:
        """Permute keys or values (n, groups, dim) to (groups, n, dim)."""
        return values[self.keys, self.group.unsqueeze(1)]

    def scores(self, values: Tensor) -> Tensor:
        """Permute scores (heads, n) to (groups, size, n)."""
        index = self.keys.unsqueeze(1).expand(-1, self.heads.size, -1)
        return self.queries(values).gather(2, index)

    def undo(self, values: Tensor) -> Tensor:
        """Put (groups, size, dim) back in the order of the heads."""
        out = torch.empty_like(values.flatten(0, 1))
        out[self._flat] = values.flatten(0, 1)
        return out

    @property
    def _flat(self) -> Tensor:
        return (self.group.unsqueeze(1) * self.heads.size + self.member).view(-1)


def grouped(prf: PrfStream, label: str, heads: Heads, n: int) -> Grouped:
    """Draw the secret permutation of one new token over n keys."""
    return Grouped(
        heads=heads,
        group=prf.shuffles(f"{label}.groups", 1, heads.groups)[0],
        member=prf.shuffles(f"{label}.members", heads.groups, heads.size),
        keys=prf.shuffles(f"{label}.keys", heads.groups, n),
    )


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
