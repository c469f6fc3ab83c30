"""What a server sees of a round, as records that attacks are given."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tacit.audit.reconstruction.work import GRADIENT, Update, Work, do_work
from tacit.errors import DataError

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
