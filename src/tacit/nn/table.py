"""The table of layers that can be imported, and the options that they must have."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from tacit.errors import InputError
from tacit.nn import layers
from tacit.nn.calls import CALLS
from tacit.nn.encoders import encoder, encoder_layer, multihead
from tacit.nn.layers import BatchNorm
from tacit.nn.recurrent import gru, lstm
from tacit.nn.running import Running
from tacit.nn.windows import convolution_layer, transposed_layer

Layer = Callable[..., Any]
"""Is called with the run, its name, the module, and what the graph passes."""


def _like(call: str, *options: str, weights: Sequence[str] = ()) -> Layer:
    """Make a layer of a function: its weights and options are what the function is given."""

    def apply(run: Running, name: str, layer: nn.Module, x: Any) -> Any:
        held = {one: run.weight(name, one) for one in weights}
        return CALLS[call](run, x, **held, **{one: getattr(layer, one) for one in options})

    return apply


def _unflatten(run: Running, name: str, layer: Any, x: Any) -> Any:
    return layers.unflatten(run, x, layer.dim, layer.unflattened_size)


_FIXED = ("kernel_size", "stride", "padding")

LAYERS: dict[type[nn.Module], Layer] = {
    nn.AdaptiveAvgPool1d: _like("adaptive_avg_pool1d", "output_size"),
    nn.AdaptiveAvgPool2d: _like("adaptive_avg_pool2d", "output_size"),
    nn.AdaptiveMaxPool1d: _like("adaptive_max_pool1d", "output_size"),
    nn.AdaptiveMaxPool2d: _like("adaptive_max_pool2d", "output_size"),
    nn.AvgPool1d: _like("avg_pool1d", *_FIXED),
    nn.AvgPool2d: _like("avg_pool2d", *_FIXED),
    nn.BatchNorm1d: layers.batch_norm,
    nn.BatchNorm2d: layers.batch_norm,
    nn.Conv1d: convolution_layer(1),
    nn.Conv2d: convolution_layer(2),
    nn.ConvTranspose1d: transposed_layer(1),
    nn.ConvTranspose2d: transposed_layer(2),
    nn.Dropout: _like("dropout"),
    nn.Dropout1d: _like("dropout"),
    nn.Dropout2d: _like("dropout"),
    nn.Embedding: _like("embedding", "padding_idx", weights=("weight",)),
    nn.Flatten: _like("flatten", "start_dim", "end_dim"),
    nn.GELU: _like("gelu"),
    nn.GRU: gru,
    nn.GroupNorm: _like("group_norm", "num_groups", "eps", weights=("weight", "bias")),
    nn.Hardsigmoid: _like("hardsigmoid"),
    nn.Hardswish: _like("hardswish"),
    nn.Hardtanh: _like("hardtanh", "min_val", "max_val"),
    nn.Identity: _like("clone"),
    nn.LSTM: lstm,
    nn.LayerNorm: layers.layer_norm,
    nn.LeakyReLU: _like("leaky_relu", "negative_slope"),
    nn.Linear: layers.linear,
    nn.LogSoftmax: _like("log_softmax", "dim"),
    nn.MaxPool1d: _like("max_pool1d", *_FIXED),
    nn.MaxPool2d: _like("max_pool2d", *_FIXED),
    nn.modules.linear.NonDynamicallyQuantizableLinear: layers.linear,
    nn.MultiheadAttention: multihead,
    nn.ReLU: _like("relu"),
    nn.ReLU6: _like("relu6"),
    nn.RMSNorm: _like("rms_norm", "normalized_shape", "eps", weights=("weight",)),
    nn.SiLU: _like("silu"),
    nn.Sigmoid: _like("sigmoid"),
    nn.Softmax: _like("softmax", "dim"),
    nn.Softplus: _like("softplus"),
    nn.Tanh: _like("tanh"),
    nn.TransformerEncoder: encoder,
    nn.TransformerEncoderLayer: encoder_layer,
    nn.Unflatten: _unflatten,
}
"""Layers that can be imported. Dropout and batch norm are those of a model in use."""

_AVERAGE = {"ceil_mode": False, "count_include_pad": True, "divisor_override": None}
_MAXIMUM = {"ceil_mode": False, "dilation": 1, "return_indices": False}
_TABLE = {"max_norm": None, "scale_grad_by_freq": False}
_SOFT = {"beta": 1.0, "threshold": 20.0}

OPTIONS: dict[type[nn.Module], dict[str, Any]] = {
    nn.AdaptiveMaxPool1d: {"return_indices": False},
    nn.AdaptiveMaxPool2d: {"return_indices": False},
    nn.AvgPool1d: _AVERAGE,
    nn.AvgPool2d: _AVERAGE,
    nn.Conv1d: {"padding_mode": "zeros"},
    nn.Conv2d: {"padding_mode": "zeros"},
    nn.Embedding: _TABLE,
    nn.MaxPool1d: _MAXIMUM,
    nn.MaxPool2d: _MAXIMUM,
    nn.MultiheadAttention: {"_qkv_same_embed_dim": True, "bias_k": None, "add_zero_attn": False},
    nn.Softplus: _SOFT,
}
"""Options that a layer must have; others are refused when the module is imported."""

CALL_OPTIONS: dict[str, dict[str, Any]] = {
    "adaptive_max_pool1d": {"return_indices": False},
    "adaptive_max_pool2d": {"return_indices": False},
    "avg_pool1d": _AVERAGE,
    "avg_pool2d": _AVERAGE,
    "batch_norm": {"training": False},
    "div": {"rounding_mode": None},
    "embedding": _TABLE,
    "max_pool1d": _MAXIMUM,
    "max_pool2d": _MAXIMUM,
    "softplus": _SOFT,
}
"""Options that a function must have: those of the layers, where they are parameters."""


def check_options(name: str, layer: nn.Module) -> None:
    """Refuse the options of supported layers that we do not have."""
    wanted = OPTIONS.get(type(layer), {})
    given = {option: getattr(layer, option) for option in wanted if hasattr(layer, option)}
    _check_values(f"layer {name!r}", wanted, given)
    if isinstance(layer, nn.LayerNorm | nn.RMSNorm):
        layers.check_normalised(layer.normalized_shape, f"layer {name!r}: ")
    if isinstance(layer, BatchNorm) and layer.running_mean is None:
        raise InputError(f"layer {name!r}: wanted running statistics, got {layer}")
    for part, inner in layer.named_children():
        check_options(f"{name}.{part}", inner)


def check_call(place: str, name: str, given: Mapping[str, Any]) -> None:
    """Refuse the options of supported functions that we do not have."""
    _check_values(place, CALL_OPTIONS.get(name, {}), given)
    shape = given.get("normalized_shape")
    if isinstance(shape, tuple | list):  # else it is computed of an input's shape
        layers.check_normalised(shape, f"{place}: ")


def _check_values(place: str, wanted: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    for option, value in given.items():
        # Torch takes a number for a pair of them.
        if option in wanted and value != wanted[option] and set(_parts(value)) != {wanted[option]}:
            raise InputError(
                f"{place}: {option} must be {wanted[option]}, got {value}; other values are not "
                "supported"
            )


def _parts(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)
