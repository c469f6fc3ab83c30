"""Federated learning from Python: train with simulated clients, or put privacy into a Flower app.

`fit` trains a torch model on the rows of many clients, of whose updates the server sees a sum
(secure aggregation) under noise that was computed before the first round. `PrivateStrategy` and
`client_mod` are the two lines that change in an app on Flower, which they need.
"""

from typing import TYPE_CHECKING

from tacit.federated.adaptive import attribute_scale
from tacit.federated.aggregators import AGGREGATORS, Aggregator, find_aggregator
from tacit.federated.calibration import CalibratedMechanism, calibrate
from tacit.federated.config import RoundConfig, round_config
from tacit.federated.contract import (
    Aggregate,
    ClientSide,
    Meter,
    Offer,
    Seat,
    ServerSide,
    Update,
    VoidRound,
    run_round,
)
from tacit.federated.data import FederatedData, Shards, divide_rows, join_rows, shard_rows
from tacit.federated.engine import LocalEngine
from tacit.federated.front import FederatedResult, Task, fit, task_of, train_federated
from tacit.federated.provision import provision
from tacit.federated.rounds import Carrier, Outcome, RoundReport, run_rounds
from tacit.federated.spec import (
    PRIVACIES,
    AdaptiveNoise,
    AggregatorName,
    Augment,
    Engine,
    FederatedModel,
    FederatedSpec,
    Federation,
    Mechanism,
    ModelName,
    Privacy,
    PrivacyKind,
    Training,
)
from tacit.federated.training import (
    MODELS,
    Learner,
    Stack,
    build_model,
    build_stack,
    flatten,
)
from tacit.plugins import load

if TYPE_CHECKING:
    from tacit.federated.flower import PrivateStrategy, client_mod

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
    "Engine",
    "FederatedData",
    "FederatedModel",
    "FederatedResult",
    "FederatedSpec",
    "Federation",
    "Learner",
    "LocalEngine",
    "Mechanism",
    "Meter",
    "ModelName",
    "Offer",
    "Outcome",
    "Privacy",
    "PrivacyKind",
    "PrivateStrategy",
    "RoundConfig",
    "RoundReport",
    "Seat",
    "ServerSide",
    "Shards",
    "Stack",
    "Task",
    "Training",
    "Update",
    "VoidRound",
    "attribute_scale",
    "build_model",
    "build_stack",
    "calibrate",
    "client_mod",
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
    "task_of",
    "train_federated",
]


def __getattr__(name: str) -> object:
    """Load what needs Flower when it is first used."""
    if name not in ("PrivateStrategy", "client_mod"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(load("federated.flower"), name)
