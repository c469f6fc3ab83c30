"""What audits attack: models by how they were trained, with trainers of more like them."""

from tacit.audit.targets.federated import FederatedTrainer, target_of_rounds
from tacit.audit.targets.own import (
    Build,
    DpTrainer,
    EstimatorTrainer,
    load_sides,
    own_target,
    trainer_of,
)
from tacit.audit.targets.rounds import play_rounds
from tacit.audit.targets.split import SplitTrainer, split_target, target_of_split
from tacit.audit.targets.target import Target, audit_target, no_claim
from tacit.audit.targets.training import PrivateTrainer, target_of_training

__all__ = [
    "Build",
    "DpTrainer",
    "EstimatorTrainer",
    "FederatedTrainer",
    "PrivateTrainer",
    "SplitTrainer",
    "Target",
    "audit_target",
    "load_sides",
    "no_claim",
    "own_target",
    "play_rounds",
    "split_target",
    "target_of_rounds",
    "target_of_split",
    "target_of_training",
    "trainer_of",
]
