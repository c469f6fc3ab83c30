"""What a party of a federated run holds to, before it knows the model: from it the terms follow."""

import functools
from dataclasses import dataclass

from tacit.errors import ConfigError
from tacit.learn.federated.aggregators import AggregatorName, find_aggregator
from tacit.learn.federated.masked import Server
from tacit.learn.federated.masked.graph import share_of
from tacit.learn.federated.privacy import Crowd, Wish, promise
from tacit.learn.federated.shuffled.box import KEY_BYTES
from tacit.learn.federated.terms import Terms


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The conditions on which a client lets its update go, and on which a server asks for it.

    Attributes:
        clients: how many take part.
        rounds: how many rounds at most; the privacy is planned for all of them.
        aggregator: how updates become a mean.
        wish: the privacy asked for, with the clip.
        minimum: fewest clients whose mean may be shown.
        drop_rate: the share of clients that may fall silent in a round.
        colluding_share: the share that may work with the server.
        server: what the server is assumed to do; "malicious" wants ``keys``.
        keys: the Ed25519 public keys of all who may take part. Without them whoever runs the
            server can invent clients: masked sums are then safe from a curious server only.
        shuffler: the shuffler's X25519 public key, for the aggregator "shuffled". Without it
            clients take the key that the server passes on, which could be its own: it would then
            read all reports in their first envelope.
        largest_weight: the most examples that a client is given weight for, without privacy; 1
            weighs all alike.
    """

    clients: int
    rounds: int
    aggregator: AggregatorName
    wish: Wish
    minimum: int
    drop_rate: float = 0.1
    colluding_share: float = 0.1
    server: Server = "curious"
    keys: frozenset[bytes] | None = None
    shuffler: bytes | None = None
    largest_weight: int = 1

    def __post_init__(self) -> None:
        find_aggregator(self.aggregator).check(self.wish.kind)
        if not 2 <= self.minimum <= self.clients:
            raise ConfigError(f"minimum must be 2 to {self.clients} clients, got {self.minimum}")
        if self.server == "malicious" and self.keys is None:
            raise ConfigError(
                "server 'malicious' wants the clients' keys: without them a server can invent "
                "clients; name keys, or trust it to follow the protocol with 'curious'"
            )
        if self.keys is not None and len(self.keys) < self.clients:
            raise ConfigError(f"{self.clients} clients want as many keys, got {len(self.keys)}")
        if self.shuffler is not None and (
            self.aggregator != "shuffled" or len(self.shuffler) != KEY_BYTES
        ):
            raise ConfigError(
                f"the shuffler's key is {KEY_BYTES} bytes and goes with aggregator 'shuffled', got "
                f"{len(self.shuffler)} bytes with {self.aggregator!r}"
            )
        is_open = self.wish.adaptive.select > 0 or self.wish.mechanism == "nbafl"
        if is_open and self.aggregator != "plain":
            raise ConfigError(
                "select and 'nbafl' go with aggregator 'plain': what a client sends is private "
                f"as it is; got {self.aggregator!r}"
            )
        if self.wish.mechanism == "objective" and self.rounds != 1:
            raise ConfigError(
                f"objective perturbation trains once: wanted 1 round, got {self.rounds}"
            )
        if self.rounds < 1:
            raise ConfigError(f"rounds must be 1 or more, got {self.rounds}")

    def terms(self, dimension: int) -> Terms:
        """Work out the terms of every round for a model of so many parameters.

        Raises:
            ConfigError: the privacy that is wished for cannot be had.
        """
        return _terms(self, dimension)


@functools.lru_cache(maxsize=8)
def _terms(policy: Policy, dimension: int) -> Terms:
    # A clip that follows a quantile takes one more number: whether the update lies within it.
    size = dimension + (policy.wish.quantile is not None)
    crowd = Crowd(
        clients=policy.clients,
        minimum=policy.minimum,
        colluding=share_of(policy.clients, policy.colluding_share),
        rounds=policy.rounds,
        dimension=size,
        knows_shuffler=policy.shuffler is not None,
    )
    found = promise(policy.wish, crowd, is_split=find_aggregator(policy.aggregator).is_split)
    return Terms(
        clients=policy.clients,
        dimension=size,
        minimum=policy.minimum,
        promise=found,
        drop_rate=policy.drop_rate,
        colluding_share=policy.colluding_share,
        keys=policy.keys,
        largest_weight=policy.largest_weight,
    )
