"""Private training: data owners train a model that none of them can see."""

from tacit.learn.training.ahead import plan_training
from tacit.learn.training.checkpoint import Checkpoint, StateFolder
from tacit.learn.training.loop import Trained, train
from tacit.learn.training.optimise import OPTIMISERS, Optimiser
from tacit.learn.training.plain import train_plain
from tacit.learn.training.privacy import Privacy, PrivacyPlan
from tacit.learn.training.programs import Programs
from tacit.learn.training.task import Holding, TrainTask

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
