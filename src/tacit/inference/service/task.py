"""What a prediction service computes, for whom, and a party's walk through its questions.

Weights are entered by the server that owns them, or checked if nobody does; they are held, then
rows are answered. Weights are compared with their bound on
shares, and rows can be clipped there. Both are sealed whatever the protocol of the task: comparing
under a permuted one would show all weights, or a client's rows, to whoever computes comparisons.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from math import ceil, log2, prod
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from tacit.data.prepare import state_prepare
from tacit.errors import ConfigError, DataError, RangeError
from tacit.files import open_arrays
from tacit.inference.service.sized import SizedModel, Told, make_sized
from tacit.inference.service.spec import SIZES, ServeSpec
from tacit.inference.spec import InferSpec
from tacit.mpc import Plan, Share, find_protocol
from tacit.mpc.ops import ProtocolOps
from tacit.mpc.share import HEADROOM_BITS, Spec, words_of
from tacit.mpc.walker import Walker
from tacit.nn import Model, make_model
from tacit.nn.running import with_room
from tacit.party import Session, merge
from tacit.result import Leak

V = TypeVar("V")


@dataclass(frozen=True, kw_only=True, eq=False)
class ServiceTask:
    """A model of which two parties hold a share each, as all of them and its clients see it.

    Attributes:
        spec: of a service, or of one question.
        name: of the job.
        model: the model that the spec names, built.
        clients: who may ask, in the order by which the servers number them.
        told: what its owner tells of its sizes, where the spec does not say them.
    """

    spec: InferSpec | ServeSpec
    name: str
    model: Model | SizedModel
    clients: tuple[str, ...]
    told: Told = ()

    def __post_init__(self) -> None:
        if not self.clients or len(set(self.clients)) != len(self.clients):
            raise ConfigError(
                f"wanted clients of different names, got {', '.join(self.clients) or 'none'}"
            )
        if not self.sizes or self.sizes[0] < 1 or list(self.sizes) != sorted(set(self.sizes)):
            raise ConfigError(f"wanted sizes of batches in ascending order, got {self.sizes}")

    @classmethod
    def of(
        cls, spec: InferSpec | ServeSpec, *, name: str, clients: Iterable[str], told: Told = ()
    ) -> "ServiceTask":
        """Build the model of a spec, a network with a cap where it does not fit the ring without.

        Raises:
            ConfigError: bounds leave no room for the model.
        """
        named = spec.model
        model: Model | SizedModel
        if isinstance(spec, ServeSpec) and spec.has_told_sizes:
            model = make_sized(spec, told)
        else:
            module = named.module()
            model = make_model(module, named.inputs, cap=named.cap)
        return cls(spec=spec, name=name, model=model, clients=tuple(clients), told=told).fitted()

    @property
    def owner(self) -> str | None:
        """Return the server that brings the weights; none where both hold shares from before."""
        return self.spec.model.owner

    @property
    def bounds(self) -> Mapping[str, float]:
        """Return how large each weight may be."""
        if isinstance(self.model, SizedModel):
            return self.model.bounds
        return dict.fromkeys(self.model.initial, self.spec.weight_bound)

    def prepare(self, rows: Tensor) -> Tensor:
        """Bring a client's rows to the numbers that are shared.

        Raises:
            DataError: they are of another shape, or miss values that the model wants.
        """
        if isinstance(self.model, SizedModel) and self.model.forest is not None:
            return self.model.forest.prepare(rows)
        inputs = self.model.inputs
        if rows.ndim != 1 + len(inputs) or tuple(rows.shape[1:]) != inputs or not len(rows):
            raise DataError(f"wanted rows of shape {inputs}, got {tuple(rows.shape)}")
        return rows

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return to how many rows a batch may be filled up, ascending."""
        return self.spec.service.sizes if isinstance(self.spec, ServeSpec) else SIZES

    @property
    def clips(self) -> bool:
        """Tell whether the servers clip features on shares, for clients that might not check."""
        return isinstance(self.spec, ServeSpec) and self.spec.service.clip

    def refuse_view(self, client: str | None = None) -> None:
        """Refuse a protocol under which a party that computes would see another's rows.

        Args:
            client: whose rows they are, if it takes part in the session itself.

        Raises:
            ConfigError: the second server would see what follows from the rows of others.
        """
        if find_protocol(self.spec.protocol.kind).is_checked:
            raise ConfigError(
                "a service keeps shares of its model and takes shares of rows, and 'checked' has "
                "no tags for either; use protocol 'sealed'"
            )
        kind, second = self.spec.protocol.kind, self.spec.roles.second
        if "second" in find_protocol(kind).shows_to and client != second:
            raise ConfigError(
                f"under {kind} the second computing party, {second!r}, sees "
                "values that follow from the rows, and undoes their order if malicious; that must "
                "be the owner of the rows, which is no server: use sealed or permuted3"
            )

    @property
    def most_rows(self) -> int:
        """Return the largest number of rows of one question."""
        return self.sizes[-1]

    @property
    def width(self) -> int:
        """Return how many numbers answer one row."""
        return 1 if self.spec.reveal == "class" else self.model.outputs

    def padded(self, rows: int) -> int:
        """Return to how many rows a batch is filled up."""
        return next(size for size in self.sizes if size >= rows)

    def fitted(self) -> "ServiceTask":
        """Return the task with a cap on hidden values, if they do not fit the ring without."""
        spec, rows, model = self.spec, self.sizes[0], self.model

        def planned(task: ServiceTask) -> ServiceTask:
            walker = Walker(spec.roles, protocol=spec.protocol.kind, frac_bits=spec.frac_bits)
            walker.plan(partial(task.answer, rows=rows))
            return task

        if isinstance(model, Model):
            return with_room(
                lambda cap: planned(replace(self, model=model.capped(cap))),
                cap=model.imported.cap,
                keyword="model.cap",
            )
        try:
            return planned(self)
        except RangeError as error:
            text = f"service.bound, model.bound and ring.frac_bits: {error}"
            raise ConfigError(text) from error

    def cache_weights(self, ops: ProtocolOps[V]) -> dict[str, V]:
        """Take up the weights, open under masks from the first run of the service on."""
        weights = {
            name: ops.resume(name, shape=tuple(value.shape), bound=self.bounds[name])
            for name, value in self.model.initial.items()
        }
        ops.cache_openings(*weights.values())
        return weights

    def answer(self, ops: ProtocolOps[V], *, rows: int) -> V:
        """Answer a batch; the result stays shared."""
        # The weights are taken up first, as they are in the run that holds them.
        weights = self.cache_weights(ops)
        x = ops.resume("x", shape=(rows, *self.model.inputs), bound=self.spec.bound)
        return self._reply(ops, weights, x)

    def reply(self, ops: ProtocolOps[V], x: V) -> V:
        """Answer rows that are there already; the result stays shared."""
        return self._reply(ops, self.cache_weights(ops), x)

    def _reply(self, ops: ProtocolOps[V], weights: Mapping[str, V], x: V) -> V:
        scores = ops.normalise_scale(self.model(ops, weights, x))
        if self.spec.reveal == "score":
            return scores
        if self.model.outputs == 1:
            return ops.normalise_scale(ops.indicate(scores))
        return ops.reshape(ops.normalise_scale(ops.argmax(scores, dim=-1)), (-1, 1))

    def digest(self) -> bytes:
        """Hash what a client must know to ask and to read the answer."""
        facts: tuple[object, ...] = (
            self.name,
            self.spec.protocol.kind,
            self.spec.roles,
            self.model.inputs,
            self.model.outputs,
            self.spec.reveal,
            self.spec.frac_bits,
            self.spec.bound,
            self.sizes,
            self.clips,
            self.told,
        )
        if isinstance(self.spec, ServeSpec):  # in other units or columns answers would be wrong
            prepared = sorted(state_prepare(self.spec.prepare).items())
            facts = *facts, prepared, self.spec.service.columns
        return hashlib.sha256(repr(facts).encode()).digest()

    def weights_of(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the weights of a model that I own, which are those of this task.

        Raises:
            DataError: they are of another model.
            RangeError: one is beyond the bound.
        """
        found = {}
        for name, value in self.model.initial.items():
            one = values.get(name)
            if one is None or one.shape != value.shape:
                came = "none" if one is None else tuple(one.shape)
                raise DataError(f"wanted {name!r} of shape {tuple(value.shape)}, got {came}")
            if (largest := float(one.abs().max())) > self.bounds[name]:
                enough = 2.0 ** ceil(log2(largest))  # to its owner, and no more digits than needed
                raise RangeError(
                    f"{name!r} holds a weight beyond ±{self.bounds[name]:g}, as the job bounds "
                    f"them: set model.bound to {enough:g}, which everyone learns"
                )
            found[name] = one.double()
        return found

    def share_of(self, words: Mapping[str, Tensor]) -> dict[str, Share]:
        """Give shares of weights their public facts.

        Raises:
            DataError: they are not those of this model.
        """
        found = {}
        for name, value in self.model.initial.items():
            share = words.get(name)
            if share is None or share.shape != value.shape or share.dtype != torch.int64:
                came = "none" if share is None else f"{share.dtype} {tuple(share.shape)}"
                raise DataError(
                    f"wanted a share of {name!r} of shape {tuple(value.shape)}, got {came}; the "
                    "layers of the job must be those that were trained"
                )
            shape = tuple(value.shape)
            spec = Spec.of(shape=shape, frac_bits=self.spec.frac_bits, bound=self.bounds[name])
            found[name] = Share(share, spec)
        return found


def load_share(path: Path, *, frac_bits: int, bound: float) -> dict[str, Tensor]:
    """Read one party's share of a model, as a training has left it.

    Args:
        path: the file.
        frac_bits: the precision that the job states.
        bound: the largest size of a weight that the job states.

    Raises:
        DataError: it cannot be read, or has another precision or a larger bound.
    """
    try:
        with open_arrays(path) as arrays:
            words = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read a share of a model from {path}: {error}") from error
    precision = words.pop("frac_bits", None)
    if precision is None or int(precision) != frac_bits:
        found = "none" if precision is None else int(precision)
        raise DataError(
            f"{path} was written with {found} fraction bits, the job says {frac_bits}; set "
            "ring.frac_bits to that of the training"
        )
    trained = words.pop("bound", None)
    if trained is not None and float(trained) > bound:
        raise DataError(
            f"{path} was trained with weights of up to ±{float(trained):g}, the job says "
            f"±{bound:g}; set model.bound to that of the training"
        )
    return words


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
        """Begin before the weights are entered or checked; arguments are those of a `Walker`."""

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

    def begin(self, held: Mapping[str, Any], *, parties: tuple[str, ...]) -> Weights:
        """Share the weights of the server that owns them, or check those that both hold.

        Args:
            held: the weights if I own them, else my shares; nothing for who has neither.
            parties: all of the session.

        Returns:
            My share of every weight.

        Guarantee: of weights that a server owns, the other one draws its share, which is uniform,
            and the dealer gets nothing.
        Cost: 0 rounds, 0 bytes where they have an owner, and else that of `check`.

        Raises:
            RangeError: a weight is beyond its bound.
        """
        if self._task.owner is None:
            self.check(held, parties=parties)
            return held
        program = partial(_enter, task=self._task)
        found, _ = self.guard.execute(self.guard.plan(program, key=0), program, inputs=held)
        return found or {}

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


def _enter(ops: ProtocolOps[V], *, task: ServiceTask) -> dict[str, V]:
    """Bring in the weights of the server that owns them."""
    owner = task.owner or ""  # the guard enters nothing where there is none
    return {
        name: ops.input(name, owner=owner, shape=tuple(value.shape), bound=task.bounds[name])
        for name, value in task.model.initial.items()
    }


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
