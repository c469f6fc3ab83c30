"""A private start: every owner trains alone with DP, and the models meet on shares.

Nobody sees another's model. They are averaged, or the best of them and their average is chosen by
counts of right answers with noise, on shares: not even which one it was is opened.
"""

from math import prod
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from tacit.mpc.ops import ProtocolOps
from tacit.ring import Prg
from tacit.training.clipping import square_norms
from tacit.training.losses import count_right
from tacit.training.noise import NoisePlan, draw_alone, draw_whole, sum_noise
from tacit.training.ops import LatticeStepOps, PlainStepOps, StepOps
from tacit.training.plan import TrainPlan
from tacit.training.privacy import PrivacyPlan
from tacit.training.private import private_step
from tacit.training.programs import initial_state

V = TypeVar("V")


def train_alone(
    task: TrainPlan, noise: NoisePlan, owner: str, rows: Tensor, labels: Tensor, *, prg: Prg
) -> Tensor:
    """Train on one owner's rows, in the clear at that owner: the weights, one after the other.

    Guarantee: (ε, δ) of ``start_steps`` of the events of ``noise``, all of it drawn by the owner,
    towards everyone else.

    Args:
        task: what is trained.
        noise: that of a step; alone an owner draws all of it.
        owner: whose rows they are.
        rows: all rows of the owner, as they are shared.
        labels: of these rows.
        prg: of the noise.
    """
    assert task.spec.privacy is not None  # noqa: S101 - of a private task
    own = task.rows_of(owner)
    kept = np.setdiff1d(np.arange(own.start, own.stop), task.test_indices())
    chosen = torch.from_numpy(kept - own.start)
    x, y = rows[chosen], labels[chosen]
    norms = square_norms(x, frac_bits=task.frac_bits)
    weights = {name: value.double() for name, value in task.model.initial.items()}
    state = {name: value.double() for name, value in initial_state(task).items()}
    for step in range(1, task.spec.privacy.start_steps + 1):
        weights, state = private_step(
            LatticeStepOps(task.spec.training.dials(step), task.frac_bits),
            task,
            weights,
            state,
            x,
            y,
            norms=norms,
            noise=draw_alone(noise, prg.fork(f"alone {step}")),
            rate=task.rate_at(step),
        )
    return torch.cat([value.flatten() for value in weights.values()])


def start_name(owner: str) -> str:
    """Return the name of an owner's own model."""
    return f"start of {owner}"


def enter_starts(ops: ProtocolOps[V], task: TrainPlan, choice: NoisePlan | None) -> dict[str, V]:
    """Bring the owners' models in, and begin with their average or with the best of all."""
    names = task.model.initial
    count = sum(value.numel() for value in names.values())
    owners = [holding.owner for holding in task.holdings]
    found = [
        ops.input(start_name(one), owner=one, shape=(count,), bound=task.spec.weight_bound)
        for one in owners
    ]
    joined = ops.concatenate([ops.reshape(one, (1, count)) for one in found], dim=0)
    mean = ops.normalise_scale(ops.scale(ops.sum(joined, dim=0), 1 / len(owners)))
    mean = ops.restate(mean, bound=task.spec.weight_bound)
    if choice is not None:
        candidates = [mean, *found]
        noise = sum_noise(ops, choice)
        rights = []
        for one in candidates:
            shape = (task.train_rows, *task.model.inputs)
            x = ops.resume("x", shape=shape, bound=task.bound)
            y = ops.resume("y", shape=(task.train_rows, *task.label_shape), bound=1.0)
            rights.append(count_right(ops, task, task.model(ops, _cut(ops, task, one), x), y))
        scores = ops.add(ops.normalise_scale(ops.concatenate(rights, dim=0)), noise)
        best = ops.argmax_one_hot(ops.reshape(scores, (1, -1)), dim=1)
        flat = [ops.reshape(one, (1, count)) for one in candidates]
        mean = ops.reshape(ops.mix(best, ops.concatenate(flat, dim=0)), (count,))
        # The product with zeros and a one is a sum of bounds to the plan: it is that of one model.
        mean = ops.restate(ops.normalise_scale(mean), bound=task.spec.weight_bound)
    return _cut(ops, task, mean)


def start_in_clear(
    task: TrainPlan, privacy: PrivacyPlan, rows: Tensor, labels: Tensor
) -> dict[str, Tensor]:
    """Do the same in the clear, with fresh noise: what a private start is compared with."""
    ops, found = PlainStepOps(), []
    for owner in (one.owner for one in task.holdings):
        own = slice(task.rows_of(owner).start, task.rows_of(owner).stop)
        found.append(
            train_alone(task, privacy.steps, owner, rows[own], labels[own], prg=Prg.from_os())
        )
    candidates = [torch.stack(found).mean(dim=0), *found]
    best = 0
    if privacy.choice is not None:
        chosen = torch.from_numpy(task.train_indices())
        models = [_cut(ops, task, one) for one in candidates]
        x, y = rows[chosen], labels[chosen]
        counts = [count_right(ops, task, task.model(ops, one, x), y) for one in models]
        best = int((torch.cat(counts) + draw_whole(privacy.choice)).argmax())
    return _cut(ops, task, candidates[best])


def _cut(ops: StepOps[V], task: TrainPlan, flat: V) -> dict[str, V]:
    found, at = {}, 0
    for name, value in task.model.initial.items():
        part = ops.take(flat, range(at, at + value.numel()), dim=0)
        found[name] = ops.reshape(part, tuple(value.shape))
        at += prod(value.shape)
    return found
