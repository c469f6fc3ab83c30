"""The job file of kind "federated": who learns from what, how updates are added, what is promised.

`[privacy]` and `[federated]` can weaken privacy; `[train]` only decides how well it is learned.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from tacit.crypto.cipher import Scheme
from tacit.data.partition import How, Partition
from tacit.errors import ConfigError
from tacit.federated import (
    AdaptiveNoise,
    AggregatorName,
    Augment,
    FederatedSpec,
    LocalTraining,
    Mechanism,
    ModelName,
    Privacy,
    PrivacySpec,
)
from tacit.federated.front import Engine
from tacit.federated.secagg import Server
from tacit.federated.shuffled import Method
from tacit.jobs.config import Job, PartyEntry
from tacit.spec import LOCAL, Count, refuse

LARGEST_WEIGHT = 2**20
"""The most examples that a client is given weight for; public, as nobody's count may be."""

_KEY = re.compile("[0-9a-fA-F]{64}")


@dataclass(frozen=True, kw_only=True)
class FederatedData:
    """[data]: a known set or a file, and how its rows are divided among simulated clients.

    Attributes:
        set: a known data set.
        file: a CSV, Parquet or NumPy file instead; on a real node, the rows of this client.
        files: one such file for each simulated client.
        label: the column with the classes in the file.
        test_share: of the rows, to test on.
        rows: take only so many rows to train on.
        partition: "iid", "shards" or "dirichlet".
        shards: pieces per client, for "shards".
        alpha: of the Dirichlet draws.
        seed: of the division; not secret.
    """

    set: str | None = None
    file: Path | None = field(default=None, metadata=LOCAL)
    files: tuple[Path, ...] = field(default=(), metadata=LOCAL)
    label: str | None = None
    test_share: float | None = None
    rows: Count | None = None
    partition: How = "iid"
    shards: int = 2
    alpha: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if (self.set is not None) + (self.file is not None) + bool(self.files) != 1:
            refuse("set", "wanted either 'set' or 'file' or 'files'")
        if self.files and (self.rows is not None or self.partition != "iid"):
            text = "files are divided already; leave out 'rows' and 'partition'"
            refuse("files", text)
        self.division()

    def division(self) -> Partition:
        """Return how rows are divided."""
        return Partition(how=self.partition, shards=self.shards, alpha=self.alpha)


@dataclass(frozen=True, kw_only=True)
class FederatedModel:
    """[model]: what is trained.

    Attributes:
        name: a known model.
        stack: two or more models instead: each trains on rows of its own, and so does a linear
            model on what they say.
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
class FederatedTable:
    """[federated]: who takes part, and how updates become a mean.

    Attributes:
        clients: how many.
        rounds: how many at most; privacy is planned for all of them.
        aggregator: how updates become a mean, by its name among `AGGREGATORS` of `federated`.
        minimum: fewest clients whose mean is shown; 0.6 of them if not given.
        drop_rate: the share of clients that may fall silent in a round.
        colluding_share: the share of clients that may work with the server; of all whose keys are
            named, where the server is "malicious".
        server: "curious" follows the protocol and looks; "malicious" may do anything, and wants
            the clients' keys.
        keys: the Ed25519 public keys of all who may be clients, as 64 hexadecimal digits each; a
            simulation makes keys of its own in their place.
        shuffler: the X25519 public key of the shuffler, in the same way.
        authority: the X25519 public key of the key authority, in the same way, for "keyed".
        cipher: for "encrypted": "bfv" or "paillier".
        threshold: for "encrypted" with "paillier": how many clients decrypt together; without it
            all clients share one key.
        public_key: the file with the clients' public key, for "encrypted" on real nodes; a
            simulation, which makes its own, refuses it.
        verified: whether clients check the sum that the server says; for "masked", "encrypted" and
            "keyed".
        engine: "local" is one process; "flower" is Flower's simulation, on Ray.
        simulated_drops: the share of clients that the local engine lets fall silent.
    """

    clients: int
    rounds: int
    aggregator: AggregatorName = "masked"
    minimum: int | None = None
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
    engine: Engine = "local"
    simulated_drops: float = 0.0

    def __post_init__(self) -> None:
        if self.clients < 2:
            refuse("clients", f"wanted at least 2, got {self.clients}")
        pinned = [("shuffler", self.shuffler), ("authority", self.authority)]
        for name, key in [*(("keys", key) for key in self.keys), *pinned]:
            if key is not None and not _KEY.fullmatch(key):
                refuse(name, f"wanted 64 hexadecimal digits, got {key!r}")


@dataclass(frozen=True, kw_only=True)
class PrivacyTable:
    """[privacy]: what is promised to each client.

    Attributes:
        kind: who is trusted with what.
        target_epsilon: the ε not to exceed after all rounds.
        delta: the δ that goes with it.
        clip: largest L2 norm of an update; for "record", of one record's gradient.
        accountant: who computes ε; the first that can, if not given.
        reports: how many reports a client makes in a round, for "shuffle".
        method: how such a report is made.
        mechanism: the shape of the noise: "gaussian"; "laplace", "nbafl" and "objective" for
            "local"; "binomial" for "central".
        records: fewest rows of a client, for "nbafl"; for "record", how many rows a client is taken
            to have, a public number: a row is in a batch with probability batch / records.
        quantile: let the clip follow this quantile of the norms, for "central".
        adaptive: how the noise follows contributions, for "local-adaptive".
    """

    kind: Privacy = "none"
    target_epsilon: float | None = None
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
        self.spec()

    def spec(self) -> PrivacySpec:
        """Return what is asked for: all words are those of the spec, but one."""
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        return PrivacySpec(epsilon=given.pop("target_epsilon"), **given)


@dataclass(frozen=True, kw_only=True)
class TrainTable:
    """[train]: how a client trains, and how the server goes on."""

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
        self.local()

    def local(self) -> LocalTraining:
        """Return how a client trains."""
        return LocalTraining(**{one.name: getattr(self, one.name) for one in fields(LocalTraining)})


@dataclass(frozen=True, kw_only=True)
class FederatedJob(Job):
    """A job of kind "federated"."""

    data: FederatedData
    federated: FederatedTable
    parties: Mapping[str, PartyEntry] = field(default_factory=dict)
    model: FederatedModel = field(default_factory=FederatedModel)
    privacy: PrivacyTable = field(default_factory=PrivacyTable)
    train: TrainTable = field(default_factory=TrainTable)

    def __post_init__(self) -> None:
        if self.parties:
            refuse("parties", "a federated job names no parties: clients are simulated, or join")
        adaptive = self.privacy.adaptive
        is_objective = self.privacy.mechanism == "objective"
        is_local = adaptive.by == "layers" or adaptive.relevance == "clients" or is_objective
        if self.federated.engine == "flower" and is_local:
            text = (
                "noise by layers, relevance asked of clients and objective perturbation run on the "
                "engine 'local'"
            )
            refuse("federated.engine", text)
        if self.federated.engine == "flower" and self.federated.aggregator == "bounded":
            text = "two servers and a dealer check updates on the engine 'local' alone"
            refuse("federated.engine", text)
        if is_objective and (self.model.name != "linear" or self.model.stack):
            text = f"objective perturbation trains 'linear', got {self.model.name!r}"
            refuse("model.name", text)
        if self.model.stack and (adaptive.by == "layers" or adaptive.relevance == "clients"):
            text = "relevance is not traced through a stack; wanted one model"
            refuse("model.stack", text)
        if self.data.files and len(self.data.files) != self.federated.clients:
            text = (
                f"wanted one for each of {self.federated.clients} clients, got "
                f"{len(self.data.files)}"
            )
            refuse("data.files", text)
        if self.privacy.kind == "record" and self.model.stack:
            text = "privacy 'record' does not account for a stack; wanted one model"
            refuse("model.stack", text)
        try:
            self.spec()
        except ConfigError as error:
            refuse("federated", str(error))

    def role(self, party: str) -> str:
        """Say what a party does."""
        return "trains together with others"

    def spec(self) -> FederatedSpec:
        """Return what all sides hold to."""
        table, train = self.federated, self.train
        weighs = self.privacy.kind == "none" and table.aggregator != "bounded"
        return FederatedSpec(
            clients=table.clients,
            rounds=table.rounds,
            aggregator=table.aggregator,
            privacy=self.privacy.spec(),
            training=train.local(),
            minimum=table.minimum or 0,
            drop_rate=table.drop_rate,
            colluding_share=table.colluding_share,
            server=table.server,
            keys=frozenset(bytes.fromhex(key) for key in table.keys) or None,
            shuffler=None if table.shuffler is None else bytes.fromhex(table.shuffler),
            authority=None if table.authority is None else bytes.fromhex(table.authority),
            cipher=table.cipher,
            threshold=table.threshold,
            public_key=_read(table.public_key),
            verified=table.verified,
            largest_weight=LARGEST_WEIGHT if weighs else 1,
            server_rate=train.server_rate,
            momentum=train.momentum,
            patience=train.patience,
        )


def _read(file: Path | None) -> bytes | None:
    """Read a public key; one that is not there yet is missed by the server that needs it."""
    return file.read_bytes() if file is not None and file.is_file() else None
