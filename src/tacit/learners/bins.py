"""Features in bins, as unary codes: one bit per edge, set if the feature is at most the edge.

Sums over rows weighted by such bits are histograms that are cumulated already, and a product with
a one-hot column tells for every row on which side of a split it lies.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from tacit.errors import ConfigError
from tacit.learners.engine import Walker
from tacit.learners.tables import Table


@dataclass(frozen=True, eq=False)
class Binning:
    """Where features are cut.

    Owners of columns cut at quantiles of their own columns, which nobody else learns. Owners of
    rows cut alike: at public edges that the user gives, or in equal steps over the public range.
    """

    name: str
    bins: int
    edges: Mapping[str, Tensor]

    def load(self, walker: Walker, data: Table) -> str:
        """Share the unary codes of a table: (rows, columns · (bins - 1))."""
        make = None
        me = getattr(walker, "me", "")
        if me in self.edges:
            make = partial(unary, edges=self.edges[me])
        kind = f"bins of {self.name}"
        return data.load(walker, kind, make, width=self.bins - 1, bound=1.0, is_whole=True)


def unary(x: Tensor, *, edges: Tensor) -> Tensor:
    """Give [x ≤ edge] for every edge of every column."""
    bits = x.unsqueeze(2) <= edges.unsqueeze(0)
    return bits.reshape(len(x), -1).to(torch.float64)


def cut(data: Table, *, name: str, bins: int, edges: Sequence[Sequence[float]] | None) -> Binning:
    """Choose edges for the parts of a table that lie in this process."""
    if not 2 <= bins <= 256:
        raise ConfigError(f"max_bins must be from 2 to 256, got {bins}")
    if data.split == "columns":
        if edges is not None:
            raise ConfigError("owners of columns cut at their own quantiles; give no edges")
        own = {owner: _quantiles(x, bins) for owner, x in data.values.items()}
        return Binning(name, bins, own)
    columns = data.shape[1]
    if edges is None:
        steps = np.linspace(-data.bound, data.bound, bins + 1)[1:-1]
        common = torch.from_numpy(np.tile(steps, (columns, 1)))
    else:
        common = torch.as_tensor(np.asarray(edges, dtype=np.float64))
        if tuple(common.shape) != (columns, bins - 1):
            raise ConfigError(
                f"edges must be {columns} columns of {bins - 1} numbers for {bins} bins, got "
                f"{tuple(common.shape)}"
            )
    return Binning(name, bins, dict.fromkeys(data.owners, common))


def _quantiles(x: Tensor, bins: int) -> Tensor:
    levels = np.linspace(0, 1, bins + 1)[1:-1]
    found = np.quantile(x.numpy(), levels, axis=0, method="lower")
    return torch.from_numpy(np.ascontiguousarray(found.T))
