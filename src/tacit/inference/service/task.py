"""What a prediction service computes, for whom, and what its clients may count on."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from tacit.errors import ConfigError, DataError
from tacit.files import open_arrays
from tacit.inference.spec import SIZES, InferSpec, ServeSpec
from tacit.mpc import Share, find_protocol
from tacit.mpc.ops import ProtocolOps
from tacit.mpc.share import Spec
from tacit.mpc.walker import Walker
from tacit.nn import Model, make_model
from tacit.nn.capping import with_room
from tacit.nn.code import build_network

V = TypeVar("V")


@dataclass(frozen=True, kw_only=True, eq=False)
class ServiceTask:
    """A network of which two parties hold a share each, as all of them and its clients see it.

    Attributes:
        spec: of a service, or of one question.
        name: of the job.
        model: the network that the spec names, built.
        clients: who may ask, in the order by which the servers number them.
    """

    spec: InferSpec | ServeSpec
    name: str
    model: Model
    clients: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.clients or len(set(self.clients)) != len(self.clients):
            raise ConfigError(
                f"wanted clients of different names, got {', '.join(self.clients) or 'none'}"
            )
        if not self.sizes or self.sizes[0] < 1 or list(self.sizes) != sorted(set(self.sizes)):
            raise ConfigError(f"wanted sizes of batches in ascending order, got {self.sizes}")

    @classmethod
    def of(cls, spec: InferSpec | ServeSpec, *, name: str, clients: Iterable[str]) -> "ServiceTask":
        """Build the network of a spec, with a cap where it does not fit the ring without."""
        named = spec.model
        module = build_network(named.layers, named.code, named.inputs, seed=0)
        model = make_model(module, named.inputs, cap=named.cap)
        return cls(spec=spec, name=name, model=model, clients=tuple(clients)).fitted()

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
        spec, rows = self.spec, self.sizes[0]

        def attempt(cap: float | None) -> ServiceTask:
            task = replace(self, model=self.model.capped(cap))
            walker = Walker(spec.roles, protocol=spec.protocol.kind, frac_bits=spec.frac_bits)
            walker.plan(partial(task.answer, rows=rows))
            return task

        return with_room(attempt, cap=self.model.imported.cap, keyword="model.cap")

    def cache_weights(self, ops: ProtocolOps[V]) -> dict[str, V]:
        """Take up the weights, open under masks from the first run of the service on."""
        weights = {
            name: ops.resume(name, shape=tuple(value.shape), bound=self.spec.weight_bound)
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
        facts = (
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
        )
        return hashlib.sha256(repr(facts).encode()).digest()

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
            spec = Spec.of(shape=shape, frac_bits=self.spec.frac_bits, bound=self.spec.weight_bound)
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
