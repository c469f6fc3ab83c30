"""What a step goes by: losses, their gradients, and those of single records, clipped and hidden.

Losses are computed on shares, or by who holds the text. Then both ends of a language model stay
with the owners of texts: a public table of embeddings and a public head, which are known to
everyone and do not learn. An owner looks its own ids up, so that no comparison with the vocabulary
is computed on shares; the last hidden states of its own rows are opened to it, and nobody else, and
it computes loss and gradient with the head and its labels, which nobody else ever has, not even in
shares. What it learns is what its own rows have become under the weights, in every step: the ledger
says so.

With privacy every record is clipped before they are summed, on shares and without a gradient per
record, by ghost norms (Goodfellow 2015; Lee and Kifer 2021; Li et al. 2022): the gradient of a
dense layer for one record is the outer product of its inputs a and of the gradient g at its
outputs, so that its norm is ‖a‖·‖g‖ and it need not be made. Where weights meet a record several
times, Cauchy and Schwarz bound the sum: a record's gradient is no longer than √(Σ times·‖a‖²·‖g‖²)
over the places where weights meet its values (`tacit.nn.records`). Its owner knows the norm of the
row itself, and shares it; all others are squared on shares. The factor is min(1, clip / norm) from
below: everything before the root is rounded up, and the root is never above the true one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from math import ceil, floor, frexp, log2, prod
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tacit.dp import mixing
from tacit.errors import InputError
from tacit.mpc.ops import ProtocolOps
from tacit.mpc.share import HEADROOM_BITS
from tacit.mpc.walker import Walker
from tacit.nn.gradient import Node, pull_back
from tacit.nn.records import RecordOps, Use
from tacit.training.noise import KEPT, OVERFLOW, rate_of
from tacit.training.ops import PlainStepOps, StepOps
from tacit.training.plan import TrainPlan
from tacit.training.privacy import Measures, PrivacyPlan, plan_privacy

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


LARGEST_RATIO = 2.0**20
"""A record whose gradient is longer than 2^10 clips counts for nothing: so far reaches the root."""
ROOT_RANGE = 2.0**16
"""So far reaches the inverse root; a larger ratio is divided by 16, and what comes out by 4."""


def shorten_rows(x: Tensor, *, frac_bits: int) -> Tensor:
    """Bring rows to a norm of at most 1, digits dropped towards zero; shorter ones stay.

    Its owner does this with its own rows.

    Guarantee: the words that are shared have a norm of at most 2^frac_bits, in whole numbers.
    """
    flat = x.double().flatten(1)
    norms = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
    # The margin is for the norm and the quotient, which are floats.
    short = flat / norms.clamp(min=1.0) * (1 - 2.0**-40)
    return (torch.trunc(short * 2.0**frac_bits) * 2.0**-frac_bits).reshape(x.shape)


def square_norms(x: Tensor, *, frac_bits: int) -> Tensor:
    """Give ‖x‖² of rows as they are shared, rounded up: (rows, 1)."""
    squares = x.double().flatten(1).square().sum(dim=1, keepdim=True)
    # The margin is for a sum of floats, each exact.
    return (torch.ceil(squares * (1 + 2.0**-40) * 2.0**frac_bits) * 2.0**-frac_bits).clamp(max=1.0)


def clip_factors(
    ops: StepOps[V],
    uses: Sequence[Use[V]],
    gradients: Sequence[V],
    *,
    clip: float,
    known: Mapping[int, V],
) -> V:
    """Give numbers of at most min(1, clip / norm), one for every record: (records, 1).

    Range: all norms; of one beyond 2^10 clips the factor is 0. Clips from 2^-6 to 2.
    Guarantee: never above, as everything before the root is rounded up: by two units in the last
    place where less than one can have been lost. Error: that of `rsqrt_below`.

    Args:
        ops: the interpreter.
        uses: where weights meet records.
        gradients: of the outputs of every use.
        clip: the norm.
        known: squared norms that owners shared, by the number of the node that they are of.
    """
    squares: dict[int, V] = dict(known)
    parts = []
    for use, gradient in zip(uses, gradients, strict=True):
        part = square_norm(ops, gradient)
        if use.inputs is not None:
            node = source(use.inputs)
            if node.number not in squares:
                squares[node.number] = square_norm(ops, node.value)
            part = _up(ops, ops.mul(part, squares[node.number]))
        # A whole number times, which loses no digit.
        parts.append(ops.scale(part, float(use.times)) if use.times > 1 else part)
    # (norm / clip)²: where it is at most 1 the factor is 1, and the root is taken of 1.
    ratio = _up(ops, ops.scale(reduce(ops.add, parts), _rounded_up(clip**-2, ops)))
    is_private = isinstance(ops, ProtocolOps)  # floats have no public bounds
    fits = None
    if is_private and ops.reaches(ratio, bound=LARGEST_RATIO):
        fits = ops.indicate(ops.shift(ops.scale(ratio, -1.0), LARGEST_RATIO))
        ratio = ops.restate(ops.normalise_scale(ops.gate(fits, ratio)), bound=LARGEST_RATIO)
    is_long = is_private and ops.reaches(ratio, bound=ROOT_RANGE)
    above = ops.relu(ops.shift(ratio, -1.0))
    ratio = ops.shift(above, 1.0)
    if is_long:
        ratio = _up(ops, ops.scale(ratio, 2.0**-4))
    factor = ops.normalise_scale(ops.rsqrt_below(ratio))
    if is_long:
        factor = ops.normalise_scale(ops.scale(factor, 2.0**-2))
        factor = ops.shift(factor, -_unit(ops))
    factor = ops.restate(factor, bound=1.0)
    return factor if fits is None else ops.normalise_scale(ops.gate(fits, factor))


def square_norm(ops: StepOps[V], x: V) -> V:
    """Give ‖x‖² of every record, rounded up: (records, 1)."""
    rows, flat = ops.shape(x)[0], prod(ops.shape(x)[1:])
    squares = ops.square(ops.reshape(x, (rows, flat)))
    lost = 1
    if isinstance(ops, ProtocolOps):
        private: ProtocolOps[V] = ops
        if private.number(squares, "summing").largest * flat >= 1 << HEADROOM_BITS:
            squares, lost = private.normalise_scale(squares), flat
    # A truncation loses less than a unit: one of the sum, or one of each square and one of the sum.
    total = ops.normalise_scale(ops.sum(squares, dim=1))
    return ops.reshape(ops.shift(total, (lost + 1) * _unit(ops)), (rows, 1))


def scale_records(ops: StepOps[V], gradient: V, factors: V) -> V:
    """Multiply every record's part by its factor; off by less than a unit in each element."""
    rows = ops.shape(gradient)[0]
    wide = ops.reshape(factors, (rows, *(1,) * (len(ops.shape(gradient)) - 1)))
    return ops.normalise_scale(ops.mul(gradient, wide))


def source(node: Node[V]) -> Node[V]:
    """Return what a node was before it was reshaped: its norm per record is the same."""
    while node.is_view:
        node = node.parents[0]
    return node


def _up(ops: StepOps[V], value: V) -> V:
    """Rescale, and add what can have been lost."""
    return ops.shift(ops.normalise_scale(value), 2 * _unit(ops))


def _unit(ops: StepOps[V]) -> float:
    return 2.0**-ops.frac_bits if isinstance(ops, ProtocolOps) else 0.0


def _rounded_up(factor: float, ops: StepOps[V]) -> float:
    """Return a factor that `scale` takes as it is, not below the one given."""
    if not isinstance(ops, ProtocolOps) or frexp(factor)[0] == 0.5:
        return factor
    unit: float = 2.0 ** (floor(log2(factor)) - ops.frac_bits)
    return ceil(factor / unit) * unit
