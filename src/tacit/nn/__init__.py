"""Models that do not know whether they are private."""

from tacit.nn.attention import attention, causal_mask, rotary, self_attention
from tacit.nn.gradient import GradientOps
from tacit.nn.imported import Imported, import_module
from tacit.nn.models import Block, linear, logistic_class, logistic_score, transformer_block
from tacit.nn.ops import Ops, TrainableOps, Weights
from tacit.nn.plain import TorchOps
from tacit.nn.running import quarters_of, row_gain, size_of
from tacit.nn.tape import pull_back

__all__ = [
    "Block",
    "GradientOps",
    "Imported",
    "Ops",
    "TorchOps",
    "TrainableOps",
    "Weights",
    "attention",
    "causal_mask",
    "import_module",
    "linear",
    "logistic_class",
    "logistic_score",
    "pull_back",
    "quarters_of",
    "rotary",
    "row_gain",
    "self_attention",
    "size_of",
    "transformer_block",
]
