"""Reconstruction as nonlinear least squares: few, costly steps that end at the exact rows."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.func import jvp, vmap

from tacit.audit.reconstruction.analytic import infer_labels
from tacit.audit.reconstruction.matching import MatchExactly
from tacit.audit.reconstruction.views import Rebuilt, SeenUpdate
from tacit.audit.reconstruction.work import do_work
from tacit.errors import ConfigError

Miss = Callable[[Tensor], Tensor]

LARGEST_JACOBIAN = 1 << 28
"""Entries: 2 GiB in double precision."""


@dataclass(frozen=True, kw_only=True)
class MatchNewton:
    """Match the update by Levenberg–Marquardt, with labels read off the update.

    An update has more numbers than the rows behind it, so near the truth the error is squared at
    every step: where L-BFGS needs thousands of steps, some ten Jacobians suffice. Made for smooth
    models and single rows or small batches; works in double precision whatever the model's.

    Args:
        steps: Jacobians of one start.
        restarts: starts at most.
        warm_up: L-BFGS iterations before the first Jacobian.
        fits: relative squared distance at which the search ends.
        chunk: columns of a Jacobian that are computed at once.
    """

    steps: int = 30
    restarts: int = 4
    warm_up: int = 100
    fits: float = 1e-12
    chunk: int = 64

    def __post_init__(self) -> None:
        if min(self.steps, self.restarts, self.warm_up, self.chunk) < 1:
            raise ConfigError(f"steps, restarts, warm_up and chunk must be positive, got {self}")

    def __call__(self, seen: SeenUpdate, *, generator: torch.Generator) -> Rebuilt:
        """Return the best of the starts.

        Raises:
            ConfigError: the Jacobian would not fit into memory.
        """
        unknowns = seen.records * math.prod(seen.shape)
        known = sum(part.numel() for part in seen.update)
        if unknowns * known > LARGEST_JACOBIAN:
            raise ConfigError(
                f"a Jacobian of {unknowns} × {known} is too large; use a searching attack"
            )
        precise = _doubled(seen)
        best = self._start(precise, generator)
        for _ in range(self.restarts - 1):
            if _of(best) < self.fits:
                break
            best = min(best, self._start(precise, generator), key=_of)
        return replace(best, rows=best.rows.to(seen.update[0]))

    def _start(self, seen: SeenUpdate, generator: torch.Generator) -> Rebuilt:
        warm = MatchExactly(steps=self.warm_up, restarts=1)(seen, generator=generator)
        low, high = seen.bounds
        rows, distance = self._descend(seen, warm.rows, infer_labels(seen))
        return Rebuilt(rows=rows.clamp(low, high), labels=warm.labels, distance=distance)

    def _descend(self, seen: SeenUpdate, rows: Tensor, labels: Tensor) -> tuple[Tensor, float]:
        wanted = _flat(seen.update)
        scale = wanted.norm().clamp_min(1e-30)

        def miss(x: Tensor) -> Tensor:
            off: Tensor = _flat(do_work(seen.model, x, labels, seen.work)) - wanted
            return off.div(scale)

        basis = torch.eye(rows.numel()).to(rows).view(-1, *rows.shape)
        r, damping = miss(rows), 1e-6
        for _ in range(self.steps):
            if float(r @ r) < self.fits:
                break
            columns = _columns(miss, rows, basis, self.chunk)
            tried = _try_dampings(miss, rows, r, columns, damping)
            if tried is None:
                break
            rows, r, damping = tried
        return rows, float(r @ r)


match_newton = MatchNewton()


def _columns(miss: Miss, rows: Tensor, basis: Tensor, chunk: int) -> Tensor:
    """Return the transposed Jacobian, (unknowns, numbers of the update)."""

    def along(direction: Tensor) -> Tensor:
        found: Tensor = jvp(miss, (rows,), (direction,))[1]
        return found

    columns: Tensor = vmap(along, chunk_size=chunk)(basis)
    return columns


def _try_dampings(
    miss: Miss, rows: Tensor, r: Tensor, columns: Tensor, damping: float
) -> tuple[Tensor, Tensor, float] | None:
    """Return the first step that comes closer, with the next damping; None if none does."""
    square, slope = columns @ columns.t(), columns @ r
    size = square.diagonal().mean()
    for _ in range(10):
        padded = square + damping * size * torch.eye(len(square)).to(square)
        root, failed = torch.linalg.cholesky_ex(padded)
        if not int(failed):
            step = torch.cholesky_solve(slope.unsqueeze(1), root)[:, 0]
            moved = rows - step.view_as(rows)
            after = miss(moved)
            if float(after @ after) < float(r @ r):
                return moved, after, max(damping / 10, 1e-12)
        damping *= 10
    return None


def _doubled(seen: SeenUpdate) -> SeenUpdate:
    model = copy.deepcopy(seen.model).double()
    return replace(seen, model=model, update=tuple(part.double() for part in seen.update))


def _flat(update: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([part.flatten() for part in update])


def _of(found: Rebuilt) -> float:
    return float("inf") if found.distance is None else found.distance
