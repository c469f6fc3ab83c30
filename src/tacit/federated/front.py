"""A federated run, whole: as a task, and as one call on a model and the rows of every client."""

import copy
import functools
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tacit.data.memory import Handed, numbers_of
from tacit.data.metrics import measure_odds
from tacit.dp import Ledger
from tacit.errors import ConfigError
from tacit.federated.aggregators import find_aggregator
from tacit.federated.config import RoundConfig, round_config
from tacit.federated.contract import HELPER, Meter
from tacit.federated.data import FederatedData, Shards, load_shards, shard_rows
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
from tacit.federated.spec import (
    ENGINES,
    AggregatorName,
    Engine,
    FederatedModel,
    FederatedSpec,
    Federation,
    Privacy,
    Training,
)
from tacit.federated.summary import claims_of, describe, measures_of, notes_of
from tacit.federated.training import Learner, build_model, build_named
from tacit.notebook import Lines, Shown
from tacit.plugins import load
from tacit.result import Claim, Metric
from tacit.ring import Prg, check_device

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a run needs.

    Attributes:
        spec: what all sides hold to.
        load: gives the rows; processes of a simulation call it, each for itself.
        build: makes the model for them, with its first weights.
    """

    spec: FederatedSpec
    load: Callable[[], Shards]
    build: Callable[[Shards], nn.Module]

    @property
    def device(self) -> str:
        """Where the model is trained."""
        return self.spec.train.device

    def learner(self, shards: Shards) -> Learner:
        """Put rows and model on the device.

        Raises:
            ConfigError: it is not here.
        """
        check_device(self.device)
        here = shards.to(self.device)
        model = self.build(shards).to(self.device)
        return Learner(model, here.features, here.labels, here.parts, training=self.spec.train)

    def judge(self, shards: Shards) -> Judge:
        """Return what measures a model on the rows that were kept to test on; nothing on none."""
        learner, rows = self.learner(shards), shards.test_features.to(self.device)
        labels = shards.test_labels.cpu().numpy()
        if not len(labels):
            return lambda weights: ()
        return lambda weights: measure_odds(
            learner.odds(weights.to(self.device), rows).cpu().numpy(), labels
        )


def task_of(spec: FederatedSpec, search: Sequence[Path] = (), *, clients: int = 0) -> Task:
    """Return the task of a spec that names its rows and its model.

    Args:
        spec: what is asked for.
        search: folders that may hold data sets.
        clients: among how many its rows are divided; all of them, if not given. A node's own rows
            are those of one.
    """
    if spec.data is None:
        raise ConfigError("wanted a spec that names its rows, got none in data")
    count = clients or spec.federated.clients
    load = functools.partial(load_shards, spec.data, count, tuple(search))
    return Task(spec=spec, load=load, build=functools.partial(build_named, spec.model))


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
        title = f"Federated, {self.spec.federated.aggregator}, {len(self.rounds)} rounds"
        measured = [one for one in self.metrics if one.value is not None]
        return title, [
            ("privacy", describe(self.claims[0])),
            *((one.name, f"{one.value:.4g} {one.unit}".rstrip()) for one in measured),
            *(("note", note) for note in self.notes),
        ]


def fit(
    model: nn.Module | str | FederatedModel,
    clients: Sequence[Handed] | FederatedData,
    *,
    rounds: int | None = None,
    aggregator: AggregatorName | None = None,
    minimum: int | None = None,
    drop_rate: float | None = None,
    colluding_share: float | None = None,
    engine: Engine | None = None,
    federated: Federation | None = None,
    privacy: Privacy | None = None,
    train: Training | None = None,
    test: Handed = None,
    on_round: OnRound = lambda report: None,
) -> FederatedResult:
    """Train a classifier with simulated clients, each on its own rows.

    Args:
        model: a torch module that gives a number per class, whose weights stay as they are; the
            name of one, "linear", "mlp" or "cnn"; or what is said of it in a job file.
        clients: features and labels of each client: a pair of arrays or tensors, or a torch or
            Hugging Face data set (whose column "label" has the classes); or a set that is divided
            among as many as ``federated`` says.
        rounds: how many at most; the privacy is planned for all of them. 10, if not given.
        aggregator: "masked", which is usual, is secure aggregation, "plain" shows the server every
            update, "shuffled" is the shuffle model, "encrypted" adds ciphertexts, "keyed" has a key
            authority, "bounded" checks lengths between two servers.
        minimum: fewest clients whose mean is shown; 0.6 of them, if not given.
        drop_rate: the share of clients that may fall silent in a round; 0.1, if not given.
        colluding_share: the share of clients that may work with the server; 0.1, if not given.
        engine: "local", which is usual, is this process; "flower" is Flower's simulation, on Ray.
        federated: all that can be said about who takes part; those above stand for its own.
        privacy: what is promised, with the clip that secure aggregation needs; nothing, if not
            given.
        train: how a client trains, and how the server goes on.
        test: features and labels to measure every round on; they are in no claim.
        on_round: is shown every round as it ends.

    Guarantee: that of `claims`, towards those whom they name; all clients are simulated here, so
    that it says what the same spec gives on real nodes.
    Cost: the aggregator's.

    Raises:
        ConfigError: settings that do not go together, or a model that cannot be trained so.
        DataError: rows that do not go together.
    """
    said = {
        "rounds": rounds,
        "aggregator": aggregator,
        "minimum": minimum,
        "drop_rate": drop_rate,
        "colluding_share": colluding_share,
        "engine": engine,
    }
    shorts: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    named = clients if isinstance(clients, FederatedData) else None
    if named is None:
        shards = shard_rows(cast("Sequence[Handed]", clients), test=test)
        count = len(shards.parts)
    else:
        count = len(named.files) if federated is None else federated.clients
    if federated is None:
        federated = Federation(clients=count, **{"rounds": 10, **shorts})
    elif federated.clients != count:
        raise ConfigError(
            f"federated.clients: wanted {count}, as many as have rows, got {federated.clients}"
        )
    else:
        federated = replace(federated, **shorts)
    spec = FederatedSpec(
        federated=federated,
        data=named,
        model=model if isinstance(model, FederatedModel) else FederatedModel(),
        privacy=privacy or Privacy(),
        train=train or Training(),
    )
    if named is not None:
        shards = task_of(spec).load()
    first = _checked(model, shards)
    task = Task(spec=spec, load=lambda: shards, build=lambda _: copy.deepcopy(first))
    reads_ids = any(isinstance(one, nn.Embedding) for one in first.modules())
    if not reads_ids and (far := shards.state_far()):
        _LOG.warning("%s", far)
    outcome = train_federated(task, on_round=on_round)
    learned = task.learner(shards).model_at(torch.from_numpy(outcome.weights).float())
    return FederatedResult(
        model=learned.eval(),
        spec=spec,
        rounds=outcome.rounds,
        metrics=measures_of(outcome),
        claims=claims_of(spec, outcome),
        ledger=outcome.ledger,
        notes=notes_of(outcome),
    )


def _checked(model: nn.Module | str | FederatedModel, shards: Shards) -> nn.Module:
    """Return a copy of a model that can be trained so, built where it is named."""
    if isinstance(model, str):
        model = build_model(model, shards.row_shape, shards.classes, seed=0)
    elif isinstance(model, FederatedModel):
        model = build_named(model, shards)
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
    return found


def train_federated(
    task: Task, *, on_round: OnRound = lambda report: None, prg: Prg | None = None
) -> Outcome:
    """Run a task with simulated clients, on the engine that its spec names.

    Args:
        task: what is trained, on what, under which conditions.
        on_round: is shown every round as it ends.
        prg: draws batches and silence in the local engine; the system's generator, if not given.

    Guarantee: the spec's, towards those whom its claim names. All clients are of one process or
    machine here: it rests on whoever runs that.
    Cost: the aggregator's.
    """
    fed = task.spec.federated
    if fed.engine not in ENGINES:
        raise ConfigError(f"the engine is one of {', '.join(ENGINES)}, got {fed.engine!r}")
    if fed.public_key is not None:
        raise ConfigError(
            "federated.public_key: that of clients on nodes of their own; leave it out here, "
            "simulated clients make keys themselves"
        )
    shards = task.load()
    judge = task.judge(shards)
    if fed.engine == "flower":
        simulated: Outcome = _apps().simulate(task, judge=judge, on_round=on_round)
        return simulated
    learner = task.learner(shards)
    engine, config = _simulate(task.spec, learner, prg or Prg.from_os(), fed.simulated_drops)
    outcome = run_rounds(
        engine,
        learner.first_weights(),
        config.spec,
        judge=judge,
        on_round=on_round,
        config=config,
    )
    return replace(outcome, clients_cpu_s=engine.clients_cpu_s)


def rehearse(task: Task) -> tuple[RoundConfig, float, float, tuple[int, int]]:
    """Run one round in which nobody drops out; return its config, and what a client moved.

    The last two numbers are what a shuffler or an authority sends and receives, 0 without one.

    Every client trains one step: how long it trains does not change what it sends.
    """
    short = replace(task.spec.train, steps=1, batch=1, device="cpu")
    learner = replace(task, spec=replace(task.spec, train=short)).learner(task.load())
    engine, config = _simulate(task.spec, learner, Prg.from_os(), 0.0)
    meter = Meter()
    engine.carry(learner.first_weights(), config, meter)
    helper = meter.up.get(HELPER, 0), meter.down.get(HELPER, 0)
    return config, per_client(meter.up, config), per_client(meter.down, config), helper


def _simulate(
    spec: FederatedSpec, learner: Learner, prg: Prg, drop_rate: float
) -> tuple[LocalEngine, RoundConfig]:
    """Make a local engine, whose clients have keys of their own in place of those in the spec."""
    fed, known = spec.federated, find_aggregator(spec.federated.aggregator)
    made = provision(spec, Prg.from_os()) if fed.needs_secrets else (None, ())
    public_key, secrets = made
    engine = LocalEngine(learner, known, drop_rate=drop_rate, prg=prg, secrets=secrets)
    if fed.identities is not None:
        others = sorted(fed.identities)[fed.clients :]  # named, and in no round here
        keys = tuple(one.hex() for one in sorted(engine.identities.union(others)))
        spec = replace(spec, federated=replace(fed, keys=keys))
    return engine, round_config(spec, learner.dimension, public_key=public_key)


def _apps() -> Any:
    """Load what needs Flower, which is heavy and optional; a module has no type, hence Any."""
    # Neither Flower nor Ray shall report to its makers unless the user says so; they look when
    # they are loaded, which is here.
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return load("federated.apps")
