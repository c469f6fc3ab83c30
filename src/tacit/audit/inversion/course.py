"""What the server of federated learning sees of a whole course of rounds."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tacit.audit.reconstruction import Defence, Update, Work, do_work


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenCourse:
    """The server: the joint model and all updates of every round, and rows of its own.

    Attributes:
        models: the joint model at the start of each round.
        updates: for each round, one update per client.
        work: the terms of the rounds.
        own: rows of the server, of the same kind as the clients'.
        own_labels: their classes.
        classes: how many.
        bounds: the smallest and the largest value of a row.
    """

    models: tuple[nn.Sequential, ...]
    updates: tuple[tuple[Update, ...], ...]
    work: Work
    own: Tensor
    own_labels: Tensor
    classes: int
    bounds: tuple[float, float] = (0.0, 1.0)


def see_course(
    model: nn.Sequential,
    clients: Sequence[tuple[Tensor, Tensor]],
    *,
    own: tuple[Tensor, Tensor],
    rounds: int,
    work: Work,
    classes: int,
    defence: Defence | None = None,
) -> SeenCourse:
    """Train a model in place with honest clients, and return what the server saw of it."""
    models, updates, rate = [], [], work.rate * work.steps
    for _ in range(rounds):
        models.append(copy.deepcopy(model))
        found = tuple(do_work(model, rows, labels, work) for rows, labels in clients)
        found = tuple(defence(one) for one in found) if defence else found
        updates.append(found)
        with torch.no_grad():
            trained = [p for p in model.parameters() if p.requires_grad]
            for parameter, *parts in zip(trained, *found, strict=True):
                parameter -= rate * torch.stack(parts).mean(0)
    return SeenCourse(
        models=tuple(models),
        updates=tuple(updates),
        work=work,
        own=own[0],
        own_labels=own[1],
        classes=classes,
    )
