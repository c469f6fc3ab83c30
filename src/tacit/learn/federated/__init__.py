"""Federated learning: aggregation that hides the single update, on Flower or in one process."""

from tacit.learn.federated.adaptive import attribute_scale
from tacit.learn.federated.aggregators import AGGREGATORS, Aggregator, Seat, find_aggregator
from tacit.learn.federated.calibration import CalibratedMechanism, calibrate
from tacit.learn.federated.config import RoundConfig, round_config
from tacit.learn.federated.contract import (
    Aggregate,
    ClientSide,
    Meter,
    Offer,
    ServerSide,
    Update,
    VoidRound,
    run_round,
)
from tacit.learn.federated.data import Shards, divide_rows, join_rows, shard_rows
from tacit.learn.federated.engine import LocalEngine
from tacit.learn.federated.front import FederatedResult, Task, fit, train_federated
from tacit.learn.federated.models import (
    MODELS,
    ModelName,
    Stack,
    build_model,
    build_stack,
)
from tacit.learn.federated.provision import provision
from tacit.learn.federated.rounds import Carrier, Outcome, RoundReport, run_rounds
from tacit.learn.federated.spec import (
    PRIVACIES,
    AdaptiveNoise,
    AggregatorName,
    Augment,
    FederatedSpec,
    LocalTraining,
    Mechanism,
    Privacy,
    PrivacySpec,
)
from tacit.learn.federated.training import Learner, flatten

__all__ = [
    "AGGREGATORS",
    "MODELS",
    "PRIVACIES",
    "AdaptiveNoise",
    "Aggregate",
    "Aggregator",
    "AggregatorName",
    "Augment",
    "CalibratedMechanism",
    "Carrier",
    "ClientSide",
    "FederatedResult",
    "FederatedSpec",
    "Learner",
    "LocalEngine",
    "LocalTraining",
    "Mechanism",
    "Meter",
    "ModelName",
    "Offer",
    "Outcome",
    "Privacy",
    "PrivacySpec",
    "RoundConfig",
    "RoundReport",
    "Seat",
    "ServerSide",
    "Shards",
    "Stack",
    "Task",
    "Update",
    "VoidRound",
    "attribute_scale",
    "build_model",
    "build_stack",
    "calibrate",
    "divide_rows",
    "find_aggregator",
    "fit",
    "flatten",
    "join_rows",
    "provision",
    "round_config",
    "run_round",
    "run_rounds",
    "shard_rows",
    "train_federated",
]
