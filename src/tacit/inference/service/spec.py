"""What is said of a service: answers that two servers keep up for many clients.

What can weaken privacy is in its tables.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, Self

from tacit.data.prepare import PREPARED, Prepare
from tacit.inference.forest import KEY_BOUND
from tacit.inference.predict import Reveal
from tacit.inference.spec import InferModel, InferRing
from tacit.mpc import Roles, find_protocol
from tacit.mpc.registry import ProtocolName
from tacit.spec import (
    LOCAL,
    Check,
    Party,
    Positive,
    Problem,
    RefusedError,
    TwoParties,
    refuse,
)
from tacit.transport import parse_address

SIZES = (1, 8, 64, 512)
"""Batches are filled up to one of these numbers of rows, so that few plans serve all."""


@dataclass(frozen=True, kw_only=True)
class ServiceTable:
    """[service]: the addresses for clients, what rows look like, and what is revealed.

    Attributes:
        doors: by server: host:port where it takes clients.
        reveal: privacy: what a client learns of each of its rows: the class, or every score; of a
            linear model the score is the probability of class 1. A forest tells classes alone.
        columns: what the columns are called, in the order of the model; public. Rows whose columns
            have names are put into this order, and what is not among them stays with the client.
        prepare: what clients do to the values of columns, by their names, as in the training;
            public.
        bound: the promised size of a feature after ``prepare``; public. Clients compare their rows
            with it. Not for a forest, which compares numbers of any size.
        sizes: batches are filled up with empty rows to one of these sizes, so that few plans serve
            all.
        clip: privacy: the servers clip every feature to ``bound`` on shares as well, for clients
            that do not check: five more rounds for each batch.
    """

    doors: Mapping[str, Annotated[str, Check(parse_address)]] = field(metadata=LOCAL)
    reveal: Literal["class", "score"] = "class"
    columns: tuple[str, ...] = ()
    prepare: Prepare = field(default_factory=dict, metadata=PREPARED)
    bound: Positive | None = None
    sizes: tuple[int, ...] = SIZES
    clip: bool = False

    def __post_init__(self) -> None:
        if twice := {name for name in self.columns if self.columns.count(name) > 1}:
            refuse("columns", f"wanted every name once, got {sorted(twice)} more often")


@dataclass(frozen=True, kw_only=True)
class ServeProtection:
    """[protocol]: how secrets are protected, by whom.

    Attributes:
        kind: privacy: "sealed" or "permuted3".
        dealer: hands out randomness; under "permuted3" also the helper. Must not compute.
        compute: the two servers; they must not work together.
    """

    kind: ProtocolName
    dealer: Party
    compute: TwoParties

    def __post_init__(self) -> None:
        if "second" in find_protocol(self.kind).shows_to:
            text = (
                f"wanted sealed or permuted3, got {self.kind!r}: under it the second server would "
                "see values that follow from clients' rows, and undo their order if malicious"
            )
            refuse("kind", text)


@dataclass(frozen=True, kw_only=True)
class ServeSpec:
    """Answer clients from a model of which two servers hold shares; one of them may own it."""

    model: InferModel
    service: ServiceTable
    protocol: ServeProtection
    ring: InferRing = field(default_factory=InferRing)

    def __post_init__(self) -> None:
        if problems := tuple(_problems(self)):
            raise RefusedError(*problems)

    @property
    def roles(self) -> Roles:
        """Return the servers and the dealer."""
        first, second = self.protocol.compute
        return Roles(first, second, self.protocol.dealer)

    @property
    def frac_bits(self) -> int:
        """Return how many bits of a number stand after the point."""
        return 0 if self.model.is_forest else self.ring.frac_bits or self.model.usual_frac_bits

    @property
    def reveal(self) -> Reveal:
        """Return what a client is told of a row."""
        return self.service.reveal

    @property
    def bound(self) -> float:
        """Return how large a feature may be."""
        return KEY_BOUND if self.model.is_forest else self.service.bound or 1.0

    @property
    def weight_bound(self) -> float:
        """Return how large a weight may be."""
        return self.model.weight_bound

    @property
    def has_told_sizes(self) -> bool:
        """Tell whether the owner tells sizes of its model, as a forest's and a linear model's do.

        Those of a network follow from its layers.
        """
        return self.model.is_forest or self.model.is_linear

    @property
    def prepare(self) -> Prepare:
        """Return what is done to the values of columns."""
        return self.service.prepare

    def settled(self) -> Self:
        """Return the job with what follows from other settings written out."""
        if self.model.is_forest:
            return self
        return replace(
            self,
            model=replace(self.model, bound=self.weight_bound),
            service=replace(self.service, bound=self.bound),
            ring=InferRing(frac_bits=self.frac_bits),
        )

    def role(self, party: str) -> str:
        """Say in words what a party does."""
        if party == self.model.owner:
            return "server, model owner"
        if party in self.protocol.compute:
            return "server"
        is_helper = find_protocol(self.protocol.kind).helper_is_online
        return "dealer, helper" if is_helper else "dealer"


def _problems(spec: ServeSpec) -> Iterator[Problem]:
    """Say what does not fit together."""
    servers, doors, model = spec.protocol.compute, spec.service.doors, spec.model
    text = "missing; wanted host:port for its clients"
    yield from (Problem(f"service.doors.{name}", text) for name in servers if name not in doors)
    text = "is not one of the servers of protocol.compute"
    yield from (Problem(f"service.doors.{name}", text) for name in set(doors) - set(servers))
    if model.owner is None:
        if model.is_forest or model.is_linear:
            what = "a forest" if model.is_forest else "a linear model"
            text = f"missing; wanted the server that owns {what}, or the layers of a shared network"
            yield Problem("model.owner", text)
        elif model.file is not None:
            yield Problem("model.file", "is of a model with an owner; wanted model.shares or owner")
    elif model.owner not in servers:
        text = f"wanted one of the servers of protocol.compute, {' or '.join(servers)}"
        yield Problem("model.owner", f"{text}, got {model.owner!r}")
    elif model.shares:
        yield Problem("model.shares", "are of a network without an owner; leave owner or them out")
    if not model.is_forest:
        return
    if spec.service.reveal != "class":
        yield Problem("service.reveal", f"of a forest wanted 'class', got {spec.service.reveal!r}")
    if spec.service.bound:
        text = "a forest compares numbers of any size with its thresholds; leave it out"
        yield Problem("service.bound", text)
    if spec.ring.frac_bits is not None:
        yield Problem("ring.frac_bits", "a forest computes with whole numbers; leave it out")
