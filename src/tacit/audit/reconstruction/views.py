"""What a client does in a round, what a server sees of it, and defences of what is sent."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from tacit.errors import ConfigError, DataError

Update = tuple[Tensor, ...]
"""One tensor per trainable parameter, in the model's order."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """The public terms of a round.

    Args:
        steps: gradient steps; 1 is a plain gradient.
        rate: of these steps.
        batch: rows of one step, taken in order and from the start again; None takes all rows.
    """

    steps: int = 1
    rate: float = 0.1
    batch: int | None = None

    def __post_init__(self) -> None:
        if self.steps < 1 or not self.rate > 0 or (self.batch or 1) < 1:
            raise ConfigError(f"steps, rate and batch must be positive, got {self}")


GRADIENT = Work()


def do_work(model: nn.Module, rows: Tensor, labels: Tensor, work: Work) -> Update:
    """Return the mean gradient along the local steps: what moved the model, per step and rate.

    Labels are class numbers or, as rows of probabilities, guesses of them. The update can be
    differentiated by rows and labels, forwards and backwards, as attacks need it.
    """
    now = {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}
    total = [torch.zeros_like(p) for p in now.values()]
    for step in range(work.steps):
        gradients = grad(_loss)(now, model, *_batch(rows, labels, work, step))
        total = [t + g for t, g in zip(total, gradients.values(), strict=True)]
        now = {n: p - work.rate * gradients[n] for n, p in now.items()}
    return tuple(t / work.steps for t in total)


def _loss(weights: dict[str, Tensor], model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(functional_call(model, weights, (x,)), y)


def _batch(rows: Tensor, labels: Tensor, work: Work, step: int) -> tuple[Tensor, Tensor]:
    if work.batch is None or work.batch >= len(rows):
        return rows, labels
    chosen = (torch.arange(work.batch) + step * work.batch) % len(rows)
    chosen = chosen.to(rows.device)
    return rows[chosen], labels[chosen]


Defence = Callable[[Update], Update]
"""What a client does to its update before it leaves."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenUpdate:
    """A semi-honest server: the model that it sent out, and what came back.

    Attributes:
        model: as it was sent out; the architecture and the weights are the server's own.
        update: the mean gradient along the local steps, after the defence.
        shape: of one row.
        classes: how many there are.
        records: how many rows the client holds; clients report it as their weight.
        work: the terms of the round.
        bounds: the smallest and the largest value that a row can have.
        labels: the labels, where the server knows them; None where it does not.
    """

    model: nn.Module
    update: Update
    shape: tuple[int, ...]
    classes: int
    records: int
    work: Work
    bounds: tuple[float, float] = (0.0, 1.0)
    labels: Tensor | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Rebuilt:
    """A guess at the rows behind an update, in no particular order.

    Attributes:
        rows: (records, *shape).
        labels: (records,).
        distance: how far the update of the guess is from the one that was seen; what the attacker
            itself knows about its success. None where the attack does not look.
    """

    rows: Tensor
    labels: Tensor
    distance: float | None = None


def see_update(
    model: nn.Module,
    rows: Tensor,
    labels: Tensor,
    *,
    classes: int,
    work: Work = GRADIENT,
    defence: Defence | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> SeenUpdate:
    """Let a client work on its rows and show its update to the server.

    Raises:
        DataError: no rows, or not one label each.
    """
    clients = [(rows, labels)]
    return see_sum(model, clients, classes=classes, work=work, defence=defence, bounds=bounds)


def see_sum(
    model: nn.Module,
    clients: Sequence[tuple[Tensor, Tensor]],
    *,
    classes: int,
    work: Work = GRADIENT,
    defence: Defence | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> SeenUpdate:
    """Let several clients work, and show the server only the mean over all rows.

    This is what secure aggregation leaves: the server cannot tell the clients apart, but holds
    the update of all their rows together. Every client applies the defence to its own update.

    Raises:
        DataError: no clients, no rows, or not one label each.
    """
    for rows, labels in clients:
        if len(rows) < 1 or len(rows) != len(labels):
            raise DataError(f"wanted rows with a label each, got {len(rows)} and {len(labels)}")
    records = sum(len(rows) for rows, _ in clients)
    if records < 1:
        raise DataError("wanted at least one client, got none")
    parts = []
    for rows, labels in clients:
        one = do_work(model, rows, labels, work)
        share = len(rows) / records
        parts.append([share * part.detach() for part in (defence(one) if defence else one)])
    total = tuple(torch.stack(same).sum(0) for same in zip(*parts, strict=True))
    shape = tuple(clients[0][0].shape[1:])
    return SeenUpdate(
        model=model,
        update=total,
        shape=shape,
        classes=classes,
        records=records,
        work=work,
        bounds=bounds,
    )


def add_noise(scale: float, *, generator: torch.Generator) -> Defence:
    """Add normal noise of standard deviation `scale` to every number.

    A stand-in for studying attacks: repeatable, and with no guarantee. Noise that protects comes
    from `tacit.dp`.
    """
    if not scale >= 0:
        raise ConfigError(f"the scale of noise must be at least 0, got {scale}")

    def defend(update: Update) -> Update:
        return tuple(
            part + scale * torch.empty(part.shape).normal_(generator=generator).to(part)
            for part in update
        )

    return defend


def clip(bound: float) -> Defence:
    """Scale an update down to an L2 norm of at most `bound`."""
    if not bound > 0:
        raise ConfigError(f"the bound of clipping must be positive, got {bound}")

    def defend(update: Update) -> Update:
        norm = torch.cat([part.flatten() for part in update]).norm()
        factor = (bound / norm.clamp_min(1e-30)).clamp_max(1.0)
        return tuple(part * factor for part in update)

    return defend


def keep_largest(share: float) -> Defence:
    """Keep this share of an update's numbers, the largest ones, and set the others to 0."""
    if not 0 < share <= 1:
        raise ConfigError(f"the share to keep lies in (0, 1], got {share}")

    def defend(update: Update) -> Update:
        flat = torch.cat([part.flatten() for part in update]).abs()
        kept = max(1, round(share * len(flat)))
        threshold = flat.topk(kept).values[-1]
        return tuple(torch.where(part.abs() >= threshold, part, 0.0) for part in update)

    return defend


def in_turn(*defences: Defence) -> Defence:
    """Apply several defences, the first one first."""

    def defend(update: Update) -> Update:
        for one in defences:
            update = one(update)
        return update

    return defend
