"""Models that do not know whether they are private."""

from tacit.nn.adapters import Adapted, add_adapters, merge_adapters
from tacit.nn.attention import attention, causal_mask, rotary, self_attention
from tacit.nn.described import (
    Model,
    Square,
    as_input,
    make_any_model,
    make_model,
    make_token_model,
    parse_layers,
)
from tacit.nn.gradient import GradientOps
from tacit.nn.imported import Imported, import_module
from tacit.nn.models import Block, linear, logistic_class, logistic_score, transformer_block
from tacit.nn.ops import Ops, TrainableOps, Weights
from tacit.nn.plain import TorchOps
from tacit.nn.running import quarters_of, row_gain, size_of
from tacit.nn.tape import pull_back

__all__ = [
    "Adapted",
    "Block",
    "GradientOps",
    "Imported",
    "Model",
    "Ops",
    "Square",
    "TorchOps",
    "TrainableOps",
    "Weights",
    "add_adapters",
    "as_input",
    "attention",
    "causal_mask",
    "import_module",
    "linear",
    "logistic_class",
    "logistic_score",
    "make_any_model",
    "make_model",
    "make_token_model",
    "merge_adapters",
    "parse_layers",
    "pull_back",
    "quarters_of",
    "rotary",
    "row_gain",
    "self_attention",
    "size_of",
    "transformer_block",
]
