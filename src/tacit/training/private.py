"""A step with differential privacy: clipped per record, summed, and noise that nobody knows."""

from collections.abc import Mapping
from math import prod
from typing import TypeVar

import torch

from tacit.dp import mixing
from tacit.errors import InputError
from tacit.mpc.ops import ProtocolOps
from tacit.mpc.walker import Walker
from tacit.nn.records import RecordOps, Use
from tacit.nn.tape import Node, pull_back
from tacit.training.clipping import clip_factors, scale_records, source, square_norm
from tacit.training.losses import error_of
from tacit.training.noise import KEPT, OVERFLOW, rate_of
from tacit.training.ops import PlainStepOps, StepOps
from tacit.training.plan import TrainPlan
from tacit.training.privacy import Measures, PrivacyPlan, plan_privacy

V = TypeVar("V")
Values = dict[str, V]
NORMS = "norms"
"""The squared norms of rows, which their owners know."""
_TRIED = 8
"""Made-up rows that a model is tried with."""
_FEW = 2
"""Rows that a step is planned with to learn bounds, which do not follow from their number."""


def private_step(
    ops: StepOps[V],
    task: TrainPlan,
    weights: Mapping[str, V],
    state: Mapping[str, V],
    x: V,
    y: V,
    *,
    norms: V,
    noise: V,
    rate: float,
) -> tuple[Values[V], Values[V]]:
    """Take a step of DP-SGD (Abadi et al. 2016, algorithm 1), after which weights may be known.

    Everything after the noise is about no record.

    Guarantee: one record moves the sum that the noise is added to by at most `sensitivity`, if
    weights are within their bound and ``norms`` are those of the rows.
    """
    # Line "compute gradient", and the norms of single records by ghost norms in place of gradients.
    rows, uses, found = record_gradients(ops, task, weights, x, y)
    assert task.spec.privacy is not None  # noqa: S101 - of a private task
    known = {rows.number: norms}
    factors = clip_factors(ops, uses, found, clip=task.spec.privacy.clip, known=known)
    if task.spec.is_sampled:
        factors = ops.keep_rows(factors, KEPT)  # rows that fill a step up count for nothing
    # Lines "clip gradient" and "add noise": factors scale what comes back to each layer, and only
    # then records are summed. The noise is one vector over all weights, as sensitivity is.
    gradients, at = {}, 0
    for use, gradient in zip(uses, found, strict=True):
        total = ops.normalise_scale(use.add_up(scale_records(ops, gradient, factors)))
        shape = ops.shape(weights[use.weight])
        part = ops.take(noise, range(at, at + prod(shape)), dim=0)
        gradients[use.weight] = ops.add(total, ops.reshape(part, shape))
        at += prod(shape)
    # Over the batch that is expected, also where rows are sampled: how many came is not to be told.
    changed, kept = task.descend(ops, weights, gradients, state, rate=rate, rows=task.batch)
    bound = task.spec.weight_bound
    return {name: ops.cap(value, bound=bound) for name, value in changed.items()}, kept


def plan_noise(task: TrainPlan) -> PrivacyPlan | None:
    """Work out the noise of a private task from its public facts; None of any other.

    Raises:
        ConfigError: no noise is enough.
        InputError: gradients of single records are not bounded for this model.
        RangeError: numbers do not fit.
    """
    if task.spec.privacy is None:
        return None
    _refuse_meeting(task)
    facts = Measures(
        makers=task.parties,
        computing=task.spec.roles.computing,
        roundings=_roundings(task),
        weights=sum(value.numel() for value in task.model.initial.values()),
        steps=task.steps,
        looks=task.looks,
        rows=task.rows,
        answers=prod(task.model.tokens),
        owners=len(task.holdings),
        frac_bits=task.frac_bits,
        protocol=task.spec.protocol.spelled,
        rate=rate_of(task.batch, task.train_rows) if task.spec.is_sampled else 1.0,
        overflow=OVERFLOW if task.spec.is_sampled else 0.0,
    )
    return plan_privacy(task.spec.privacy, facts)


def record_gradients(
    ops: StepOps[V], task: TrainPlan, weights: Mapping[str, V], x: V, y: V
) -> tuple[Node[V], list[Use[V]], list[V]]:
    """Go forth and back once: the rows, where weights meet records, and gradients there."""
    tape = RecordOps(ops, cap=task.cap)
    leaves = {name: tape.weight(name, value) for name, value in weights.items()}
    rows = tape.leaf(x)
    scores = task.model(tape, leaves, rows)  # type: ignore[arg-type]
    with ops.family("softmax"):
        error = ops.normalise_scale(error_of(ops, task, scores.value, y))
    uses = tape.uses(scores, list(weights))
    records = ops.shape(x)[0]
    for use in uses:
        parts = [use.outputs] if use.inputs is None else [use.outputs, source(use.inputs)]
        if any(tape.shape(part)[0] != records for part in parts):
            raise InputError(
                f"{use.weight.replace('/', '.')!r} meets values of which records are not the first "
                "dimension, so that gradients of single records are not bounded"
            )
    found = pull_back(ops, scores, error, [use.outputs for use in uses])
    return rows, uses, [ops.normalise_scale(one) for one in found]


def _roundings(task: TrainPlan) -> tuple[tuple[float, int], ...]:
    """Plan a step of a few rows, for the largest inputs of every use and how much comes out."""
    found: list[tuple[float, int]] = []

    def program(ops: ProtocolOps[V]) -> None:
        weights = {
            name: ops.resume(name, shape=tuple(value.shape), bound=task.spec.weight_bound)
            for name, value in task.model.initial.items()
        }
        x = ops.resume("x", shape=(_FEW, *task.model.inputs), bound=task.bound)
        y = ops.resume("y", shape=(_FEW, *task.label_shape), bound=1.0)
        rows, uses, gradients = record_gradients(ops, task, weights, x, y)
        for use, gradient in zip(uses, gradients, strict=True):
            size = 1.0
            if use.inputs is not None and source(use.inputs) is not rows:
                size = ops.number(square_norm(ops, source(use.inputs).value), "bounding").bound
            found.append((use.times * size, prod(ops.shape(gradient)) // _FEW))

    Walker(task.spec.roles, protocol=task.spec.protocol.spelled, frac_bits=task.frac_bits).plan(
        program
    )
    return tuple(found)


def _refuse_meeting(task: TrainPlan) -> None:
    """Refuse a model in which rows of a batch meet: no bound per record would mean anything."""
    ops, weights = PlainStepOps(), mixing.scrambled(task.model.initial)
    shape = _TRIED, *task.model.inputs
    rows = (torch.arange(prod(shape)).double().square().sin() > 0).double().reshape(shape)
    found = mixing.find_mixing(
        lambda x: mixing.tell(task.model(ops, weights, x)), rows, records=_TRIED
    )
    if found:
        raise InputError(
            f"rows of a batch meet in this model ({found}): wanted one in which each has its own"
        )
