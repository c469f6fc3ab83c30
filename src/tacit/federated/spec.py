"""What the user of a federated run writes: who takes part, how they train, and which privacy.

Its tables are those of a job file, and what a call from Python passes. `config.round_config`
derives everything else, the same on every side that holds the same spec.
"""

import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from tacit.crypto.cipher import SCHEMES, Scheme
from tacit.crypto.cipher.threshold import MOST_HOLDERS
from tacit.errors import ConfigError, check_word
from tacit.federated.contract import PUBLIC_BYTES
from tacit.federated.data import FederatedData
from tacit.federated.secagg.graph import Server, share_of
from tacit.federated.secagg.plan import LARGEST_WEIGHT
from tacit.spec import LOCAL, refuse

AggregatorName = Literal["plain", "masked", "shuffled", "encrypted", "keyed", "bounded"]
Augment = Literal["none", "shift", "flip"]
Engine = Literal["local", "flower"]
ENGINES: tuple[Engine, ...] = get_args(Engine)
ModelName = Literal["linear", "mlp", "cnn"]
PrivacyKind = Literal["none", "central", "local", "local-adaptive", "shuffle", "record"]
PRIVACIES: tuple[PrivacyKind, ...] = get_args(PrivacyKind)
Mechanism = Literal["gaussian", "laplace", "binomial", "nbafl", "objective"]
Method = Literal["direction", "coordinate"]

_MECHANISMS: dict[str, tuple[str, ...]] = {
    "gaussian": PRIVACIES,
    "laplace": ("local", "local-adaptive"),
    "binomial": ("central",),
    "nbafl": ("local",),
    "objective": ("local",),
}

_SUMS: tuple[PrivacyKind, ...] = ("none", "central", "local", "local-adaptive", "record")
GOES_WITH: dict[str, tuple[PrivacyKind, ...]] = {
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

_KEY = re.compile(f"[0-9a-fA-F]{{{2 * PUBLIC_BYTES}}}")


@dataclass(frozen=True, kw_only=True)
class FederatedModel:
    """[model]: what is trained.

    Attributes:
        name: a known model.
        stack: against overfitting: two or more models in place of ``name``; each trains on rows of
            its own, and a linear model on further rows learns what to make of their answers.
        dropout: the share of numbers that is left out in training.
        seed: of the first weights; not secret.
    """

    name: ModelName = "linear"
    stack: tuple[ModelName, ...] = ()
    dropout: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.stack) == 1:
            refuse("stack", f"wanted two models or more, got {self.stack[0]}")


@dataclass(frozen=True, kw_only=True)
class Federation:
    """[federated]: who takes part, and how updates become a mean.

    Attributes:
        clients: how many take part in a round.
        rounds: how many at most; privacy is planned for all of them.
        aggregator: privacy: how updates become a mean, and what the server sees of them.
        minimum: privacy: fewest clients whose mean is shown; 0.6 of them if not given.
        drop_rate: the share of clients that may fall silent in a round.
        colluding_share: privacy: the share of clients that may work with the server; of all whose
            keys are named, where the server is "malicious", which chooses who is in a round. Noise
            and crowds count on one client less at least, as a client knows its own.
        server: privacy: "curious" follows the protocol and looks; "malicious" may do anything, and
            wants the clients' keys, and of "keyed" also the authority's; not with "shuffled",
            "encrypted" and "bounded".
        keys: privacy: the Ed25519 public keys of all who may be clients, as 64 hexadecimal digits
            each; a simulation makes keys of its own in their place. Without them whoever runs the
            server can invent clients: sums are then safe from a curious server only.
        shuffler: privacy: the X25519 public key of the shuffler, in the same way. Without it
            clients take the key that the server passes on: with one of its own it reads all
            reports.
        authority: privacy: the X25519 public key of the key authority, in the same way, for
            "keyed".
        cipher: for "encrypted": "bfv" is fast, "paillier" can share its key.
        threshold: privacy: for "encrypted" with "paillier": how many clients decrypt together, more
            than may collude and at most ``minimum``; without it all clients share one key, and
            ``colluding_share`` must be 0.
        public_key: the file with the clients' public key, for "encrypted" on real nodes: `tacit
            keys NAME --job FILE` makes it with the clients' secrets. A simulation makes its own,
            and refuses this one.
        verified: whether clients check the sum that the server says, with a key that it has not;
            for "masked", "encrypted" and "keyed".
        largest_weight: the most examples that a client is given weight for; 1 weighs all alike. If
            not given 1 from Python, with [privacy] and with "bounded", and 2^20 in other job files.
        engine: "local" is one process; "flower" is Flower's simulation, on Ray.
        simulated_drops: the share of clients that the local engine lets fall silent.
    """

    clients: int
    rounds: int
    aggregator: AggregatorName = "masked"
    minimum: int = 0
    drop_rate: float = 0.1
    colluding_share: float = 0.1
    server: Server = "curious"
    keys: tuple[str, ...] = ()
    shuffler: str | None = None
    authority: str | None = None
    cipher: Scheme = "bfv"
    threshold: int | None = None
    public_key: Path | None = field(default=None, metadata=LOCAL)
    verified: bool = False
    largest_weight: int = 0
    engine: Engine = "local"
    simulated_drops: float = 0.0

    def __post_init__(self) -> None:
        if self.clients < 2:
            refuse("clients", f"wanted at least 2, got {self.clients}")
        pinned = [("shuffler", self.shuffler), ("authority", self.authority)]
        for name, key in [*(("keys", key) for key in self.keys), *pinned]:
            if key is not None and not _KEY.fullmatch(key):
                refuse(name, f"wanted 64 hexadecimal digits, got {key!r}")
        if self.minimum == 0:
            object.__setattr__(self, "minimum", max(2, int(0.6 * self.clients)))
        self._check_parties()
        self._check_keys()

    @property
    def identities(self) -> frozenset[bytes] | None:
        """The Ed25519 public keys of all who may take part, if they are named."""
        return frozenset(bytes.fromhex(key) for key in self.keys) or None

    @property
    def helper(self) -> bytes | None:
        """The pinned key of the one party beside server and clients."""
        key = self.shuffler if self.aggregator == "shuffled" else self.authority
        return None if key is None else bytes.fromhex(key)

    @property
    def is_split(self) -> bool:
        """Whether the server sees no update alone: the clients share in the noise of a sum."""
        return self.aggregator != "plain"

    @property
    def needs_secrets(self) -> bool:
        """Whether clients must hold keys before a run begins; `provision` makes them."""
        return self.verified or self.aggregator == "encrypted"

    @property
    def share_in_round(self) -> float:
        """The share of the clients of a round that may work with the server.

        One that may do anything invites all of those whose keys are named into one round.
        """
        named = len(self.identities or ()) if self.server == "malicious" else 0
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
        if self.server == "malicious" and self.identities is None:
            raise ConfigError(
                "server 'malicious' wants the clients' keys: without them a server can invent "
                "clients; name keys, or trust it to follow the protocol with 'curious'"
            )
        if self.identities is not None and len(self.identities) < self.clients:
            raise ConfigError(
                f"{self.clients} clients want as many keys, got {len(self.identities)}"
            )
        self._check_company()

    def _check_company(self) -> None:
        """Refuse sums in which all but one client may work with the server: it knows the last."""
        colluding = share_of(self.clients, self.share_in_round)
        # The threshold of "masked" has two honest clients in every sum, of those who are asked.
        is_chosen = self.server == "malicious"
        if colluding <= self.minimum - 2 or not (is_chosen or self.aggregator == "keyed"):
            return
        who = f"{len(self.identities or ())} named keys" if is_chosen else f"{self.clients} clients"
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


@dataclass(frozen=True, kw_only=True)
class Training:
    """[train]: how a client trains in a round, and how the server goes on.

    Attributes:
        steps: batches.
        batch: rows in each; drawn in a new order whenever all rows have been seen.
        rate: of plain gradient descent.
        l2: weight of half the squared norm of the parameters in the loss.
        augment: change pictures at random before every step: "shift" by up to two pixels, "flip"
            left and right.
        class_weights: how much an error on each class counts; alike if not given. The loss of a
            batch is the mean over its rows, so that weights of 2 move as far as twice the rate.
            With every privacy but the mechanism "objective".
        server_rate: how much of the mean update the model takes.
        momentum: of the server.
        patience: stop after so many rounds without a better accuracy; 0 never stops early.
        device: where it is computed.
    """

    steps: int = 10
    batch: int = 32
    rate: float = 0.1
    l2: float = 0.0
    augment: Augment = "none"
    class_weights: tuple[float, ...] | None = None
    server_rate: float = 1.0
    momentum: float = 0.0
    patience: int = 0
    device: str = field(default="cpu", metadata=LOCAL)

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
            sends all. With "plain".
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
class Privacy:
    """[privacy]: what is promised to each client.

    Attributes:
        kind: who is trusted with what.
        epsilon: the ε not to exceed after all rounds; not for "none". A plan that cannot is refused
            before data is read.
        delta: the δ that goes with it; 1/n or more for n clients is refused, above 0.1/n is warned
            of.
        clip: largest L2 norm of an update, and for "record" of one record's gradient; longer ones
            are shortened to it.
        accountant: who computes ε: "pld", "rdp" (both need `tacit-ml[dp]`), "fourier", "renyi",
            "advanced" or "basic"; the first that can, if not given.
        reports: how many reports a client makes in a round, for "shuffle".
        method: how such a report is made.
        mechanism: the shape of the noise: "gaussian" is discrete and exact; "laplace" for the local
            kinds; "binomial" (cpSGD) for "central"; "nbafl" for "local" with "plain", where
            ``epsilon`` sets the published noise and the claim says what it gives; "objective" for
            "local", one round and the model "linear": every client trains by objective
            perturbation, and the claim is about one record.
        records: fewest rows of a client, for "nbafl"; for "record", how many rows a client is taken
            to have: public, a row is in a batch with probability ``train.batch / records``, and ε
            counts ``train.steps`` in every round.
        quantile: let the clip follow this quantile of the updates' norms, for "central"; the
            clients pay for it with one noisy bit a round, which is in the ledger.
        adaptive: for "local-adaptive": how noise follows contributions.
    """

    kind: PrivacyKind = "none"
    epsilon: float | None = None
    delta: float = 1e-5
    clip: float | None = None
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
                for name, value in (("epsilon", self.epsilon), ("clip", self.clip))
                if value is None
            ]
            raise ConfigError(
                f"privacy {self.kind!r} wants epsilon and clip; missing: {' and '.join(missing)}"
            )
        if self.kind == "none" and self.epsilon is not None:
            raise ConfigError("privacy 'none' has no ε; leave epsilon out")
        if self.epsilon is not None and not 0 < self.epsilon < math.inf:
            raise ConfigError(f"epsilon must be positive and finite, got {self.epsilon}")
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

    ``data`` and ``model`` name what is trained where a program does not hand it in.
    """

    data: FederatedData | None = None
    federated: Federation
    model: FederatedModel = field(default_factory=FederatedModel)
    privacy: Privacy = field(default_factory=Privacy)
    train: Training = field(default_factory=Training)

    def __post_init__(self) -> None:
        if self.federated.largest_weight == 0:
            object.__setattr__(self, "federated", replace(self.federated, largest_weight=1))
        self._check_tables()
        self._check_aggregator()
        weight, rounds, train = self.federated.largest_weight, self.federated.rounds, self.train
        if not 1 <= weight <= LARGEST_WEIGHT:
            raise ConfigError(f"the largest weight must be 1 to {LARGEST_WEIGHT}, got {weight}")
        if self.privacy.kind != "none" and weight != 1:
            raise ConfigError(
                "with differential privacy every client weighs the same: the number of examples "
                "is private too"
            )
        if rounds < 1 or train.patience < 0:
            raise ConfigError(f"rounds must be 1 or more, got {rounds}")
        if self.privacy.mechanism == "objective" and rounds != 1:
            raise ConfigError(f"objective perturbation trains once: wanted 1 round, got {rounds}")
        if not train.server_rate > 0 or not 0 <= train.momentum < 1:
            raise ConfigError(
                "wanted server_rate above 0 and momentum from 0 to below 1, got "
                f"{train.server_rate} and {train.momentum}"
            )

    def _check_tables(self) -> None:
        """Refuse words of one table that do not go with those of another."""
        fed, adaptive = self.federated, self.privacy.adaptive
        is_objective = self.privacy.mechanism == "objective"
        is_traced = adaptive.by == "layers" or adaptive.relevance == "clients"
        if fed.engine == "flower" and (is_traced or is_objective):
            text = (
                "noise by layers, relevance asked of clients and objective perturbation run on the "
                "engine 'local'"
            )
            refuse("federated.engine", text)
        if fed.engine == "flower" and fed.aggregator == "bounded":
            text = "two servers and a dealer check updates on the engine 'local' alone"
            refuse("federated.engine", text)
        if is_objective and (self.model.name != "linear" or self.model.stack):
            text = f"objective perturbation trains 'linear', got {self.model.name!r}"
            refuse("model.name", text)
        if self.model.stack and is_traced:
            refuse("model.stack", "relevance is not traced through a stack; wanted one model")
        files = () if self.data is None else self.data.files
        if files and len(files) != fed.clients:
            text = f"wanted one for each of {fed.clients} clients, got {len(files)}"
            refuse("data.files", text)
        if self.privacy.kind == "record" and self.model.stack:
            text = "privacy 'record' does not account for a stack; wanted one model"
            refuse("model.stack", text)

    def _check_aggregator(self) -> None:
        fed = self.federated
        if fed.aggregator == "bounded" and (fed.server != "curious" or fed.largest_weight != 1):
            raise ConfigError(
                "aggregator 'bounded' rests on servers that follow the protocol (server 'curious') "
                "and weighs all clients alike, as a weight would be believed; got server "
                f"{fed.server!r} and weights up to {fed.largest_weight}"
            )
        if fed.aggregator not in GOES_WITH:
            raise ConfigError(
                f"the aggregator is one of {', '.join(GOES_WITH)}, got {fed.aggregator!r}"
            )
        if self.privacy.kind not in GOES_WITH[fed.aggregator]:
            raise ConfigError(
                f"aggregator {fed.aggregator!r} goes with privacy "
                f"{' or '.join(GOES_WITH[fed.aggregator])}, got {self.privacy.kind!r}"
            )
        for aggregator, helper in HELPERS.items():
            key = fed.shuffler if helper == "shuffler" else fed.authority
            if key is not None and fed.aggregator != aggregator:
                raise ConfigError(
                    f"the {helper}'s key is {PUBLIC_BYTES} bytes and goes with aggregator "
                    f"{aggregator!r}, got {len(key) // 2} bytes with {fed.aggregator!r}"
                )
        is_open = self.privacy.adaptive.select > 0 or self.privacy.mechanism == "nbafl"
        if is_open and fed.aggregator != "plain":
            raise ConfigError(
                "select and 'nbafl' go with aggregator 'plain': what a client sends is private "
                f"as it is; got {fed.aggregator!r}"
            )
