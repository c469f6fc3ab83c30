"""Losses of a training: their gradient by the scores, and what is shown of them."""

from typing import TypeVar

import torch

from tacit.training.task import TrainTask
from tacit.training.verbs import StepOps

V = TypeVar("V")

LARGEST_SCORE = 64.0
"""Where scores saturate when a loss is shown."""


def measure(ops: StepOps[V], task: TrainTask, scores: V, y: V) -> tuple[V, V]:
    """Give the mean loss, and how many rows, or tokens, are answered right.

    All of it is about scores of rows, so it is computed as a softmax would be.
    """
    if task.head is not None:
        scores = ops.project(scores, task.head.T)
    with ops.family("softmax"):
        flat = [ops.reshape(one, (-1, task.label_width)) for one in (scores, y)]
        return _measure(ops, task, ops.normalise_scale(flat[0]), flat[1])


def count_right(ops: StepOps[V], task: TrainTask, scores: V, y: V) -> V:
    """Count the rows, or tokens, that are answered right: (1,)."""
    with ops.family("softmax"):
        flat = [ops.reshape(one, (-1, task.label_width)) for one in (scores, y)]
        return _count_right(ops, task, ops.normalise_scale(flat[0]), flat[1])


def _measure(ops: StepOps[V], task: TrainTask, scores: V, y: V) -> tuple[V, V]:
    # Losses are added up over many rows, and what could be huge would leave no room for digits.
    tame = ops.cap(scores, bound=LARGEST_SCORE)
    lose = ops.binary_cross_entropy if task.loss == "logistic" else ops.cross_entropy
    return ops.reshape(lose(tame, y), (1,)), _count_right(ops, task, scores, y)


def _count_right(ops: StepOps[V], task: TrainTask, scores: V, y: V) -> V:
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


def error_of(ops: StepOps[V], task: TrainTask, scores: V, y: V) -> V:
    """Give the gradient of the summed loss by the scores, or by what a public head scores."""
    if task.head is not None:
        error = ops.sub(ops.softmax(ops.project(scores, task.head.T), dim=-1), y)
        return ops.project(error, task.head)
    if task.loss == "logistic":
        error = ops.sub(ops.sigmoid(scores), y)
    else:
        error = ops.sub(ops.softmax(scores, dim=-1), y)
    if task.class_weights is None:
        return error
    if task.loss == "logistic":
        no, yes = task.class_weights
        factor = ops.shift(ops.scale(y, yes - no), no)
    else:
        factor = ops.sum(ops.weigh(y, torch.tensor(task.class_weights)), dim=-1)
        factor = ops.reshape(factor, (*ops.shape(factor), 1))
    return ops.mul(ops.normalise_scale(error), ops.normalise_scale(factor))
