"""Private training: data owners train a model that none of them can see."""

from tacit.training.checkpoint import ShareCheckpoint, StateFolder
from tacit.training.loop import Trained, train, train_plain
from tacit.training.ops import OPTIMISERS
from tacit.training.plan import TrainPlan
from tacit.training.privacy import Privacy, PrivacyPlan
from tacit.training.programs import Programs
from tacit.training.schedule import plan_training
from tacit.training.spec import TrainData, Training, TrainModel, TrainProtection, TrainSpec

__all__ = [
    "OPTIMISERS",
    "Privacy",
    "PrivacyPlan",
    "Programs",
    "ShareCheckpoint",
    "StateFolder",
    "TrainData",
    "TrainModel",
    "TrainPlan",
    "TrainProtection",
    "TrainSpec",
    "Trained",
    "Training",
    "plan_training",
    "train",
    "train_plain",
]
