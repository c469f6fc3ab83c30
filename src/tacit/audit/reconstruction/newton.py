"""Reconstruction as nonlinear least squares: few, costly steps that end at the exact rows."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.func import jvp, vmap

from tacit.audit.reconstruction.attacks import MatchExactly, best_of, infer_labels
from tacit.audit.reconstruction.views import Rebuilt, SeenUpdate, do_work
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
        best = best_of(lambda: self._start(precise, generator), self.restarts, fits=self.fits)
        return replace(best, rows=best.rows.to(seen.update[0]))

    def _start(self, seen: SeenUpdate, generator: torch.Generator) -> Rebuilt:
        warm = MatchExactly(steps=self.warm_up, restarts=1)(seen, generator=generator)
        low, high = seen.bounds
        rows, distance = _descend([seen], warm.rows[None], infer_labels(seen)[None], self)
        return Rebuilt(
            rows=rows[0].clamp(low, high), labels=warm.labels, distance=float(distance[0])
        )


match_newton = MatchNewton()


def match_together(
    seen: Sequence[SeenUpdate], settings: MatchNewton, *, generator: torch.Generator
) -> list[Rebuilt]:
    """Match several clients' updates of one model at once, from random starts without a warm-up.

    Each client's search is its own; together they fill a device that a single one leaves idle.

    Raises:
        ConfigError: the clients have different models, shapes or numbers of rows.
    """
    terms = {(id(one.model), one.shape, one.records, one.work, one.bounds) for one in seen}
    if len(terms) != 1:
        raise ConfigError("wanted updates of one model, with rows of one shape and number")
    precise = [_doubled(one) for one in seen]
    labels = torch.stack([infer_labels(one) for one in precise])
    (low, high), shape = seen[0].bounds, (seen[0].records, *seen[0].shape)
    rows = torch.zeros(len(seen), *shape).to(precise[0].update[0])
    best = torch.full((len(seen),), torch.inf).to(rows)
    for _ in range(settings.restarts):
        left = torch.nonzero(best >= settings.fits).view(-1)
        if not len(left):
            break
        chosen = [precise[at] for at in left.tolist()]
        start = torch.empty(len(chosen), *shape).uniform_(low, high, generator=generator).to(rows)
        found, distance = _descend(chosen, start, labels[left], settings)
        is_better = distance < best[left]
        rows[left[is_better]], best[left[is_better]] = found[is_better], distance[is_better]
    return [
        Rebuilt(rows=one.clamp(low, high).to(seen[0].update[0]), labels=label, distance=float(d))
        for one, label, d in zip(rows, labels, best, strict=True)
    ]


def _descend(
    seen: Sequence[SeenUpdate], rows: Tensor, labels: Tensor, settings: MatchNewton
) -> tuple[Tensor, Tensor]:
    """Go down from (clients, records, …) rows; return where, and the squared distances there."""
    model, work = seen[0].model, seen[0].work
    wanted = torch.stack([_flat(one.update) for one in seen])
    scale = wanted.norm(dim=1, keepdim=True).clamp_min(1e-30)

    def one_update(x: Tensor, y: Tensor) -> Tensor:
        return _flat(do_work(model, x, y, work))

    def miss(x: Tensor) -> Tensor:
        found: Tensor = (vmap(one_update)(x, labels) - wanted) / scale
        return found

    # One direction for all clients: their derivatives do not mix.
    basis = torch.eye(rows[0].numel()).to(rows).view(-1, 1, *rows.shape[1:])
    basis = basis.expand(-1, len(seen), *rows.shape[1:])
    r = miss(rows)
    damping = torch.full((len(seen),), 1e-6).to(rows)
    stuck = torch.zeros(len(seen), dtype=torch.bool, device=rows.device)
    for _ in range(settings.steps):
        active = (r.square().sum(1) >= settings.fits) & ~stuck
        if not bool(active.any()):
            break
        columns = _columns(miss, rows, basis, settings.chunk).transpose(0, 1)
        rows, r, damping, moved = _step(miss, rows, r, columns, damping, active)
        stuck |= active & ~moved
    return rows, r.square().sum(1)


def _step(
    miss: Miss, rows: Tensor, r: Tensor, columns: Tensor, damping: Tensor, active: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Move every active client by the first damped step that comes closer."""
    square, slope = columns @ columns.mT, columns @ r.unsqueeze(2)
    size = square.diagonal(dim1=1, dim2=2).mean(1)
    eye = torch.eye(square.shape[1]).to(square)
    moved = torch.zeros_like(active)
    for _ in range(10):
        padded = square + (damping * size)[:, None, None] * eye
        root, failed = torch.linalg.cholesky_ex(padded)
        step = torch.cholesky_solve(slope, root).view_as(rows)
        after = miss(rows - step)
        is_closer = after.square().sum(1) < r.square().sum(1)
        goes = is_closer & (failed == 0) & active & ~moved
        keep = goes.view(-1, *[1] * (rows.dim() - 1))
        rows, r = torch.where(keep, rows - step, rows), torch.where(goes[:, None], after, r)
        moved |= goes
        damping = torch.where(
            goes, (damping / 10).clamp_min(1e-12), torch.where(moved, damping, damping * 10)
        )
        if bool((moved | ~active).all()):
            break
    return rows, r, damping, moved


def _columns(miss: Miss, rows: Tensor, basis: Tensor, chunk: int) -> Tensor:
    """Return the transposed Jacobian, (unknowns, numbers of the update)."""

    def along(direction: Tensor) -> Tensor:
        found: Tensor = jvp(miss, (rows,), (direction,))[1]
        return found

    columns: Tensor = vmap(along, chunk_size=chunk)(basis)
    return columns


def _doubled(seen: SeenUpdate) -> SeenUpdate:
    model = copy.deepcopy(seen.model).double()
    return replace(seen, model=model, update=tuple(part.double() for part in seen.update))


def _flat(update: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([part.flatten() for part in update])
