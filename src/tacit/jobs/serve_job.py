"""The job file of kind "serve": whose shares of a model, which clients, and what they are told."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal, Self

from annotated_types import MinLen

from tacit.crypto import Identity, load_identity, load_pinned, make_identity, parse_name
from tacit.errors import ConfigError, IdentityError
from tacit.inference.service import SIZES, ServiceTask
from tacit.jobs.config import (
    Address,
    Fingerprint,
    Job,
    PartyEntry,
    check_parties,
    check_references,
    parse_address,
)
from tacit.mpc import Roles, find_protocol
from tacit.mpc.registry import ProtocolName
from tacit.nn import make_model
from tacit.nn.code import build_network, check_network
from tacit.ring import FixedPoint
from tacit.spec import LOCAL, Count, Positive, Problem, RefusedError, TwoParties, refuse
from tacit.transport import Patience, Peer

_WEEK_S = 7 * 86400.0
"""A service may be idle for this long."""


@dataclass(frozen=True, kw_only=True)
class ClientEntry:
    """[clients.NAME]: the key by which a client is known."""

    key: Fingerprint | None = None


@dataclass(frozen=True, kw_only=True)
class ServeModel:
    """[model]: the network that was trained, and where each server keeps its share.

    ``layers`` in words, or ``code`` as file.py:function, which makes a torch module and is run.
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
    """[service]: the addresses for clients, what rows look like, and what is revealed."""

    doors: Mapping[str, Address] = field(metadata=LOCAL)
    reveal: Literal["class", "score"] = "class"
    bound: Positive = 1.0
    scale: Positive = 1.0
    sizes: tuple[int, ...] = SIZES
    clip: bool = False


@dataclass(frozen=True, kw_only=True)
class ServeProtection:
    """[protocol]: how secrets are protected, by whom."""

    kind: ProtocolName
    dealer: str
    compute: TwoParties

    def __post_init__(self) -> None:
        if find_protocol(self.kind).second_sees:
            text = (
                f"wanted sealed or permuted3, got {self.kind!r}: under it the second server would "
                "see values that follow from clients' rows, and undo their order if malicious"
            )
            refuse("kind", text)


@dataclass(frozen=True, kw_only=True)
class ServeJob(Job):
    """A whole job file of kind "serve"."""

    clients: Mapping[str, ClientEntry]
    model: ServeModel
    service: ServiceTable
    protocol: ServeProtection
    ring: FixedPoint = field(default_factory=FixedPoint)

    def __post_init__(self) -> None:
        problems = [
            *check_parties(self.parties),
            *check_references(self.parties, _named(self)),
            *_check_clients(self),
            *_check_keys(self),
        ]
        if problems:
            raise RefusedError(*problems)

    @property
    def roles(self) -> Roles:
        """Return the servers and the dealer."""
        first, second = self.protocol.compute
        return Roles(first, second, self.protocol.dealer)

    @property
    def patience(self) -> Patience:
        """Return how long servers wait: for the next question, a week."""
        return replace(self.network, stall_s=max(self.network.stall_s, _WEEK_S))

    def role(self, party: str) -> str:
        """Say in words what a party does."""
        if party in self.protocol.compute:
            return "server"
        is_helper = find_protocol(self.protocol.kind).helper_is_online
        return "dealer, helper" if is_helper else "dealer"

    def task(self) -> ServiceTask:
        """Return what is served."""
        inputs = self.model.inputs
        module = build_network(self.model.layers, self.model.code, inputs, seed=0)
        return ServiceTask(
            name=self.job.name,
            roles=self.roles,
            protocol=self.protocol.kind,
            model=make_model(module, inputs, cap=self.model.cap),
            clients=tuple(sorted(self.clients)),
            reveal=self.service.reveal,
            frac_bits=self.ring.frac_bits,
            feature_bound=self.service.bound,
            weight_bound=self.model.bound,
            sizes=self.service.sizes,
            clip=self.service.clip,
        ).fitted()

    def address(self, server: str) -> tuple[str, int]:
        """Return the address for a server's clients."""
        return parse_address(self.service.doors[server])

    def client_peers(self) -> dict[str, Peer]:
        """Return the clients, as a server knows them."""
        return {name: Peer(None, entry.key or "") for name, entry in self.clients.items()}

    def server_peers(self) -> dict[str, Peer]:
        """Return the servers, as a client dials them."""
        return {
            name: Peer(self.address(name), self.parties[name].key or "")
            for name in self.protocol.compute
        }

    def with_keys(self, keys: Path, *, may_make: bool) -> Self:
        """Fill in the keys that the file leaves out, from a folder that holds all of them.

        So a service can be tried on one machine without pasting fingerprints.

        Raises:
            ConfigError: the file has no key for someone, and the folder has none either.
        """
        missing_party = {name for name, entry in self.parties.items() if entry.key is None}
        missing = missing_party | {n for n, entry in self.clients.items() if entry.key is None}
        found = {name: _identity(keys, name, may_make).fingerprint for name in sorted(missing)}
        parties = {
            name: replace(entry, key=found[name]) if name in missing_party else entry
            for name, entry in self.parties.items()
        }
        clients = {
            name: ClientEntry(key=entry.key or found[name]) for name, entry in self.clients.items()
        }
        return replace(self, parties=parties, clients=clients)


def own_identity(job: ServeJob, me: str, keys: Path) -> Identity:
    """Load a key, and make sure that it is the one that the job names.

    Raises:
        ConfigError: the job knows nobody of that name, or by another key.
    """
    entry: PartyEntry | ClientEntry | None = job.parties.get(me) or job.clients.get(me)
    if entry is None:
        known = ", ".join((*job.parties, *job.clients))
        raise ConfigError(f"the job knows no {me!r}; it has {known}")
    table = "parties" if me in job.parties else "clients"
    return load_pinned(keys, me, entry.key, table=table)


def _identity(keys: Path, name: str, may_make: bool) -> Identity:
    try:
        return load_identity(keys, name)
    except IdentityError as error:
        if may_make:
            return make_identity(name, keys)
        raise ConfigError(
            f"the job has no key for {name!r}, and {keys} holds none: run `tacit keys {name}` "
            "where it is, and paste the line it prints"
        ) from error


def _named(job: ServeJob) -> Mapping[str, str]:
    return {
        "protocol.dealer": job.protocol.dealer,
        **{f"protocol.compute[{at}]": name for at, name in enumerate(job.protocol.compute)},
    }


def _check_clients(job: ServeJob) -> Iterator[Problem]:
    if not job.clients:
        yield Problem("clients", "wanted at least one client, got none")
    for name in job.clients:
        try:
            parse_name(name)
        except IdentityError as error:
            yield Problem("clients", str(error))
        if name in job.parties:
            yield Problem(f"clients.{name}", "has the name of a party; every key needs its own")
    for name in job.protocol.compute:
        if name not in job.service.doors:
            yield Problem(f"service.doors.{name}", "missing; wanted host:port for its clients")
    for name in set(job.service.doors) - set(job.protocol.compute):
        yield Problem(f"service.doors.{name}", "is not one of the servers of protocol.compute")


def _check_keys(job: ServeJob) -> Iterator[Problem]:
    """Refuse a client that is a party too, or another client: limits hold for each key."""
    seen = {entry.key: f"parties.{name}.key" for name, entry in job.parties.items() if entry.key}
    for name, entry in job.clients.items():
        if entry.key is not None and entry.key in seen:
            text = f"is the same as {seen[entry.key]}; everyone needs a key of its own"
            yield Problem(f"clients.{name}.key", text)
        elif entry.key is not None:
            seen[entry.key] = f"clients.{name}.key"
