"""The walk of questions to a shared model: weights are checked and held, then rows are answered.

Weights are compared with their bound on shares, and rows can be clipped there. Both are sealed
whatever the protocol of the task: comparing under a permuted one would show all weights, or a
client's rows, to whoever computes comparisons.
"""

from collections.abc import Callable, Mapping
from functools import partial, reduce
from math import prod
from typing import Any, TypeVar

from torch import Tensor

from tacit.errors import RangeError
from tacit.inference.service.task import ServiceTask
from tacit.mpc import Plan, Share
from tacit.mpc.ops import ProtocolOps
from tacit.mpc.share import HEADROOM_BITS, words_of
from tacit.mpc.walker import Walker
from tacit.party import Session, merge
from tacit.result import Leak

V = TypeVar("V")
Weights = Mapping[str, Share]
"""Shares of all weights; empty for who holds none."""
_SPARE = 16  # bits: what has 46 or fewer is left as it is
_AT_ONCE = 1 << 20
"""A comparison takes a hundred bytes per weight, in memory and in a message of the dealer's."""


class SharedWalk:
    """A party's way through questions to a shared model; without a session, what they will send."""

    def __init__(
        self,
        task: ServiceTask,
        *,
        session: Session | None = None,
        first_run: int = 0,
        is_endless: bool = False,
    ) -> None:
        """Begin before the weights are checked; arguments are those of a `Walker`."""

        def walker(protocol: str) -> Walker:
            return Walker(
                task.spec.roles,
                protocol=protocol,
                frac_bits=task.spec.frac_bits,
                session=session,
                first_run=first_run,
                is_endless=is_endless,
            )

        self._task = task
        self.guard = walker("sealed")
        """Of what is compared: the weights, and rows where they are clipped."""
        self.walker = walker(task.spec.protocol.kind)
        """Of what is answered, and that weights are held for it."""

    @property
    def runs(self) -> tuple[tuple[Plan, int], ...]:
        """Return what was run, and how often."""
        return (*self.guard.runs, *self.walker.runs)

    def leaks(self) -> tuple[Leak, ...]:
        """Return what it shows to whom."""
        return merge((*self.guard.leaks(), *self.walker.leaks()))

    def plans_of(self, rows: int) -> tuple[Plan, ...]:
        """Return the plans of a batch of so many rows, or for 0 those of the start."""
        key = rows, ()
        walks = self.guard, self.walker
        return tuple(one.plans[key][0] for one in walks if key in one.plans)

    def check(self, weights: Weights, *, parties: tuple[str, ...]) -> None:
        """Make sure, on shares, that no weight is beyond the bound that everything is planned for.

        Guarantee: that of `sealed`; every party of the session learns one bit.
        Cost: once, 3 rounds and 4 per million weights; 25 bytes per weight each way, and 99 from
            the dealer.

        Raises:
            RangeError: a weight is too large; answers would be wrong. Seen up to 2^61 in words.
        """
        program = partial(_beyond, task=self._task, to=parties)
        plan = self.guard.plan(program, key=0)
        _, opened = self.guard.execute(plan, program, kept=weights)
        if any(bool(bit.any()) for bit in opened):
            raise RangeError(
                "a weight of the shared model is beyond the bound of "
                f"±{self._task.spec.weight_bound:g}, so answers would be wrong; raise model.bound "
                "to that of the training"
            )

    def ask(
        self,
        program: Callable[[Any], Tensor | None],
        weights: Weights,
        *,
        parties: tuple[str, ...],
        inputs: Mapping[str, Tensor] | None = None,
    ) -> Tensor | None:
        """Check the weights and run one program on them; return what was opened to me."""
        plan = self.walker.plan(program)
        self.check(weights, parties=parties)
        _, opened = self.walker.execute(plan, program, inputs=inputs, kept=weights)
        return opened[0] if opened else None

    def hold(self, weights: Weights) -> None:
        """Open the weights under masks, once for all batches."""
        self._step(0, self._task.cache_weights, weights)

    def answer(self, rows: int, weights: Weights, x: Share | None = None) -> Any:
        """Answer a batch, clipped if the service does that itself; returns my share."""
        if self._task.clips:
            program = partial(clip_rows, task=self._task, rows=rows)
            clipped, _ = self.guard.execute(
                self.guard.plan(program, key=rows), program, kept={} if x is None else {"x": x}
            )
            if x is not None:
                assert isinstance(clipped, Share)  # noqa: S101 - clipped numbers are numbers
                x = Share(clipped.words, x.spec)
        kept = weights if x is None else {**weights, "x": x}
        return self._step(rows, partial(self._task.answer, rows=rows), kept)

    def rehearse(self, *, first_run: int) -> None:
        """Plan batches as they will be once the weights are held, which is the run of this number.

        So everything is planned, and can be agreed upon, before anything is opened. A run of
        another number would leave other masks in the cache, and the first batch would stop.
        """
        planned = SharedWalk(self._task, first_run=first_run)
        planned.hold({})
        for size in self._task.sizes:
            planned.answer(size, {})
        self.walker.plans.update(planned.walker.plans)
        self.guard.plans.update(planned.guard.plans)

    def _step(self, rows: int, program: Callable[[Any], Any], kept: Weights) -> Any:
        share, _ = self.walker.execute(self.walker.plan(program, key=rows), program, kept=kept)
        return share


def _beyond(ops: ProtocolOps[V], *, task: ServiceTask, to: tuple[str, ...]) -> Tensor | None:
    """Open whether any weight is larger than it may be."""
    unit = 2.0**-task.spec.frac_bits
    largest = words_of(task.spec.weight_bound, task.spec.frac_bits) * unit
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


def clip_rows(ops: ProtocolOps[V], *, task: ServiceTask, rows: int) -> V:
    """Bring every feature between plus and minus the bound, whatever words a client has sent.

    Shifting up and truncating down leaves a word of at most 46 bits as it is, and makes any other
    one small: the difference of two shifted words and a borrow, whether or not that is right. A
    word of more bits becomes some word within the bound.
    """
    bound, frac_bits = task.spec.bound, task.spec.frac_bits
    x = ops.resume("x", shape=(rows, *task.model.inputs), bound=bound)
    spare = min(_SPARE, HEADROOM_BITS - 1 - words_of(bound, frac_bits).bit_length())
    x = ops.truncated(ops.apply(ops.make("scale", 1.0, spare), x))
    x = ops.restate(x, bound=2.0 ** (65 - spare - frac_bits))
    return ops.normalise_scale(ops.clamp(x, -bound, bound))
