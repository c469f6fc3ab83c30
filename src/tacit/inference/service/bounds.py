"""Bounds that hold: weights are compared with theirs on shares, and rows can be clipped there.

Both are sealed whatever the protocol of the task: comparing under a permuted one would show all
weights, or a client's rows, to whoever computes comparisons.
"""

from collections.abc import Mapping
from functools import partial, reduce
from math import prod
from typing import TypeVar

from torch import Tensor

from tacit.errors import RangeError
from tacit.inference.service.task import ServiceTask
from tacit.mpc import Plan, compute, find_protocol, make_plan, serve
from tacit.mpc.ops import ProtocolOps
from tacit.mpc.share import HEADROOM_BITS, words_of
from tacit.party import Session

V = TypeVar("V")
_SEALED = find_protocol("sealed")
_SPARE = 16  # bits: what has 46 or fewer is left as it is
_AT_ONCE = 1 << 20
"""A comparison takes a hundred bytes per weight, in memory and in a message of the dealer's."""


def check_weights(session: Session, task: ServiceTask, share: Mapping[str, Tensor] | None) -> Plan:
    """Make sure, on shares, that no weight is beyond the bound that everything is planned for.

    Args:
        session: my end of the job.
        task: what is answered.
        share: of the weights, if I compute.

    Guarantee: that of `sealed`; every party of the session learns one bit.
    Cost: once, 3 rounds and 4 per million weights; 25 bytes per weight each way, and 99 from the
        dealer.

    Returns:
        What was run.

    Raises:
        RangeError: a weight is too large; answers would be wrong. Seen up to 2^61 in words.
    """
    program = partial(_beyond, task=task, to=session.parties)
    plan = check_plan(task, session.parties)
    bit: Tensor | None
    if share is None:
        (bit,) = serve(session, plan, inputs={})
    else:
        bit = compute(session, plan, program, inputs={}, kept=task.share_of(share))
    if bit is None or bool(bit.any()):
        raise RangeError(
            f"a weight of the shared model is beyond the bound of ±{task.weight_bound:g}, so "
            "answers would be wrong; raise model.bound to that of the training"
        )
    return plan


def check_plan(task: ServiceTask, parties: tuple[str, ...]) -> Plan:
    """Plan the check of the weights, of which all parties of a session learn the outcome."""
    program = partial(_beyond, task=task, to=parties)
    return make_plan(program, _SEALED, task.roles, frac_bits=task.frac_bits)


def _beyond(ops: ProtocolOps[V], *, task: ServiceTask, to: tuple[str, ...]) -> Tensor | None:
    """Open whether any weight is larger than it may be."""
    unit = 2.0**-task.frac_bits
    largest = words_of(task.weight_bound, task.frac_bits) * unit
    shapes = {name: tuple(value.shape) for name, value in task.model.initial.items()}
    bound = unit * 2.0 ** (HEADROOM_BITS - 1)
    flat = [
        ops.reshape(ops.resume(name, shape=shape, bound=bound), (prod(shape),))
        for name, shape in shapes.items()
    ]
    weights = reduce(lambda one, two: ops.concatenate([one, two], dim=0), flat)
    count, counts = sum(map(prod, shapes.values())), []
    for start in range(0, count, _AT_ONCE):
        some = ops.take(weights, range(start, min(start + _AT_ONCE, count)), dim=0)
        sides = ops.concatenate([some, ops.scale(some, -1.0)], dim=0)
        counts.append(ops.sum(ops.indicate(ops.shift(sides, -largest - unit)), dim=0))
    some = ops.shift(reduce(ops.add, counts), -1.0)
    return ops.open(
        ops.is_positive(ops.reshape(some, (1,))),
        to=to,
        what="whether any weight is beyond its bound",
        why="larger weights would make answers wrong",
    )


def clip_plan(task: ServiceTask, rows: int) -> Plan:
    """Plan the clipping of a batch."""
    program = partial(clip_rows, task=task, rows=rows)
    return make_plan(program, _SEALED, task.roles, frac_bits=task.frac_bits)


def clip_rows(ops: ProtocolOps[V], *, task: ServiceTask, rows: int) -> V:
    """Bring every feature between plus and minus the bound, whatever words a client has sent.

    Shifting up and truncating down leaves a word of at most 46 bits as it is, and makes any other
    one small: the difference of two shifted words and a borrow, whether or not that is right. A
    word of more bits becomes some word within the bound.
    """
    bound, frac_bits = task.feature_bound, task.frac_bits
    x = ops.resume("x", shape=(rows, *task.model.inputs), bound=bound)
    spare = min(_SPARE, HEADROOM_BITS - 1 - words_of(bound, frac_bits).bit_length())
    x = ops.truncated(ops.apply(ops.make("scale", 1.0, spare), x))
    x = ops.restate(x, bound=2.0 ** (65 - spare - frac_bits))
    return ops.normalise_scale(ops.clamp(x, -bound, bound))
