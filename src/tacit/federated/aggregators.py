"""The aggregators, one table: how updates become a mean, and what the server sees of each."""

from collections.abc import Callable
from dataclasses import dataclass

from tacit.crypto import KeyPair, make_key_pair
from tacit.errors import ConfigError, PartyError
from tacit.federated import encrypted
from tacit.federated.config import RoundConfig
from tacit.federated.contract import ClientSide, Enter, Helper, Seat, ServerSide
from tacit.federated.keyed import sides as keyed
from tacit.federated.plain import PlainClient, PlainServer
from tacit.federated.secagg import sides as masked
from tacit.federated.shuffled.roles import (
    ShuffledClientSide,
    ShuffledServer,
    Shuffler,
    plan_from,
    session_of,
)
from tacit.federated.spec import AggregatorName, FederatedSpec
from tacit.federated.verified import (
    SumClient,
    SumServer,
    VerifiedClientSide,
    VerifiedServerSide,
)
from tacit.plugins import load
from tacit.result import Claim
from tacit.ring import Prg

MakeServer = Callable[[RoundConfig, Prg], ServerSide]
MakeClient = Callable[[RoundConfig, Seat, Prg], ClientSide]


def enter_in_memory() -> Enter:
    """Remember what was done while a process runs; a node writes it into a journal instead."""
    done: set[bytes] = set()

    def enter(what: bytes) -> None:
        if what in done:
            raise PartyError("server", "it asked for a session that was answered before")
        done.add(what)

    return enter


@dataclass(frozen=True, kw_only=True)
class Aggregator:
    """One way to a mean.

    Attributes:
        name: as a job spells it.
        server_sees: of a single client's update, in words.
        claims: what is promised about single updates.
        stages: how often the server asks clients or helper in a round whose sum is not verified.
        make_server: the server's side of a round.
        make_client: a client's side of a round.
        make_helper: the side of the one party beside them, where there is one.
    """

    name: AggregatorName
    server_sees: str
    claims: Callable[[FederatedSpec], tuple[Claim, ...]]
    stages: int
    make_server: MakeServer
    make_client: MakeClient
    make_helper: Callable[[RoundConfig, KeyPair, Prg, Enter], Helper] | None = None


def find_aggregator(name: str) -> Aggregator:
    """Look an aggregator up, or say which ones exist."""
    if name not in AGGREGATORS:
        raise ConfigError(f"the aggregator is one of {', '.join(AGGREGATORS)}, got {name!r}")
    return AGGREGATORS[name]


def _sum_server(make: Callable[[RoundConfig], SumServer]) -> MakeServer:
    """Show clients the sum before it counts, where the spec says so."""

    def checked(config: RoundConfig, prg: Prg) -> ServerSide:
        side = make(config)
        return VerifiedServerSide(side, config) if config.federated.verified else side

    return checked


def _sum_client(make: SumClient) -> MakeClient:
    """Let a client tag its words and check their sum, where the spec says so."""

    def checked(config: RoundConfig, seat: Seat, prg: Prg) -> ClientSide:
        if config.federated.verified:
            return VerifiedClientSide(make, config, seat, prg)
        return make(config, seat, prg)

    return checked


def _shuffler(config: RoundConfig, keys: KeyPair, prg: Prg, enter: Enter) -> Helper:
    fed, reports = config.federated, config.spec.privacy.reports
    shuffler = Shuffler(keys, minimum=fed.minimum, reports=reports, prg=prg)

    def shuffle(message: bytes) -> bytes:
        enter(session_of(message))
        return shuffler.shuffle(message)

    return shuffle


def _authority(config: RoundConfig, keys: KeyPair, prg: Prg, enter: Enter) -> Helper:
    return keyed.make_authority(config, keys, enter).release


AGGREGATORS: dict[str, Aggregator] = {
    known.name: known
    for known in (
        Aggregator(
            name="plain",
            server_sees="every update as the client sends it",
            claims=lambda spec: (),
            stages=1,
            make_server=PlainServer,
            make_client=PlainClient,
        ),
        Aggregator(
            name="masked",
            server_sees="the sum of the updates, and of each alone nothing",
            claims=masked.claims,
            stages=5,
            make_server=_sum_server(masked.make_server),
            make_client=_sum_client(masked.SecAggClientSide),
        ),
        Aggregator(
            name="shuffled",
            server_sees="randomised reports, and not whose they are",
            claims=lambda spec: (),
            stages=3,
            make_server=lambda config, prg: ShuffledServer(plan_from(config), make_key_pair()),
            make_client=ShuffledClientSide,
            make_helper=_shuffler,
        ),
        Aggregator(
            name="encrypted",
            server_sees="the sum of the updates, and of each alone a ciphertext",
            claims=encrypted.claims,
            stages=2,
            make_server=_sum_server(encrypted.EncryptedServerSide),
            make_client=_sum_client(encrypted.EncryptedClientSide),
        ),
        Aggregator(
            name="keyed",
            server_sees="the sum of the updates, and of each alone nothing",
            claims=keyed.claims,
            stages=2,
            make_server=_sum_server(keyed.KeyedServerSide),
            make_client=_sum_client(keyed.KeyedClientSide),
            make_helper=_authority,
        ),
        Aggregator(
            name="bounded",
            server_sees="the sum of the updates within the clip, and of each alone whether it is",
            claims=lambda spec: load("federated.bounded").claims(spec),
            stages=1,
            make_server=lambda config, prg: load("federated.bounded").BoundedServerSide(config),
            make_client=lambda config, seat, prg: load("federated.bounded").BoundedClientSide(
                config, seat, prg
            ),
        ),
    )
}
