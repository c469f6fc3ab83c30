"""Models that do not know whether they are private."""

from tacit.nn.adapters import Adapted, add_adapters, merge_adapters
from tacit.nn.code import OwnModel, allow, build_network
from tacit.nn.described import (
    Model,
    Square,
    as_input,
    make_any_model,
    make_model,
    make_token_model,
    parse_layers,
)
from tacit.nn.features import HistogramsOfGradients, ImageNetwork, TextNetwork
from tacit.nn.gradient import GradientOps, pull_back
from tacit.nn.imported import Imported, import_module
from tacit.nn.models import attention, causal_mask, linear, logistic_class, logistic_score
from tacit.nn.ops import Ops, TrainableOps, Weights
from tacit.nn.plain import TorchOps
from tacit.nn.running import quarters_of, row_gain, size_of
from tacit.nn.weights import load_weights, read_facts, read_weights, to_safetensors

__all__ = [
    "Adapted",
    "GradientOps",
    "HistogramsOfGradients",
    "ImageNetwork",
    "Imported",
    "Model",
    "Ops",
    "OwnModel",
    "Square",
    "TextNetwork",
    "TorchOps",
    "TrainableOps",
    "Weights",
    "add_adapters",
    "allow",
    "as_input",
    "attention",
    "build_network",
    "causal_mask",
    "import_module",
    "linear",
    "load_weights",
    "logistic_class",
    "logistic_score",
    "make_any_model",
    "make_model",
    "make_token_model",
    "merge_adapters",
    "parse_layers",
    "pull_back",
    "quarters_of",
    "read_facts",
    "read_weights",
    "row_gain",
    "size_of",
    "to_safetensors",
]
