"""The aggregators, one table: how updates become a mean, and what the server sees of each."""

from collections.abc import Callable
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.crypto import KeyPair
from tacit.errors import ConfigError, PartyError
from tacit.federated import encrypted
from tacit.federated.config import RoundConfig
from tacit.federated.contract import ClientSide, Enter, ServerSide
from tacit.federated.keyed import sides as keyed
from tacit.federated.plain import PlainClient, PlainServer
from tacit.federated.secagg import sides as masked
from tacit.federated.secagg.sides import Tag
from tacit.federated.shuffled import session_of
from tacit.federated.shuffled.sides import (
    ShuffledClientSide,
    ShuffledServerSide,
    make_shuffler,
)
from tacit.federated.spec import GOES_WITH, HELPERS, AggregatorName, FederatedSpec, PrivacyKind
from tacit.federated.verified import SumServer, VerifiedClientSide, VerifiedServerSide
from tacit.plugins import load
from tacit.result import Claim
from tacit.ring import Prg

Saved = tuple[bytes, bytes] | None
Making = Callable[[Tag | None, Saved], ClientSide]
"""Makes a client's side that tags its words and goes on from what was saved."""
Helper = Callable[[bytes], bytes]
"""Answers the messages of a server to the one party beside the clients; PartyError refuses."""


class Once:
    """Remembers what was done while a process runs; a node writes it into a journal instead."""

    def __init__(self) -> None:
        self._done: set[bytes] = set()

    def __call__(self, what: bytes) -> None:
        """Remember something, or refuse it.

        Raises:
            PartyError: it was done before.
        """
        if what in self._done:
            raise PartyError("server", "it asked for a session that was answered before")
        self._done.add(what)


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Where a client sits: its number, the key it is known by, and the helper's public key.

    ``saved`` is what an earlier process of the same client wrote: the invitation and the state.
    ``secret`` is what `provision` made for this client.
    """

    index: int
    signing: Ed25519PrivateKey
    helper: bytes = b""
    saved: tuple[bytes, bytes] | None = None
    secret: bytes = field(default=b"", repr=False)


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
    make_server: Callable[[RoundConfig, Prg], ServerSide]
    make_client: Callable[[RoundConfig, Seat, Prg], ClientSide]
    make_helper: Callable[[RoundConfig, KeyPair, Prg, Enter], Helper] | None = None

    @property
    def privacies(self) -> tuple[PrivacyKind, ...]:
        """The kinds of privacy that it can give."""
        return GOES_WITH[self.name]

    @property
    def helper(self) -> str | None:
        """What the one party beside server and clients is called, if there is one."""
        return HELPERS.get(self.name)


def find_aggregator(name: str) -> Aggregator:
    """Look an aggregator up, or say which ones exist."""
    if name not in AGGREGATORS:
        raise ConfigError(f"the aggregator is one of {', '.join(AGGREGATORS)}, got {name!r}")
    return AGGREGATORS[name]


def _server(config: RoundConfig, side: SumServer) -> ServerSide:
    return VerifiedServerSide(side, config) if config.federated.verified else side


def _client(config: RoundConfig, seat: Seat, prg: Prg, make: Making) -> ClientSide:
    if not config.federated.verified:
        return make(None, seat.saved)
    return VerifiedClientSide(
        make, config, seat.index, secret=seat.secret, prg=prg, saved=seat.saved
    )


def _masked_client(config: RoundConfig, seat: Seat, prg: Prg) -> ClientSide:
    return _client(
        config,
        seat,
        prg,
        lambda tag, saved: masked.SecAggClientSide(
            config, seat.index, signing=seat.signing, prg=prg, saved=saved, tag=tag
        ),
    )


def _encrypted_client(config: RoundConfig, seat: Seat, prg: Prg) -> ClientSide:
    return _client(
        config,
        seat,
        prg,
        lambda tag, saved: encrypted.EncryptedClientSide(
            config, seat.index, secret=seat.secret, prg=prg, saved=saved, tag=tag
        ),
    )


def _keyed_client(config: RoundConfig, seat: Seat, prg: Prg) -> ClientSide:
    return _client(
        config,
        seat,
        prg,
        lambda tag, saved: keyed.KeyedClientSide(
            config,
            seat.index,
            authority=seat.helper,
            signing=seat.signing,
            prg=prg,
            saved=saved,
            tag=tag,
        ),
    )


def _bounded_server(config: RoundConfig, prg: Prg) -> ServerSide:
    side: ServerSide = load("federated.bounded").BoundedServerSide(config)
    return side


def _bounded_client(config: RoundConfig, seat: Seat, prg: Prg) -> ClientSide:
    side: ClientSide = load("federated.bounded").BoundedClientSide(config, prg)
    return side


def _shuffled_client(config: RoundConfig, seat: Seat, prg: Prg) -> ClientSide:
    return ShuffledClientSide(config, shuffler=seat.helper, prg=prg, saved=seat.saved)


def _shuffler(config: RoundConfig, keys: KeyPair, prg: Prg, enter: Enter) -> Helper:
    shuffler = make_shuffler(config, keys, prg)

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
            make_client=lambda config, seat, prg: PlainClient(config, seat.index, prg),
        ),
        Aggregator(
            name="masked",
            server_sees="the sum of the updates, and of each alone nothing",
            claims=masked.claims,
            stages=5,
            make_server=lambda config, prg: _server(config, masked.SecAggServerSide(config)),
            make_client=_masked_client,
        ),
        Aggregator(
            name="shuffled",
            server_sees="randomised reports, and not whose they are",
            claims=lambda spec: (),
            stages=3,
            make_server=lambda config, prg: ShuffledServerSide(config),
            make_client=_shuffled_client,
            make_helper=_shuffler,
        ),
        Aggregator(
            name="encrypted",
            server_sees="the sum of the updates, and of each alone a ciphertext",
            claims=encrypted.claims,
            stages=2,
            make_server=lambda config, prg: _server(config, encrypted.EncryptedServerSide(config)),
            make_client=_encrypted_client,
        ),
        Aggregator(
            name="keyed",
            server_sees="the sum of the updates, and of each alone nothing",
            claims=keyed.claims,
            stages=2,
            make_server=lambda config, prg: _server(config, keyed.KeyedServerSide(config)),
            make_client=_keyed_client,
            make_helper=_authority,
        ),
        Aggregator(
            name="bounded",
            server_sees="the sum of the updates within the clip, and of each alone whether it is",
            claims=lambda spec: load("federated.bounded").claims(spec),
            stages=1,
            make_server=_bounded_server,
            make_client=_bounded_client,
        ),
    )
}
