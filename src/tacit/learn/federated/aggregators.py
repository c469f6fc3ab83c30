"""The aggregators, one table: how updates become a mean, and what the server sees of each."""

from collections.abc import Callable
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.errors import ConfigError
from tacit.learn.federated.config import RoundConfig
from tacit.learn.federated.contract import ClientSide, ServerSide
from tacit.learn.federated.plain import PlainClient, PlainServer
from tacit.learn.federated.secagg.sides import SecAggClientSide, SecAggServerSide
from tacit.learn.federated.shuffled.sides import ShuffledClientSide, ShuffledServerSide
from tacit.learn.federated.spec import GOES_WITH, AggregatorName, Privacy
from tacit.ring import Prg


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Where a client sits: its number, the key it is known by, and the shuffler's public key.

    ``saved`` is what an earlier process of the same client wrote: the invitation and the state.
    """

    index: int
    signing: Ed25519PrivateKey
    shuffler: bytes = b""
    saved: tuple[bytes, bytes] | None = None


@dataclass(frozen=True, kw_only=True)
class Aggregator:
    """One way to a mean.

    Attributes:
        name: as a job spells it.
        server_sees: of a single client's update, in words.
        privacies: the words it goes with.
        make_server: the server's side of a round.
        make_client: a client's side of a round.
    """

    name: AggregatorName
    server_sees: str
    privacies: tuple[Privacy, ...]
    make_server: Callable[[RoundConfig, Prg], ServerSide]
    make_client: Callable[[RoundConfig, Seat, Prg], ClientSide]


def find_aggregator(name: str) -> Aggregator:
    """Look an aggregator up, or say which ones exist."""
    if name not in AGGREGATORS:
        raise ConfigError(f"the aggregator is one of {', '.join(AGGREGATORS)}, got {name!r}")
    return AGGREGATORS[name]


def _masked_client(config: RoundConfig, seat: Seat, prg: Prg) -> ClientSide:
    return SecAggClientSide(config, seat.index, signing=seat.signing, prg=prg, saved=seat.saved)


def _shuffled_client(config: RoundConfig, seat: Seat, prg: Prg) -> ClientSide:
    return ShuffledClientSide(config, shuffler=seat.shuffler, prg=prg, saved=seat.saved)


AGGREGATORS: dict[str, Aggregator] = {
    known.name: known
    for known in (
        Aggregator(
            name="plain",
            server_sees="every update as the client sends it",
            privacies=GOES_WITH["plain"],
            make_server=PlainServer,
            make_client=lambda config, seat, prg: PlainClient(config, seat.index, prg),
        ),
        Aggregator(
            name="masked",
            server_sees="the sum of the updates, and of each alone nothing",
            privacies=GOES_WITH["masked"],
            make_server=lambda config, prg: SecAggServerSide(config),
            make_client=_masked_client,
        ),
        Aggregator(
            name="shuffled",
            server_sees="randomised reports, and not whose they are",
            privacies=GOES_WITH["shuffled"],
            make_server=lambda config, prg: ShuffledServerSide(config),
            make_client=_shuffled_client,
        ),
    )
}
