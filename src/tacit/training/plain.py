"""The same training in the clear: the same start, the same batches, the same steps."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from tacit.ring import Prg
from tacit.training.clipping import shorten_rows, square_norms
from tacit.training.losses import measure
from tacit.training.noise import draw_rows, draw_whole
from tacit.training.ops import PlainStepOps
from tacit.training.plan import TrainPlan
from tacit.training.private import plan_noise, private_step
from tacit.training.programs import initial_state, train_step
from tacit.training.schedule import actions
from tacit.training.start import start_in_clear

Weights = dict[str, Tensor]


def train_plain(task: TrainPlan, rows: Tensor, labels: Tensor) -> list[tuple[int, float, float]]:
    """Train in floating point, and return step, loss and accuracy at every look."""
    return walk_plain(task, rows, labels)[1]


def walk_plain(
    task: TrainPlan,
    rows: Tensor,
    labels: Tensor,
    *,
    noise: Iterator[Tensor] | None = None,
    drawn: Iterator[np.ndarray] | None = None,
) -> tuple[Weights, list[tuple[int, float, float]]]:
    """Train in floating point: the weights, and step, loss and accuracy at every look.

    Guarantee: none; whoever calls this holds all rows and the noise.

    Args:
        task: what is trained; with privacy, clipped alike and with noise of the same distribution.
        rows: of all owners, one after the other.
        labels: of these rows.
        noise: the whole noise of every step, where it is given.
        drawn: which of the rows to train on are in every step, where they are sampled.
    """
    weights = {name: value.double() for name, value in task.model.initial.items()}
    state = {name: value.double() for name, value in initial_state(task).items()}
    privacy, norms = plan_noise(task), torch.zeros(0)
    if privacy is not None:
        rows = shorten_rows(rows, frac_bits=task.frac_bits)
        norms = square_norms(rows, frac_bits=task.frac_bits)
        if task.spec.privacy is not None and task.spec.privacy.start != "public":
            weights = start_in_clear(task, privacy, rows, labels)
    shown = []
    for action in actions(task):
        x, y = rows[action.rows], labels[action.rows]
        ops = PlainStepOps(task.spec.training.dials(action.step))
        if action.is_look:
            if task.test_rows:
                loss, right = measure(ops, task, task.model(ops, weights, x), y)
                shown.append((action.step, float(loss), float(right) / task.answers))
            continue
        rate = task.rate_at(action.step)
        if privacy is None:
            weights, state = train_step(ops, task, weights, state, x, y, rate=rate)
            continue
        words = next(noise) if noise else draw_whole(privacy.steps)
        near = norms[action.rows]
        if task.spec.is_sampled:
            some = next(drawn) if drawn else draw_rows(Prg.from_os(), task.batch, len(x))
            x, y, near = x[some], y[some], near[some]
        weights, state = private_step(
            ops, task, weights, state, x, y, norms=near, noise=words, rate=rate
        )
    return weights, shown
