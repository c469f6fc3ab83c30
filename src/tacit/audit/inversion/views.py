"""What somebody sees of a classifier who may ask it for confidences, or trains along with it."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tacit.audit.reconstruction import Update, Work, do_work
from tacit.errors import DataError

Ask = Callable[[Tensor], Tensor]
"""Given rows, return (rows, classes) probabilities; all that is seen of the model."""

Defence = Callable[[Tensor], Tensor]
"""What the owner does to probabilities before it shows them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenConfidences:
    """Someone who may ask: the shape and the bounds of a row, and an answer to any row.

    Attributes:
        ask: gives the confidences.
        shape: of one row.
        classes: how many.
        bounds: the smallest and the largest value of a row.
    """

    ask: Ask
    shape: tuple[int, ...]
    classes: int
    bounds: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenAnswers:
    """Someone who overhears answers: confidences of unknown rows, and rows of its own to ask about.

    Attributes:
        ask: gives the confidences.
        own: rows of the attacker, of the same kind.
        answers: (rows, classes) confidences of the rows to rebuild.
    """

    ask: Ask
    own: Tensor
    answers: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenRecords:
    """Someone who knows people but for one column: their other columns and their labels.

    Attributes:
        ask: gives the confidences.
        rows: (rows, columns), the hidden column filled with zeros.
        labels: what the model was taught about each row.
        column: which one is hidden.
        values: those that it can take.
        shares: how common each value is.
    """

    ask: Ask
    rows: Tensor
    labels: Tensor
    column: int
    values: tuple[float, ...]
    shares: tuple[float, ...]


def ask_of(model: nn.Module, *, defence: Defence | None = None) -> Ask:
    """Let a torch classifier be asked, through a defence of its confidences."""

    def ask(rows: Tensor) -> Tensor:
        was_training = model.training
        model.eval()
        with torch.no_grad():
            found = [model(block).softmax(1) for block in torch.split(rows, 1024)]
        model.train(was_training)
        shown = torch.cat(found)
        return defence(shown) if defence else shown

    return ask


def round_to(digits: int) -> Defence:
    """Show confidences with so many digits after the point only."""

    def defend(confidences: Tensor) -> Tensor:
        return torch.round(confidences, decimals=digits)

    return defend


def see_answers(ask: Ask, *, own: Tensor, targets: Tensor) -> SeenAnswers:
    """Show the answers to rows, not the rows."""
    return SeenAnswers(ask=ask, own=own, answers=ask(targets))


def see_records(ask: Ask, rows: Tensor, labels: Tensor, *, column: int) -> SeenRecords:
    """Hide a column of records, and tell which values it has how often.

    Raises:
        DataError: the column takes one value only, or too many to try.
    """
    values, counts = torch.unique(rows[:, column], return_counts=True)
    if not 2 <= len(values) <= 64:
        raise DataError(f"wanted a column of 2 to 64 different values, got {len(values)}")
    blank = rows.clone()
    blank[:, column] = 0
    return SeenRecords(
        ask=ask,
        rows=blank,
        labels=labels,
        column=column,
        values=tuple(values.tolist()),
        shares=tuple((counts / len(rows)).tolist()),
    )


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
    defence: Callable[[Update], Update] | None = None,
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
