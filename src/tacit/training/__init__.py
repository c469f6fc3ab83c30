"""Private training: data owners train a model that none of them can see."""

from tacit.training.ahead import plan_training
from tacit.training.checkpoint import Checkpoint, StateFolder
from tacit.training.loop import Trained, train
from tacit.training.optimise import OPTIMISERS, Optimiser
from tacit.training.plain import train_plain
from tacit.training.privacy import Privacy, PrivacyPlan
from tacit.training.programs import Programs
from tacit.training.task import Holding, TrainTask

__all__ = [
    "OPTIMISERS",
    "Checkpoint",
    "Holding",
    "Optimiser",
    "Privacy",
    "PrivacyPlan",
    "Programs",
    "StateFolder",
    "TrainTask",
    "Trained",
    "plan_training",
    "train",
    "train_plain",
]
