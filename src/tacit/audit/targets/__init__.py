"""What audits attack: models by how they were trained, with trainers of more like them."""

from tacit.audit.targets.federated import (
    FederatedTrainer,
    federated_target,
    rebuild_rows,
    target_of_rounds,
)
from tacit.audit.targets.own import (
    Build,
    DpTrainer,
    EstimatorTrainer,
    check_alike,
    check_apart,
    divide_by_column,
    draw_sides,
    load_sides,
    own_target,
    to_side,
    trainer_of,
)
from tacit.audit.targets.rounds import play_rounds
from tacit.audit.targets.split import SplitTrainer, split_target, target_of_split
from tacit.audit.targets.target import (
    Side,
    Target,
    Tested,
    audit_target,
    halve_rows,
    no_claim,
    picture_of,
    picture_of_set,
    show_classes,
    take_rows,
)
from tacit.audit.targets.training import PrivateTrainer, target_of_training, train_target

__all__ = [
    "Build",
    "DpTrainer",
    "EstimatorTrainer",
    "FederatedTrainer",
    "PrivateTrainer",
    "Side",
    "SplitTrainer",
    "Target",
    "Tested",
    "audit_target",
    "check_alike",
    "check_apart",
    "divide_by_column",
    "draw_sides",
    "federated_target",
    "halve_rows",
    "load_sides",
    "no_claim",
    "own_target",
    "picture_of",
    "picture_of_set",
    "play_rounds",
    "rebuild_rows",
    "show_classes",
    "split_target",
    "take_rows",
    "target_of_rounds",
    "target_of_split",
    "target_of_training",
    "to_side",
    "train_target",
    "trainer_of",
]
