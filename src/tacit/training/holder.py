"""A loss at who holds the text: its last hidden states are opened to it, and nobody else.

The owner computes loss and gradient with the public head and its labels, which nobody else ever
has, not even in shares. That saves comparisons over the whole vocabulary. What it learns is what
its own rows have become under the weights, in every step: the ledger says so.
"""

from collections.abc import Callable
from functools import reduce
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tacit.mpc.ops import ProtocolOps
from tacit.training.task import TrainTask

V = TypeVar("V")
Answer = Callable[[tuple[Tensor, ...]], Tensor]
LARGEST_LOSS = 64.0
"""Where the loss of a token saturates when it is shown."""
WHAT = "last hidden states of rows of its own"
WHY = "the loss is computed by who holds the text"


def gradient_name(owner: str) -> str:
    """Return the name of the gradient that an owner shares."""
    return f"gradient of {owner}"


def ask_owners(ops: ProtocolOps[V], task: TrainTask, hidden: V) -> V:
    """Open hidden states to the owners of their rows, and take their gradients in."""
    assert task.head is not None  # noqa: S101 - of a task with a head
    hidden = ops.normalise_scale(hidden)
    # A probability more here and one less there, times a row of the head each.
    bound = 2.0 * float(task.head.abs().max()) + 2.0**-task.frac_bits
    parts, at, shape = [], 0, ops.shape(hidden)
    for holding, count in zip(task.holdings, task.portions, strict=True):
        if not count:
            continue
        mine = ops.take(hidden, range(at, at + count), dim=0)
        ops.open(mine, to=(holding.owner,), what=WHAT, why=WHY)
        name = gradient_name(holding.owner)
        part = (count, *shape[1:])
        parts.append(ops.input(name, owner=holding.owner, shape=part, bound=bound))
        at += count
    return reduce(lambda one, other: ops.concatenate([one, other], dim=0), parts)


def ask_for_measures(ops: ProtocolOps[V], task: TrainTask, hidden: V) -> tuple[V, V]:
    """Let every owner measure its own held-out rows; give the mean loss and the right answers."""
    hidden = ops.normalise_scale(hidden)
    losses: list[V] = []
    rights: list[V] = []
    at = 0
    for holding, count in zip(task.holdings, task.counts(task.test_indices()), strict=True):
        if not count:
            continue
        mine = ops.take(hidden, range(at, at + count), dim=0)
        ops.open(mine, to=(holding.owner,), what=WHAT, why=WHY)
        for found, what, bound in (
            (losses, "loss", LARGEST_LOSS),
            (rights, "right answers", float(task.answers)),
        ):
            name = f"{what} of {holding.owner}"
            found.append(ops.input(name, owner=holding.owner, shape=(1,), bound=bound))
        at += count
    return reduce(ops.add, losses), reduce(ops.add, rights)


def answers_of(
    task: TrainTask, me: str, labels: Tensor | None, rows: np.ndarray
) -> dict[str, Answer]:
    """Return what I answer in a run over these rows: gradients, and measures."""
    if task.head is None or labels is None:
        return {}
    first, head = 0, task.head.double()
    for holding in task.holdings:
        if holding.owner == me:
            own = rows[(rows >= first) & (rows < first + holding.rows)] - first
            return _answers(task, me, head, labels[torch.from_numpy(own)].double())
        first += holding.rows
    return {}


def _answers(task: TrainTask, me: str, head: Tensor, labels: Tensor) -> dict[str, Answer]:
    def gradient(opened: tuple[Tensor, ...]) -> Tensor:
        scores = opened[-1] @ head.T
        found: Tensor = (torch.softmax(scores, dim=-1) - labels) @ head
        return found

    def loss(opened: tuple[Tensor, ...]) -> Tensor:
        scores = functional.log_softmax(opened[-1] @ head.T, dim=-1)
        each = -(scores * labels).sum(dim=-1)
        return each.clamp(max=LARGEST_LOSS).sum().reshape(1) / task.answers

    def right(opened: tuple[Tensor, ...]) -> Tensor:
        is_right = (opened[-1] @ head.T).argmax(dim=-1) == labels.argmax(dim=-1)
        return is_right.double().sum().reshape(1)

    return {gradient_name(me): gradient, f"loss of {me}": loss, f"right answers of {me}": right}
