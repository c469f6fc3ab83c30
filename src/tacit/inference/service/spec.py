"""What is said of a service: answers that two servers keep up for many clients.

What can weaken privacy is in its tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import MinLen

from tacit.inference.predict import Reveal
from tacit.mpc import Roles, find_protocol
from tacit.mpc.registry import ProtocolName
from tacit.nn.code import check_network
from tacit.ring import FixedPoint
from tacit.spec import (
    LOCAL,
    Check,
    Count,
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
class ServeModel:
    """[model]: the network that was trained, and where each server keeps its share.

    Attributes:
        layers: the network in words, as in its training; public; either this or ``code``.
        code: file.py:function, which makes a torch module; it is run, and its weights do not count.
        inputs: the shape of a row that the layers take.
        shares: the file with each server's share of the model, as a training left it; a server
            needs its own only.
        bound: ``model.bound`` of the training; less is refused, and weights are compared with it on
            shares.
        cap: where hidden values saturate; if not given nowhere, or where bounds do not fit at the
            largest of 4096, 1024, 256 and 64 that does.
    """

    layers: tuple[str, ...] = ()
    code: Path | None = field(default=None, metadata=LOCAL)
    inputs: Annotated[tuple[Count, ...], MinLen(1)]
    shares: Mapping[str, Path] = field(default_factory=dict, metadata=LOCAL)
    bound: Positive = 4.0
    cap: float | None = None

    def __post_init__(self) -> None:
        if (wrong := check_network(self.layers, self.code)) is not None:
            refuse("layers", wrong)


@dataclass(frozen=True, kw_only=True)
class ServiceTable:
    """[service]: the addresses for clients, what rows look like, and what is revealed.

    Attributes:
        doors: by server: host:port where it takes clients.
        reveal: privacy: what a client learns of each of its rows: the class, or every score.
        bound: the promised size of a feature after dividing by ``scale``; public. Clients compare
            their rows with it.
        scale: features are divided by this; public.
        sizes: batches are filled up with empty rows to one of these sizes, so that few plans serve
            all.
        clip: privacy: the servers clip every feature to ``bound`` on shares as well, for clients
            that do not check: five more rounds for each batch.
    """

    doors: Mapping[str, Annotated[str, Check(parse_address)]] = field(metadata=LOCAL)
    reveal: Literal["class", "score"] = "class"
    bound: Positive = 1.0
    scale: Positive = 1.0
    sizes: tuple[int, ...] = SIZES
    clip: bool = False


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
    """Answer clients from shares of a model that two servers hold, one each."""

    model: ServeModel
    service: ServiceTable
    protocol: ServeProtection
    ring: FixedPoint = field(default_factory=FixedPoint)

    def __post_init__(self) -> None:
        servers, doors = self.protocol.compute, self.service.doors
        text = "missing; wanted host:port for its clients"
        problems = [Problem(f"service.doors.{n}", text) for n in servers if n not in doors]
        text = "is not one of the servers of protocol.compute"
        problems += [Problem(f"service.doors.{n}", text) for n in set(doors) - set(servers)]
        if problems:
            raise RefusedError(*problems)

    @property
    def roles(self) -> Roles:
        """Return the servers and the dealer."""
        first, second = self.protocol.compute
        return Roles(first, second, self.protocol.dealer)

    @property
    def frac_bits(self) -> int:
        """Return how many bits of a number stand after the point."""
        return self.ring.frac_bits

    @property
    def reveal(self) -> Reveal:
        """Return what a client is told of a row."""
        return self.service.reveal

    @property
    def bound(self) -> float:
        """Return how large a feature may be."""
        return self.service.bound

    @property
    def weight_bound(self) -> float:
        """Return how large a weight may be."""
        return self.model.bound

    def role(self, party: str) -> str:
        """Say in words what a party does."""
        if party in self.protocol.compute:
            return "server"
        is_helper = find_protocol(self.protocol.kind).helper_is_online
        return "dealer, helper" if is_helper else "dealer"
