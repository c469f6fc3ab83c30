"""Models that do not know whether they are private."""

from tacit.nn.imported import Imported, import_module
from tacit.nn.models import linear, logistic_class, logistic_score
from tacit.nn.ops import Ops, Weights
from tacit.nn.plain import TorchOps

__all__ = [
    "Imported",
    "Ops",
    "TorchOps",
    "Weights",
    "import_module",
    "linear",
    "logistic_class",
    "logistic_score",
]
