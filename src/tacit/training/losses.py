"""Losses of a training, their gradient by the scores, and what is shown of them.

They are computed on shares, or by who holds the text. Then both ends of a language model stay with
the owners of texts: a public table of embeddings and a public head, which are known to everyone and
do not learn. An owner looks its own ids up, so that no comparison with the vocabulary is computed
on shares; the last hidden states of its own rows are opened to it, and nobody else, and it computes
loss and gradient with the head and its labels, which nobody else ever has, not even in shares. What
it learns is what its own rows have become under the weights, in every step: the ledger says so.
"""

from collections.abc import Callable, Iterator
from functools import reduce
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tacit.mpc.ops import ProtocolOps
from tacit.training.ops import StepOps
from tacit.training.plan import TrainPlan

V = TypeVar("V")
Answer = Callable[[tuple[Tensor, ...]], Tensor]

LARGEST_SCORE = 64.0
"""Where scores saturate when a loss is shown. Losses are added up over many rows, and what could be
huge would leave no room for digits."""
LARGEST_LOSS = 64.0
"""Where the loss of a token saturates when its owner shows it."""
WHAT = "last hidden states of rows of its own"
WHY = "the loss is computed by who holds the text"


def measure(ops: StepOps[V], task: TrainPlan, scores: V, y: V) -> tuple[V, V]:
    """Give the mean loss, and how many rows, or tokens, are answered right.

    All of it is about scores of rows, so it is computed as a softmax would be.
    """
    if task.head is not None:
        scores = ops.project(scores, task.head.T)
    with ops.family("softmax"):
        flat = [ops.reshape(one, (-1, task.label_width)) for one in (scores, y)]
        given, wanted = ops.normalise_scale(flat[0]), flat[1]
        tame = ops.cap(given, bound=LARGEST_SCORE)
        lose = ops.binary_cross_entropy if task.loss == "logistic" else ops.cross_entropy
        loss = ops.reshape(lose(tame, wanted), (1,))
        return loss, _count_right(ops, task, given, wanted)


def count_right(ops: StepOps[V], task: TrainPlan, scores: V, y: V) -> V:
    """Count the rows, or tokens, that are answered right: (1,)."""
    with ops.family("softmax"):
        flat = [ops.reshape(one, (-1, task.label_width)) for one in (scores, y)]
        return _count_right(ops, task, ops.normalise_scale(flat[0]), flat[1])


def _count_right(ops: StepOps[V], task: TrainPlan, scores: V, y: V) -> V:
    if task.loss == "logistic":
        # Right if score and (label − 1/2) have one sign; a score of zero says "yes".
        margin = ops.gate(ops.indicate(scores), ops.shift(ops.scale(y, 2.0), -1.0))
        right = ops.sub(margin, ops.shift(y, -1.0))
        return ops.reshape(ops.sum(right, dim=0), (1,))
    best = ops.max(scores, dim=-1)
    mine = ops.normalise_scale(ops.sum(ops.normalise_scale(ops.mul(scores, y)), dim=-1))
    # Half a unit of slack for each rounding on the way.
    near = ops.shift(ops.sub(mine, best), 2.0**-10)
    return ops.reshape(ops.sum(ops.indicate(near), dim=0), (1,))


def error_of(ops: StepOps[V], task: TrainPlan, scores: V, y: V) -> V:
    """Give the gradient of the summed loss by the scores, or by what a public head scores."""
    if task.head is not None:
        error = ops.sub(ops.softmax(ops.project(scores, task.head.T), dim=-1), y)
        return ops.project(error, task.head)
    if task.loss == "logistic":
        error = ops.sub(ops.sigmoid(scores), y)
    else:
        error = ops.sub(ops.softmax(scores, dim=-1), y)
    if task.spec.training.class_weights is None:
        return error
    if task.loss == "logistic":
        no, yes = task.spec.training.class_weights
        factor = ops.shift(ops.scale(y, yes - no), no)
    else:
        factor = ops.sum(ops.weigh(y, torch.tensor(task.spec.training.class_weights)), dim=-1)
        factor = ops.reshape(factor, (*ops.shape(factor), 1))
    return ops.mul(ops.normalise_scale(error), ops.normalise_scale(factor))


def gradient_name(owner: str) -> str:
    """Return the name of the gradient that an owner shares."""
    return f"gradient of {owner}"


def ask_owners(ops: ProtocolOps[V], task: TrainPlan, hidden: V) -> V:
    """Open hidden states to the owners of their rows, and take their gradients in."""
    assert task.head is not None  # noqa: S101 - of a task with a head
    # A probability more here and one less there, times a row of the head each.
    bound = 2.0 * float(task.head.abs().max()) + 2.0**-task.frac_bits
    parts = [
        ops.input(
            gradient_name(owner), owner=owner, shape=(count, *ops.shape(hidden)[1:]), bound=bound
        )
        for owner, count in _shown_to_owners(ops, task, hidden, task.portions)
    ]
    return reduce(lambda one, other: ops.concatenate([one, other], dim=0), parts)


def ask_for_measures(ops: ProtocolOps[V], task: TrainPlan, hidden: V) -> tuple[V, V]:
    """Let every owner measure its own held-out rows; give the mean loss and the right answers."""
    losses: list[V] = []
    rights: list[V] = []
    for owner, _ in _shown_to_owners(ops, task, hidden, task.counts(task.test_indices())):
        for found, what, bound in (
            (losses, "loss", LARGEST_LOSS),
            (rights, "right answers", float(task.answers)),
        ):
            found.append(ops.input(f"{what} of {owner}", owner=owner, shape=(1,), bound=bound))
    return reduce(ops.add, losses), reduce(ops.add, rights)


def _shown_to_owners(
    ops: ProtocolOps[V], task: TrainPlan, hidden: V, counts: tuple[int, ...]
) -> Iterator[tuple[str, int]]:
    """Open hidden states to the owners of their rows, one after the other; yield who saw how many.

    Rows of a batch lie owner by owner.
    """
    hidden, at = ops.normalise_scale(hidden), 0
    for holding, count in zip(task.holdings, counts, strict=True):
        if count:
            mine = ops.take(hidden, range(at, at + count), dim=0)
            ops.open(mine, to=(holding.owner,), what=WHAT, why=WHY)
            yield holding.owner, count
            at += count


def answers_of(
    task: TrainPlan, me: str, labels: Tensor | None, rows: np.ndarray
) -> dict[str, Answer]:
    """Return what I answer in a run over these rows: gradients, and measures."""
    own = task.rows_of(me)
    if task.head is None or labels is None or not own:
        return {}
    head, answers = task.head.double(), task.answers
    here = rows[(rows >= own.start) & (rows < own.stop)] - own.start
    mine = labels[torch.from_numpy(here)].double()

    def gradient(opened: tuple[Tensor, ...]) -> Tensor:
        scores = opened[-1] @ head.T
        found: Tensor = (torch.softmax(scores, dim=-1) - mine) @ head
        return found

    def loss(opened: tuple[Tensor, ...]) -> Tensor:
        scores = functional.log_softmax(opened[-1] @ head.T, dim=-1)
        each = -(scores * mine).sum(dim=-1)
        return each.clamp(max=LARGEST_LOSS).sum().reshape(1) / answers

    def right(opened: tuple[Tensor, ...]) -> Tensor:
        is_right = (opened[-1] @ head.T).argmax(dim=-1) == mine.argmax(dim=-1)
        return is_right.double().sum().reshape(1)

    return {gradient_name(me): gradient, f"loss of {me}": loss, f"right answers of {me}": right}
