"""The programs of a training: share the data, take a step, look how it goes, hand out the model.

Each is a function of ops. Values stay shared between runs; a run takes its shares up by name.

A private start comes before: every owner trains alone with DP, and the models meet on shares.
Nobody sees another's model. They are averaged, or the best of them and their average is chosen by
counts of right answers with noise, on shares: not even which one it was is opened.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import pairwise
from math import prod
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from tacit.mpc.ops import ProtocolOps
from tacit.nn.gradient import GradientOps, pull_back
from tacit.ring import Prg
from tacit.training.gradients import (
    NORMS,
    ask_for_measures,
    ask_owners,
    count_right,
    error_of,
    measure,
    private_step,
    square_norms,
)
from tacit.training.noise import NoisePlan, draw_alone, draw_whole, sum_noise
from tacit.training.ops import Counting, LatticeStepOps, PlainStepOps, StepOps
from tacit.training.plan import TrainPlan
from tacit.training.privacy import PrivacyPlan

V = TypeVar("V")
Values = dict[str, V]

DECLARED = "declared in the job"
SATURATED = "number of values of held-out rows that saturate"
NEAR = 0.75
"""The part of half its bound from which on a weight is spoken of; at half, a training stops."""
LOOK_ELEMENTS = 1 << 23
"""A look is taken at so many rows at a time that no layer makes more numbers of them: a comparison
takes a hundred bytes per number, in memory and in a message."""


@dataclass(frozen=True, eq=False)
class Programs:
    """The programs of one task. Every party plans them alike.

    ``privacy`` is the noise of a private task, which follows from it.
    """

    task: TrainPlan
    privacy: PrivacyPlan | None = None
    # How many values the last look that was planned or run could have cut off.
    capped: list[int] = field(default_factory=lambda: [0])

    def share(self, ops: ProtocolOps[V]) -> Values[V]:
        """Bring the data in; everything else starts from public numbers."""
        task = self.task
        rows, labels = [], []
        for holding in task.holdings:
            shape = (holding.rows, *holding.features)
            name = f"rows of {holding.owner}"
            bound = task.bound
            if prod(shape):
                rows.append(ops.input(name, owner=holding.owner, shape=shape, bound=bound))
            if holding.has_labels and task.head is None:
                wide = (holding.rows, *task.label_shape)
                name = f"labels of {holding.owner}"
                labels.append(ops.input(name, owner=holding.owner, shape=wide, bound=1.0))
        along = 0 if task.spec.data.split == "rows" else 1
        found = {"x": _joined(ops, rows, along)}
        if labels:
            found["y"] = _joined(ops, labels, 0)
        if task.spec.privacy is not None:
            found[NORMS] = _joined(
                ops,
                [
                    ops.input(
                        f"norms of {one.owner}", owner=one.owner, shape=(one.rows, 1), bound=1.0
                    )
                    for one in task.holdings
                ],
                0,
            )
        return found

    def step(self, ops: ProtocolOps[V], *, rate: float) -> Values[V]:
        """Take one step: forward, backward, and the change of the weights."""
        task = self.task
        weights = self._weights(ops)
        bounds = state_bounds(task)
        state = {
            name: ops.resume(name, shape=tuple(value.shape), bound=bounds[name])
            for name, value in initial_state(task).items()
        }
        x, y = self._batch(ops, task.step_rows)
        if task.head is not None:
            gradients = _gradients(ops, task, weights, x, partial(ask_owners, ops, task))
            rows = ops.shape(x)[0]
            changed, kept = task.descend(ops, weights, gradients, state, rate=rate, rows=rows)
        elif self.privacy is None:
            changed, kept = train_step(ops, task, weights, state, x, y, rate=rate)
        else:
            if not task.spec.is_sampled:
                ops.cache_openings(x)
            norms = ops.resume(NORMS, shape=(task.step_rows, 1), bound=1.0)
            noise = sum_noise(ops, self.privacy.steps)
            changed, kept = private_step(
                ops, task, weights, state, x, y, norms=norms, noise=noise, rate=rate
            )
        out = {
            name: ops.restate(value, bound=task.spec.weight_bound)
            for name, value in changed.items()
        }
        return out | {name: ops.restate(value, bound=bounds[name]) for name, value in kept.items()}

    def watch(self, ops: ProtocolOps[V]) -> tuple[Tensor | None, ...]:
        """Open the loss and the right answers on rows kept for it, and whether weights grow.

        Returns:
            The mean loss, the number of right answers, the number of values that saturated, and
            two bits (whether weights are near half of what is allowed, and whether one is beyond),
            each for those it is opened to.
        """
        task = self.task
        weights = self._weights(ops)
        x, y = self._batch(ops, task.test_rows, kind="held-out ")
        if self.privacy is not None and self.privacy.looks is not None:
            return self._noisy(ops, self.privacy.looks, weights, x, y)
        if task.head is not None:
            counting = Counting(ops)
            hidden = task.model(counting.steps(), weights, x)
            return self._shown(ops, *ask_for_measures(ops, task, hidden), counting)
        losses, rights = [], []
        for rows, labels in zip(self._parts(ops, x), self._parts(ops, y), strict=True):
            loss, right = measure(ops, task, task.model(ops, weights, rows), labels)
            losses.append(ops.scale(loss, ops.shape(labels)[0] / task.test_rows))
            rights.append(right)
        loss, right = (reduce(ops.add, parts) for parts in (losses, rights))
        return self._shown(ops, loss, right, self._saturating(ops, weights, x, y))

    def _saturating(self, ops: ProtocolOps[V], weights: Values[V], x: V, y: V) -> Counting[V]:
        """Go forth and back on some of the rows, and count what is cut off."""
        task, counting = self.task, Counting(ops)
        if task.cap is not None or task.model.imported.cap is not None:
            most = max(1, LOOK_ELEMENTS // task.model.widest)
            rows = range(min(task.batch, task.test_rows, most))
            part = [ops.take(one, rows, dim=0) for one in (x, y)]
            steps = counting.steps()
            _gradients(steps, task, weights, part[0], partial(_error, steps, task, part[1], 1.0))
        return counting

    def _shown(
        self, ops: ProtocolOps[V], loss: V, right: V, counting: Counting[V]
    ) -> tuple[Tensor | None, ...]:
        """Open loss and right answers, what saturated, and whether weights grow."""
        task = self.task
        show, computing = (
            partial(ops.open, to=task.spec.protocol.show_to, why=DECLARED),
            task.spec.roles.computing,
        )
        saturated = counting.total()
        self.capped[0] = counting.elements
        shown = (
            show(loss, what="mean loss on held-out rows"),
            show(right, what="number of right answers on held-out rows"),
            None if saturated is None else show(saturated, what=SATURATED),
        )
        if self.privacy is not None:  # weights saturate, and need not be watched
            return (*shown, None)
        return (
            *shown,
            ops.open(
                ops.is_positive(self._alarms(ops)),
                to=computing,
                what="whether weights near half of their bound, and whether one is beyond",
                why="larger weights would make results wrong",
            ),
        )

    def _noisy(
        self, ops: ProtocolOps[V], noise: NoisePlan, weights: Values[V], x: V, y: V
    ) -> tuple[Tensor | None, ...]:
        """Open the right answers with noise, and nothing else: weights saturate."""
        task = self.task
        rights = [
            count_right(ops, task, task.model(ops, weights, rows), labels)
            for rows, labels in zip(self._parts(ops, x), self._parts(ops, y), strict=True)
        ]
        right = ops.add(ops.normalise_scale(reduce(ops.add, rights)), sum_noise(ops, noise))
        what = "number of right answers on held-out rows, with noise"
        return (
            None,
            ops.open(right, to=task.spec.protocol.show_to, what=what, why=DECLARED),
            None,
            None,
        )

    def score(self, ops: ProtocolOps[V]) -> tuple[Tensor | None, ...]:
        """Open the scores of the rows kept for measuring, for one who knows their classes."""
        task = self.task
        x, _ = self._batch(ops, task.test_rows, kind="held-out ")
        weights, parts = self._weights(ops), self._parts(ops, x)
        scores = [ops.normalise_scale(task.model(ops, weights, part)) for part in parts]
        what, joined = "scores of held-out rows", _joined(ops, scores, 0)
        return (ops.open(joined, to=task.spec.protocol.score_to, what=what, why=DECLARED),)

    def _parts(self, ops: ProtocolOps[V], value: V) -> list[V]:
        """Cut rows kept for measuring into stretches that a wide layer leaves room for."""
        stretches = _stretches(self.task.test_rows, max(1, LOOK_ELEMENTS // self.task.model.widest))
        if len(stretches) == 1:
            return [value]
        return [ops.take(value, some, dim=0) for some in stretches]

    def _alarms(self, ops: ProtocolOps[V]) -> V:
        """Give numbers of at least zero if a weight is beyond 3/8, and 1/2, of its bound.

        The eighth powers of all weights, in units of half the bound, add up to at least one if a
        single weight is that large, and to (3/4)^8 at 3/8; many weights just below add up, too.
        Products alone are needed: comparing every weight would show them all, if in random order,
        to whoever computes comparisons under a permuted protocol.
        Weights are taken up with a bound above theirs, so that one that has left it is seen.
        """
        shapes = {name: tuple(value.shape) for name, value in self.task.model.initial.items()}
        count = sum(map(prod, shapes.values()))
        frac_bits = self.task.frac_bits
        # Both the product and the sum of eighth powers must fit.
        room = min(60 - 2 * frac_bits, 60 - frac_bits - count.bit_length())
        reach = 2.0 ** max(1, room // 8)
        bound = reach / 2 * self.task.spec.weight_bound
        flat = [
            ops.reshape(ops.resume(name, shape=shape, bound=bound), (-1,))
            for name, shape in shapes.items()
        ]
        power = ops.normalise_scale(
            ops.scale(_joined(ops, flat, 0), 2 / self.task.spec.weight_bound)
        )
        for _ in range(3):
            power = ops.normalise_scale(ops.square(power))
        total = ops.reshape(ops.sum(power, dim=0), (1,))
        near, beyond = (ops.shift(total, -0.95 * level) for level in (NEAR**8, 1.0))
        return ops.concatenate([near, beyond], dim=0)

    def give(self, ops: ProtocolOps[V]) -> dict[str, Tensor | None]:
        """Open the weights to those who may have them."""
        return {
            name: ops.open(
                value, to=self.task.spec.protocol.give_to, what=f"weights {name}", why=DECLARED
            )
            for name, value in self._weights(ops).items()
        }

    def _weights(self, ops: ProtocolOps[V]) -> Values[V]:
        return {
            name: ops.resume(name, shape=tuple(value.shape), bound=self.task.spec.weight_bound)
            for name, value in self.task.model.initial.items()
        }

    def _batch(self, ops: ProtocolOps[V], rows: int, *, kind: str = "") -> tuple[V, V]:
        task = self.task
        x = ops.resume(f"{kind}x", shape=(rows, *task.model.inputs), bound=task.bound)
        if task.head is not None:
            return x, x  # labels stay with their owners
        return x, ops.resume(f"{kind}y", shape=(rows, *task.label_shape), bound=1.0)


def initial_state(task: TrainPlan) -> dict[str, Tensor]:
    """Return where the optimiser's memory starts, by "slot/name"."""
    return {
        f"{slot}/{name}": torch.zeros_like(value)
        for slot in task.spec.training.slots()
        for name, value in task.model.initial.items()
    }


def state_bounds(task: TrainPlan) -> dict[str, float]:
    """Return how large the optimiser's memory can be, by "slot/name"."""
    return {
        f"{slot}/{name}": bound
        for slot, bound in task.spec.training.slots().items()
        for name in task.model.initial
    }


def train_step(
    ops: StepOps[V],
    task: TrainPlan,
    weights: Mapping[str, V],
    state: Mapping[str, V],
    x: V,
    y: V,
    *,
    rate: float,
) -> tuple[Values[V], Values[V]]:
    """Compute the weights and the optimiser's memory after one batch, over any interpreter."""
    rows, lead = ops.shape(x)[0], 1.0
    if task.cap is None:  # a cap is meant for the error itself
        count = sum(value.numel() for value in task.model.initial.values())
        batch = rows * prod(task.model.tokens)
        lead = task.spec.training.lead(rate=rate, batch=batch, weights=count)
    gradients: Values[V] = {}
    for some in _stretches(rows, -(-rows // task.spec.training.accumulate)):
        part = [
            one if task.spec.training.accumulate == 1 else ops.take(one, some, dim=0)
            for one in (x, y)
        ]
        found = _gradients(ops, task, weights, part[0], partial(_error, ops, task, part[1], lead))
        gradients = {
            name: ops.add(gradients[name], value) if name in gradients else value
            for name, value in found.items()
        }
    return task.descend(ops, weights, gradients, state, rate=rate, rows=rows, lead=lead)


def _gradients(
    ops: StepOps[V],
    task: TrainPlan,
    weights: Mapping[str, V],
    x: V,
    error_at: Callable[[V], V],
) -> Values[V]:
    """Go forth and back: the gradients of the summed loss, from its gradient at the end."""
    tape = GradientOps(ops, cap=task.cap)
    leaves = {name: tape.leaf(value) for name, value in weights.items()}
    scores = task.model(tape, leaves, tape.leaf(x))  # type: ignore[arg-type]
    found = pull_back(ops, scores, error_at(scores.value), list(leaves.values()))
    return dict(zip(leaves, found, strict=True))


def _error(ops: StepOps[V], task: TrainPlan, y: V, lead: float, scores: V) -> V:
    with ops.family("softmax"):
        error = error_of(ops, task, scores, y)
    return error if lead == 1.0 else ops.normalise_scale(ops.scale(error, lead))


def _stretches(count: int, most: int) -> list[range]:
    """Cut so many rows into stretches of at most ``most``, as even as can be."""
    pieces = -(-count // most)
    edges = [count * piece // pieces for piece in range(pieces + 1)]
    return [range(first, end) for first, end in pairwise(edges)]


def _joined(ops: ProtocolOps[V], parts: list[V], dim: int) -> V:
    return reduce(lambda first, second: ops.concatenate([first, second], dim=dim), parts)


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
