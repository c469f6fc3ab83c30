"""A federated run, whole: as a task, and as one call on a model and the rows of every client."""

import copy
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict, Unpack, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tacit.crypto.cipher import Scheme
from tacit.data.memory import Handed, numbers_of
from tacit.data.metrics import measure_odds
from tacit.dp import Ledger
from tacit.errors import ConfigError
from tacit.federated.aggregators import find_aggregator
from tacit.federated.config import RoundConfig, round_config
from tacit.federated.contract import HELPER, Meter
from tacit.federated.data import Shards, shard_rows
from tacit.federated.engine import LocalEngine
from tacit.federated.provision import provision
from tacit.federated.rounds import (
    Judge,
    OnRound,
    Outcome,
    RoundReport,
    per_client,
    run_rounds,
)
from tacit.federated.secagg import Server
from tacit.federated.spec import AggregatorName, FederatedSpec, LocalTraining, PrivacySpec
from tacit.federated.summary import claims_of, describe, measures_of, notes_of
from tacit.federated.training import Learner, build_model
from tacit.notebook import Lines, Shown
from tacit.plugins import load
from tacit.result import Claim, Metric
from tacit.ring import Prg, check_device

_LOG = logging.getLogger(__name__)

Engine = Literal["local", "flower"]
ENGINES: tuple[Engine, ...] = ("local", "flower")


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a run needs.

    Attributes:
        spec: what all sides hold to.
        load: gives the rows; processes of a simulation call it, each for itself.
        build: makes the model for them, with its first weights.
        device: where it is trained.
        drops: simulated: the share of clients that the local engine lets fall silent in a round.
    """

    spec: FederatedSpec
    load: Callable[[], Shards]
    build: Callable[[Shards], nn.Module]
    device: str = "cpu"
    drops: float = 0.0

    def learner(self, shards: Shards) -> Learner:
        """Put rows and model on the device.

        Raises:
            ConfigError: it is not here.
        """
        check_device(self.device)
        here = shards.to(self.device)
        model = self.build(shards).to(self.device)
        return Learner(model, here.features, here.labels, here.parts, training=self.spec.training)

    def judge(self, shards: Shards) -> Judge:
        """Return what measures a model on the rows that were kept to test on; nothing on none."""
        learner, rows = self.learner(shards), shards.test_features.to(self.device)
        labels = shards.test_labels.cpu().numpy()
        if not len(labels):
            return lambda weights: ()
        return lambda weights: measure_odds(
            learner.odds(weights.to(self.device), rows).cpu().numpy(), labels
        )


class Settings(TypedDict, total=False):
    """What else `FederatedSpec` can say about a run."""

    training: LocalTraining
    minimum: int
    drop_rate: float
    colluding_share: float
    server: Server
    cipher: Scheme
    threshold: int
    verified: bool
    largest_weight: int
    server_rate: float
    momentum: float
    patience: int


@final
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FederatedResult(Shown):
    """A trained model, and what its training was worth and spent.

    Attributes:
        model: the torch module, in the state for answering.
        spec: what was asked for.
        rounds: what every round did: measures on the test rows, ε so far, bytes, who dropped out.
        metrics: of the whole run, those of the last model first.
        claims: what is promised: first about the models, then about single updates.
        ledger: every mechanism that touched the data.
        notes: warnings, void rounds and refusals.
    """

    model: nn.Module
    spec: FederatedSpec
    rounds: tuple[RoundReport, ...]
    metrics: tuple[Metric, ...]
    claims: tuple[Claim, ...]
    ledger: Ledger
    notes: tuple[str, ...]

    @property
    def epsilon(self) -> float | None:
        """What all rounds spent; None without a guarantee. It goes with the three below."""
        return self.claims[0].epsilon

    @property
    def delta(self) -> float | None:
        """The δ of `epsilon`."""
        return self.claims[0].delta

    @property
    def relation(self) -> str | None:
        """What neighbouring data is: replacing one client, or one record more or less."""
        return self.claims[0].relation

    @property
    def accountant(self) -> str | None:
        """Who computed `epsilon`."""
        return self.claims[0].accountant

    def predict_proba(self, features: Any) -> NDArray[np.float32]:
        """Return the probability of every class, for every row."""
        rows = torch.from_numpy(numbers_of(features)).float()
        with torch.no_grad():
            found: NDArray[np.float32] = self.model(rows).softmax(-1).numpy()
        return found

    def predict(self, features: Any) -> NDArray[np.int64]:
        """Return the class of every row."""
        return np.asarray(self.predict_proba(features).argmax(-1))

    def _shown(self) -> tuple[str, Lines]:
        title = f"Federated, {self.spec.aggregator}, {len(self.rounds)} rounds"
        measured = [one for one in self.metrics if one.value is not None]
        return title, [
            ("privacy", describe(self.claims[0])),
            *((one.name, f"{one.value:.4g} {one.unit}".rstrip()) for one in measured),
            *(("note", note) for note in self.notes),
        ]


def fit(
    model: nn.Module | str,
    clients: Sequence[Handed],
    *,
    privacy: PrivacySpec | None = None,
    rounds: int = 10,
    aggregation: AggregatorName = "masked",
    test: Handed = None,
    engine: Engine = "local",
    on_round: OnRound = lambda report: None,
    **settings: Unpack[Settings],
) -> FederatedResult:
    """Train a classifier with simulated clients, each on its own rows.

    Args:
        model: a torch module that gives a number per class, or the name of one: "linear", "mlp",
            "cnn". Its weights stay as they are.
        clients: features and labels of each client: a pair of arrays or tensors, or a torch or
            Hugging Face data set (whose column "label" has the classes).
        privacy: what is promised, with the clip that secure aggregation needs; nothing, if not
            given.
        rounds: how many at most; the privacy is planned for all of them.
        aggregation: "masked" is secure aggregation, "plain" shows the server every update,
            "shuffled" is the shuffle model, "encrypted" adds ciphertexts, "keyed" has a key
            authority, "bounded" checks lengths between two servers.
        test: features and labels to measure every round on; they are in no claim.
        engine: "local" is this process; "flower" is Flower's simulation, on Ray.
        on_round: is shown every round as it ends.
        **settings: what else `FederatedSpec` takes: training, minimum, drop_rate, ….

    Guarantee: that of `claims`, towards those whom they name; all clients are simulated here, so
    that it says what the same spec gives on real nodes.
    Cost: the aggregator's.

    Raises:
        ConfigError: settings that do not go together, or a model that cannot be trained so.
        DataError: rows that do not go together.
    """
    shards = shard_rows(clients, test=test)
    build = _builder(model, shards)
    spec = FederatedSpec(
        clients=len(clients),
        rounds=rounds,
        aggregator=aggregation,
        privacy=privacy or PrivacySpec(),
        **settings,
    )
    task = Task(spec=spec, load=lambda: shards, build=build)
    reads_ids = any(isinstance(one, nn.Embedding) for one in build.model.modules())
    if not reads_ids and (far := shards.state_far()):
        _LOG.warning("%s", far)
    return _result(task, shards, train_federated(task, engine=engine, on_round=on_round))


def _builder(model: nn.Module | str, shards: Shards) -> "_Copy":
    if isinstance(model, str):
        model = build_model(model, shards.row_shape, shards.classes, seed=0)
    if next(model.buffers(), None) is not None:
        raise ConfigError(
            "wanted a model of parameters alone: statistics that layers keep beside them, as "
            "BatchNorm does, are not aggregated; use GroupNorm or LayerNorm"
        )
    found = copy.deepcopy(model).cpu().eval()
    with torch.no_grad():
        said = found(shards.features[:1])
    if said.dim() != 2 or said.shape[-1] < shards.classes:
        raise ConfigError(
            f"wanted a model that gives a number for each of {shards.classes} classes, got "
            f"{tuple(said.shape[1:])} for a row"
        )
    return _Copy(found)


@final
@dataclass(frozen=True)
class _Copy:
    """Gives a fresh copy of a model to whoever asks, in whatever process."""

    model: nn.Module

    def __call__(self, shards: Shards) -> nn.Module:
        return copy.deepcopy(self.model)


def _result(task: Task, shards: Shards, outcome: Outcome) -> FederatedResult:
    model = task.learner(shards).model_at(torch.from_numpy(outcome.weights).float())
    return FederatedResult(
        model=model.eval(),
        spec=task.spec,
        rounds=outcome.rounds,
        metrics=measures_of(outcome),
        claims=claims_of(task.spec, outcome),
        ledger=outcome.ledger,
        notes=notes_of(outcome),
    )


def train_federated(
    task: Task,
    *,
    engine: Engine = "local",
    on_round: OnRound = lambda report: None,
    prg: Prg | None = None,
) -> Outcome:
    """Run a task with simulated clients.

    Args:
        task: what is trained, on what, under which conditions.
        engine: "local" is this process; "flower" is Flower's simulation, on Ray.
        on_round: is shown every round as it ends.
        prg: draws batches and silence in the local engine; the system's generator, if not given.

    Guarantee: the spec's, towards those whom its claim names. All clients are of one process or
    machine here: it rests on whoever runs that.
    Cost: the aggregator's.
    """
    if engine not in ENGINES:
        raise ConfigError(f"the engine is one of {', '.join(ENGINES)}, got {engine!r}")
    if task.spec.public_key is not None:
        raise ConfigError(
            "public_key is that of clients elsewhere, whose secrets are not here; leave it out "
            "(federated.public_key of a job): simulated clients make keys of their own"
        )
    shards = task.load()
    judge = task.judge(shards)
    if engine == "flower":
        simulated: Outcome = _apps().simulate(task, judge=judge, on_round=on_round)
        return simulated
    learner, spec = task.learner(shards), task.spec
    spec, secrets = _provided(spec)
    local = LocalEngine(
        learner,
        find_aggregator(spec.aggregator),
        drop_rate=task.drops,
        prg=prg or Prg.from_os(),
        secrets=secrets,
    )
    if spec.keys is not None:
        others = sorted(spec.keys)[spec.clients :]  # named, and in no round here
        spec = replace(spec, keys=local.identities.union(others))
    outcome = run_rounds(local, learner.first_weights(), spec, judge=judge, on_round=on_round)
    return replace(outcome, clients_cpu_s=local.clients_cpu_s)


def rehearse(task: Task) -> tuple[RoundConfig, float, float, tuple[int, int]]:
    """Run one round in which nobody drops out; return its config, and what a client moved.

    The last two numbers are what a shuffler or an authority sends and receives, 0 without one.

    Every client trains one step: how long it trains does not change what it sends.
    """
    training = replace(task.spec.training, steps=1, batch=1)
    short = replace(task, spec=replace(task.spec, training=training), device="cpu")
    learner, meter = short.learner(task.load()), Meter()
    spec, secrets = _provided(task.spec)
    config = round_config(spec, learner.dimension)
    aggregator = find_aggregator(spec.aggregator)
    engine = LocalEngine(learner, aggregator, drop_rate=0.0, prg=Prg.from_os(), secrets=secrets)
    if config.keys is not None:
        config = replace(config, keys=engine.identities)
    engine.carry(learner.first_weights(), config, meter)
    helper = meter.up.get(HELPER, 0), meter.down.get(HELPER, 0)
    return config, per_client(meter.up, config), per_client(meter.down, config), helper


def _provided(spec: FederatedSpec) -> tuple[FederatedSpec, tuple[bytes, ...]]:
    """Make the keys of simulated clients, in place of those that the spec names."""
    return provision(spec, Prg.from_os()) if spec.needs_secrets else (spec, ())


def _apps() -> Any:
    """Load what needs Flower, which is heavy and optional; a module has no type, hence Any."""
    # Neither Flower nor Ray shall report to its makers unless the user says so; they look when
    # they are loaded, which is here.
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return load("federated.apps")
