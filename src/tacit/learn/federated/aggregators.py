"""The aggregators, one table: how updates become a mean, and what the server sees of each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.errors import ConfigError
from tacit.learn.federated.contract import ClientSide, ServerSide
from tacit.learn.federated.masked.sides import MaskedClientSide, MaskedServerSide
from tacit.learn.federated.plain import PlainClient, PlainServer
from tacit.learn.federated.privacy import Privacy
from tacit.learn.federated.shuffled.sides import ShuffledClientSide, ShuffledServerSide
from tacit.learn.federated.terms import Terms
from tacit.ring import Prg

AggregatorName = Literal["plain", "masked", "shuffled"]


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
        is_split: clients share in the noise of a central promise.
        make_server: the server's side of a round.
        make_client: a client's side of a round.
    """

    name: AggregatorName
    server_sees: str
    privacies: tuple[Privacy, ...]
    is_split: bool
    make_server: Callable[[Terms, Prg], ServerSide]
    make_client: Callable[[Terms, Seat, Prg], ClientSide]

    def check(self, kind: Privacy) -> None:
        """Refuse a privacy word that it does not go with.

        Raises:
            ConfigError: names those it goes with.
        """
        if kind not in self.privacies:
            raise ConfigError(
                f"aggregator {self.name!r} goes with privacy {' or '.join(self.privacies)}, "
                f"got {kind!r}"
            )


def find_aggregator(name: str) -> Aggregator:
    """Look an aggregator up, or say which ones exist."""
    if name not in AGGREGATORS:
        raise ConfigError(f"the aggregator is one of {', '.join(AGGREGATORS)}, got {name!r}")
    return AGGREGATORS[name]


def _masked_client(terms: Terms, seat: Seat, prg: Prg) -> ClientSide:
    return MaskedClientSide(terms, seat.index, signing=seat.signing, prg=prg, saved=seat.saved)


def _shuffled_client(terms: Terms, seat: Seat, prg: Prg) -> ClientSide:
    return ShuffledClientSide(terms, shuffler=seat.shuffler, prg=prg, saved=seat.saved)


_SUMS: tuple[Privacy, ...] = ("none", "central", "local", "local-adaptive", "record")
AGGREGATORS: dict[str, Aggregator] = {
    known.name: known
    for known in (
        Aggregator(
            name="plain",
            server_sees="every update as the client sends it",
            privacies=_SUMS,
            is_split=False,
            make_server=PlainServer,
            make_client=lambda terms, seat, prg: PlainClient(terms, seat.index, prg),
        ),
        Aggregator(
            name="masked",
            server_sees="the sum of the updates, and of each alone nothing",
            privacies=_SUMS,
            is_split=True,
            make_server=lambda terms, prg: MaskedServerSide(terms),
            make_client=_masked_client,
        ),
        Aggregator(
            name="shuffled",
            server_sees="randomised reports, and not whose they are",
            privacies=("shuffle",),
            is_split=True,
            make_server=lambda terms, prg: ShuffledServerSide(terms),
            make_client=_shuffled_client,
        ),
    )
}
