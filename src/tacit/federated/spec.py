"""What the user of a federated run writes: who takes part, how they train, and which privacy.

`config.round_config` derives everything else from it, the same on every side that holds the same
spec. Nothing here depends on the model or on data.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

from tacit.crypto.cipher import SCHEMES, Scheme
from tacit.crypto.cipher.threshold import MOST_HOLDERS
from tacit.errors import ConfigError, check_word
from tacit.federated.secagg.graph import Server, share_of
from tacit.federated.shuffled.plan import Method
from tacit.federated.shuffled.roles import PUBLIC_BYTES

AggregatorName = Literal["plain", "masked", "shuffled", "encrypted", "keyed", "bounded"]
Augment = Literal["none", "shift", "flip"]
Privacy = Literal["none", "central", "local", "local-adaptive", "shuffle", "record"]
PRIVACIES: tuple[Privacy, ...] = (
    "none",
    "central",
    "local",
    "local-adaptive",
    "shuffle",
    "record",
)
Mechanism = Literal["gaussian", "laplace", "binomial", "nbafl", "objective"]

_MECHANISMS: dict[str, tuple[str, ...]] = {
    "gaussian": PRIVACIES,
    "laplace": ("local", "local-adaptive"),
    "binomial": ("central",),
    "nbafl": ("local",),
    "objective": ("local",),
}

_SUMS: tuple[Privacy, ...] = ("none", "central", "local", "local-adaptive", "record")
GOES_WITH: dict[str, tuple[Privacy, ...]] = {
    "plain": _SUMS,
    "masked": _SUMS,
    "shuffled": ("shuffle",),
    "encrypted": _SUMS,
    "keyed": _SUMS,
    "bounded": ("none",),
}
"""The kinds of privacy that each aggregator can give."""
VERIFIABLE = ("masked", "encrypted", "keyed")
"""The aggregators whose sums can be checked."""
HELPERS = {"shuffled": "shuffler", "keyed": "authority"}
"""The aggregators that need one more party, and what it is called."""


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """How a client trains in a round.

    Attributes:
        steps: batches.
        batch: rows in each; drawn in a new order whenever all rows have been seen.
        rate: of plain gradient descent.
        l2: weight of half the squared norm of the parameters in the loss.
        class_weights: how much an error on each class counts; None for alike. The loss of a batch
            is the mean over its rows, so that weights of 2 move as far as twice the rate.
        augment: change pictures at random before every step: "shift" by up to two pixels, "flip"
            left and right.
    """

    steps: int = 10
    batch: int = 32
    rate: float = 0.1
    l2: float = 0.0
    augment: Augment = "none"
    class_weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch < 1:
            raise ConfigError(f"steps and batch must be 1 or more, got {self.steps}, {self.batch}")
        if not self.rate > 0 or not self.l2 >= 0:
            raise ConfigError(
                f"rate must be positive and l2 not negative, got {self.rate}, {self.l2}"
            )
        weights = self.class_weights
        if weights is not None and not all(0 < one < math.inf for one in weights):
            raise ConfigError(f"class_weights must be positive and finite, got {list(weights)}")


@dataclass(frozen=True, kw_only=True)
class AdaptiveNoise:
    """How "local-adaptive" noise follows the contributions of attributes or layers.

    Attributes:
        by: "attributes" gives the columns of every weight matrix their own noise, "layers" every
            layer its own clip and noise.
        relevance: "model" reads the contributions off the global model and public inputs, which
            costs nothing; "clients" asks every client for those on its own rows, once.
        relevance_epsilon: the price of asking, for "clients".
        p: parameters of small contribution get noise with this probability; below 1 there is no
            guarantee.
        threshold: below which share of the average a contribution is small, for ``p``.
        select: send only so many entries of an update, chosen by the sparse vector technique; 0
            sends all.
    """

    by: Literal["attributes", "layers"] = "attributes"
    relevance: Literal["model", "clients"] = "model"
    relevance_epsilon: float | None = None
    p: float = 1.0
    threshold: float = 0.5
    select: int = 0

    def __post_init__(self) -> None:
        if (self.relevance == "clients") != (self.relevance_epsilon is not None):
            raise ConfigError("relevance 'clients' and relevance_epsilon go together")
        if self.relevance_epsilon is not None and not 0 < self.relevance_epsilon <= 200:
            raise ConfigError(
                f"relevance_epsilon must be above 0 and at most 200, got {self.relevance_epsilon}"
            )
        if not 0 <= self.p <= 1:
            raise ConfigError(f"p must lie between 0 and 1, got {self.p}")
        if self.select < 0 or (self.select and self.p < 1):
            raise ConfigError(f"select must be 0 or more, and goes with p = 1, got {self.select}")


@dataclass(frozen=True, kw_only=True)
class PrivacySpec:
    """The privacy that a run is to have.

    Attributes:
        kind: who is trusted with what.
        clip: largest L2 norm of an update, and for "record" of one record's gradient; longer ones
            are shortened to it.
        epsilon: the ε not to exceed at the end; not for "none".
        delta: the δ that goes with it.
        accountant: who computes ε; the first that can, if not given.
        reports: how many reports a client makes in a round, for "shuffle".
        method: how such a report is made.
        mechanism: the shape of the noise; "objective" puts it into the training of linear models,
            and is about one record of a client.
        records: fewest rows of a client, for the noise of "nbafl"; for "record", how many rows a
            client is taken to have: a public number, from which the sampling rate follows.
        quantile: let the clip follow this quantile of the updates' norms, for "central"; the
            clients pay for it with one noisy bit a round.
        adaptive: for "local-adaptive".
    """

    kind: Privacy = "none"
    clip: float | None = None
    epsilon: float | None = None
    delta: float = 1e-5
    accountant: str | None = None
    reports: int = 8
    method: Method = "direction"
    mechanism: Mechanism = "gaussian"
    records: int | None = None
    quantile: float | None = None
    adaptive: AdaptiveNoise = field(default_factory=AdaptiveNoise)

    def __post_init__(self) -> None:
        if self.kind not in PRIVACIES:
            raise ConfigError(f"privacy must be one of {', '.join(PRIVACIES)}, got {self.kind!r}")
        if self.kind != "none" and (self.epsilon is None or self.clip is None):
            missing = [
                name
                for name, value in (("target_epsilon", self.epsilon), ("clip", self.clip))
                if value is None
            ]
            raise ConfigError(
                f"privacy {self.kind!r} wants target_epsilon and clip; missing: "
                f"{' and '.join(missing)}"
            )
        if self.kind == "none" and self.epsilon is not None:
            raise ConfigError("privacy 'none' has no ε; leave target_epsilon out")
        if self.epsilon is not None and not 0 < self.epsilon < math.inf:
            raise ConfigError(f"target_epsilon must be positive and finite, got {self.epsilon}")
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise ConfigError(f"clip must be positive and finite, got {self.clip}")
        self._check_mechanism()

    def _check_mechanism(self) -> None:
        if self.kind not in _MECHANISMS.get(self.mechanism, ()):
            fits = [name for name, kinds in _MECHANISMS.items() if self.kind in kinds]
            raise ConfigError(
                f"privacy {self.kind!r} goes with mechanism {' or '.join(fits)}, "
                f"got {self.mechanism!r}"
            )
        counts = self.mechanism == "nbafl" or self.kind == "record"
        if counts and self.records is None:
            name = "privacy 'record'" if self.kind == "record" else "mechanism 'nbafl'"
            raise ConfigError(
                f"{name} wants records, how many rows a client has: ε depends on it, so that it is "
                "public; got none"
            )
        if self.records is not None and not counts:
            raise ConfigError(
                "records goes with privacy 'record' and with mechanism 'nbafl': leave it out with "
                f"{self.kind!r} and {self.mechanism!r}"
            )
        if self.records is not None and self.records < 1:
            raise ConfigError(f"records must be 1 or more, got {self.records}")
        if self.quantile is not None and (self.kind != "central" or not 0 < self.quantile < 1):
            raise ConfigError(
                f"quantile lies between 0 and 1 and goes with privacy 'central', got "
                f"{self.quantile} with {self.kind!r}"
            )
        if self.kind != "local-adaptive" and self.adaptive != AdaptiveNoise():
            raise ConfigError(f"adaptive goes with privacy 'local-adaptive', got {self.kind!r}")


@dataclass(frozen=True, kw_only=True)
class FederatedSpec:
    """A federated run: on what conditions clients let updates go, and a server asks for them.

    Attributes:
        clients: how many take part in a round.
        rounds: how many rounds at most; the privacy is planned for all of them.
        aggregator: how updates become a mean.
        privacy: the privacy asked for, with the clip.
        training: how a client trains in a round; for privacy "record" its steps spend ε.
        minimum: fewest clients whose mean may be shown; 0.6 of them, if not given.
        drop_rate: the share of clients that may fall silent in a round.
        colluding_share: the share that may work with the server, of the clients of a round; with
            server "malicious", which chooses who is in one, of all whose keys are named.
        server: what the server is assumed to do; "malicious" wants ``keys``,
            and of "keyed" also ``authority``.
        keys: the Ed25519 public keys of all who may take part, as many as a round has or more.
            Without them whoever runs the server can invent clients: secure aggregation is then
            safe from a curious server only.
        shuffler: the shuffler's X25519 public key, for the aggregator "shuffled". Without it
            clients take the key that the server passes on, which could be its own: it would then
            read all reports in their first envelope.
        authority: the key authority's X25519 public key, for the aggregator "keyed", in the same
            way: a server that puts in its own opens every update.
        cipher: for the aggregator "encrypted": "bfv" is fast, "paillier" can share its key.
        threshold: for "encrypted" with "paillier": how many of the clients decrypt together;
            without it every client has the whole key.
        public_key: of that cipher; `provision` makes it, and the clients' secrets.
        verified: whether the clients check the sum that the server says, with a key that it has
            not; for "masked", "encrypted" and "keyed".
        largest_weight: the most examples that a client is given weight for, without privacy; 1
            weighs all alike.
        server_rate: how much of the mean update the model takes.
        momentum: of the server.
        patience: stop after so many rounds without a better accuracy; 0 never stops early.
    """

    clients: int
    rounds: int
    aggregator: AggregatorName = "masked"
    privacy: PrivacySpec = field(default_factory=PrivacySpec)
    training: LocalTraining = field(default_factory=LocalTraining)
    minimum: int = 0
    drop_rate: float = 0.1
    colluding_share: float = 0.1
    server: Server = "curious"
    keys: frozenset[bytes] | None = None
    shuffler: bytes | None = None
    authority: bytes | None = None
    cipher: Scheme = "bfv"
    threshold: int | None = None
    public_key: bytes | None = field(default=None, repr=False)
    verified: bool = False
    largest_weight: int = 1
    server_rate: float = 1.0
    momentum: float = 0.0
    patience: int = 0

    def __post_init__(self) -> None:
        if self.minimum == 0:
            object.__setattr__(self, "minimum", max(2, int(0.6 * self.clients)))
        self._check_parties()
        self._check_aggregator()
        self._check_keys()
        if self.rounds < 1 or self.patience < 0:
            raise ConfigError(f"rounds must be 1 or more, got {self.rounds}")
        if self.privacy.mechanism == "objective" and self.rounds != 1:
            raise ConfigError(
                f"objective perturbation trains once: wanted 1 round, got {self.rounds}"
            )
        if not self.server_rate > 0 or not 0 <= self.momentum < 1:
            raise ConfigError(
                "wanted server_rate above 0 and momentum from 0 to below 1, got "
                f"{self.server_rate} and {self.momentum}"
            )

    @property
    def is_split(self) -> bool:
        """Whether the server sees no update alone: the clients share in the noise of a sum."""
        return self.aggregator != "plain"

    @property
    def needs_secrets(self) -> bool:
        """Whether clients must hold keys before a run begins; `provision` makes them."""
        return self.verified or self.aggregator == "encrypted"

    @property
    def helper(self) -> bytes | None:
        """The pinned key of the one party beside server and clients."""
        return self.shuffler if self.aggregator == "shuffled" else self.authority

    @property
    def share_in_round(self) -> float:
        """The share of the clients of a round that may work with the server.

        One that may do anything invites all of those whose keys are named into one round.
        """
        named = len(self.keys or ()) if self.server == "malicious" else 0
        return self.colluding_share * max(1.0, named / self.clients)

    @property
    def lost(self) -> int:
        """The clients of a round whose noise and reports somebody else knows.

        One at least: a fellow client that sees the models knows its own noise and its own reports,
        and hides nobody from itself.
        """
        return max(1, share_of(self.clients, self.share_in_round))

    @property
    def honest(self) -> int:
        """The fewest clients in a round that counts whose noise nobody else knows."""
        return self.minimum - self.lost

    def _check_parties(self) -> None:
        if not 2 <= self.minimum <= self.clients:
            raise ConfigError(f"minimum must be 2 to {self.clients} clients, got {self.minimum}")
        check_word("server", self.server, Server)
        if self.server == "malicious" and self.keys is None:
            raise ConfigError(
                "server 'malicious' wants the clients' keys: without them a server can invent "
                "clients; name keys, or trust it to follow the protocol with 'curious'"
            )
        if self.keys is not None and len(self.keys) < self.clients:
            raise ConfigError(f"{self.clients} clients want as many keys, got {len(self.keys)}")
        self._check_company()

    def _check_company(self) -> None:
        """Refuse sums in which all but one client may work with the server: it knows the last."""
        colluding = share_of(self.clients, self.share_in_round)
        # The threshold of "masked" has two honest clients in every sum, of those who are asked.
        is_chosen = self.server == "malicious"
        if colluding <= self.minimum - 2 or not (is_chosen or self.aggregator == "keyed"):
            return
        who = f"{len(self.keys or ())} named keys" if is_chosen else f"{self.clients} clients"
        raise ConfigError(
            f"of {who} {colluding} may work with the server: a sum of {self.minimum} could be of "
            "those alone, or of those and one other, whose update it is then; raise minimum, "
            f"lower colluding_share{', or name fewer keys' if is_chosen else ''}"
        )

    def _check_keys(self) -> None:
        """Refuse keys that cannot keep what the spec assumes."""
        if self.verified and self.aggregator not in VERIFIABLE:
            raise ConfigError(
                f"verified goes with aggregator {', '.join(VERIFIABLE)}, got {self.aggregator!r}"
            )
        if self.aggregator == "encrypted" and self.server == "malicious":
            raise ConfigError(
                f"aggregator {self.aggregator!r} rests on a server that follows the protocol; for "
                "server 'malicious' take 'masked' or 'keyed'"
            )
        if self.aggregator == "shuffled" and self.server == "malicious":
            raise ConfigError(
                "aggregator 'shuffled' rests on a server that invents no clients, as the shuffler "
                "cannot tell them from others; for server 'malicious' take 'masked' or 'keyed'"
            )
        if self.aggregator == "keyed" and self.server == "malicious" and self.authority is None:
            raise ConfigError(
                "server 'malicious' wants the authority's key as well: a server that passes on one "
                "of its own opens every update; pin authority, or trust it with 'curious'"
            )
        if self.aggregator != "encrypted":
            if self.threshold is not None or self.public_key is not None or self.cipher != "bfv":
                raise ConfigError(
                    "cipher, threshold and public_key go with aggregator 'encrypted', got "
                    f"{self.aggregator!r}"
                )
            return
        colluding = share_of(self.clients, self.colluding_share)
        if self.cipher not in SCHEMES:
            raise ConfigError(f"the cipher is one of {', '.join(SCHEMES)}, got {self.cipher!r}")
        if self.threshold is None and colluding:
            raise ConfigError(
                f"with one key shared by all clients, one that works with the server opens every "
                f"update, and colluding_share allows {colluding}: set colluding_share = 0, or "
                'cipher = "paillier" with a threshold'
            )
        if self.threshold is None:
            return
        if self.cipher != "paillier" or self.clients > MOST_HOLDERS:
            raise ConfigError(
                f"a threshold wants cipher 'paillier' and at most {MOST_HOLDERS} clients, got "
                f"{self.cipher!r} and {self.clients}"
            )
        if not max(2, colluding + 1) <= self.threshold <= self.minimum:
            raise ConfigError(
                f"the threshold must be above the {colluding} clients that may work with the "
                f"server, 2 at least, and at most the minimum of {self.minimum} that stay; got "
                f"{self.threshold}"
            )

    def _check_aggregator(self) -> None:
        if self.aggregator == "bounded" and (self.server != "curious" or self.largest_weight != 1):
            raise ConfigError(
                "aggregator 'bounded' rests on servers that follow the protocol (server 'curious') "
                "and weighs all clients alike, as a weight would be believed; got server "
                f"{self.server!r} and weights up to {self.largest_weight}"
            )
        if self.aggregator not in GOES_WITH:
            raise ConfigError(
                f"the aggregator is one of {', '.join(GOES_WITH)}, got {self.aggregator!r}"
            )
        if self.privacy.kind not in GOES_WITH[self.aggregator]:
            raise ConfigError(
                f"aggregator {self.aggregator!r} goes with privacy "
                f"{' or '.join(GOES_WITH[self.aggregator])}, got {self.privacy.kind!r}"
            )
        for aggregator, helper in HELPERS.items():
            key = self.shuffler if helper == "shuffler" else self.authority
            if key is not None and (self.aggregator != aggregator or len(key) != PUBLIC_BYTES):
                raise ConfigError(
                    f"the {helper}'s key is {PUBLIC_BYTES} bytes and goes with aggregator "
                    f"{aggregator!r}, got {len(key)} bytes with {self.aggregator!r}"
                )
        is_open = self.privacy.adaptive.select > 0 or self.privacy.mechanism == "nbafl"
        if is_open and self.aggregator != "plain":
            raise ConfigError(
                "select and 'nbafl' go with aggregator 'plain': what a client sends is private "
                f"as it is; got {self.aggregator!r}"
            )
