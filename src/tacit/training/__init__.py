"""Private training: data owners train a model that none of them can see."""

from tacit.training.checkpoint import ShareCheckpoint, StateFolder
from tacit.training.loop import Trained, train
from tacit.training.optimise import OPTIMISERS, Optimiser
from tacit.training.plain import train_plain
from tacit.training.privacy import Privacy, PrivacyPlan
from tacit.training.programs import Programs
from tacit.training.schedule import plan_training
from tacit.training.task import HeldData, TrainTask

__all__ = [
    "OPTIMISERS",
    "HeldData",
    "Optimiser",
    "Privacy",
    "PrivacyPlan",
    "Programs",
    "ShareCheckpoint",
    "StateFolder",
    "TrainTask",
    "Trained",
    "plan_training",
    "train",
    "train_plain",
]
