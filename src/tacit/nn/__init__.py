"""Models that do not know whether they are private."""

from tacit.nn.models import linear, logistic_class, logistic_score
from tacit.nn.ops import Ops, Weights
from tacit.nn.plain import TorchOps

__all__ = ["Ops", "TorchOps", "Weights", "linear", "logistic_class", "logistic_score"]
