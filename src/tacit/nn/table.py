"""The table of layers that can be imported, and the options that they must have."""

from typing import Any

from torch import nn

from tacit.errors import InputError
from tacit.nn import layers
from tacit.nn.encoders import encoder, encoder_layer, multihead
from tacit.nn.layers import BatchNorm, Layer

LAYERS: dict[type[nn.Module], Layer] = {
    nn.AdaptiveAvgPool1d: layers.adaptive_layer,
    nn.AdaptiveAvgPool2d: layers.adaptive_layer,
    nn.AvgPool1d: layers.pool_layer("avg_pool2d"),
    nn.AvgPool2d: layers.pool_layer("avg_pool2d"),
    nn.BatchNorm1d: layers.batch_norm,
    nn.BatchNorm2d: layers.batch_norm,
    nn.Conv1d: layers.convolution,
    nn.Conv2d: layers.convolution,
    nn.Dropout: layers.same,
    nn.Dropout1d: layers.same,
    nn.Dropout2d: layers.same,
    nn.Embedding: layers.embedding,
    nn.Flatten: layers.flatten_layer,
    nn.GELU: layers.function("gelu"),
    nn.GroupNorm: layers.group_norm,
    nn.Hardsigmoid: layers.hardsigmoid,
    nn.Hardswish: layers.hardswish,
    nn.Hardtanh: layers.clamp,
    nn.Identity: layers.same,
    nn.LayerNorm: layers.layer_norm,
    nn.LeakyReLU: layers.leaky_relu,
    nn.Linear: layers.linear,
    nn.LogSoftmax: layers.softmax,
    nn.MaxPool1d: layers.pool_layer("max_pool2d"),
    nn.MaxPool2d: layers.pool_layer("max_pool2d"),
    nn.modules.linear.NonDynamicallyQuantizableLinear: layers.linear,
    nn.MultiheadAttention: multihead,
    nn.ReLU: layers.relu_layer,
    nn.ReLU6: layers.clamp,
    nn.RMSNorm: layers.rms_norm,
    nn.SiLU: layers.function("silu"),
    nn.Sigmoid: layers.function("sigmoid"),
    nn.Softmax: layers.softmax,
    nn.Softplus: layers.function("softplus"),
    nn.Tanh: layers.function("tanh"),
    nn.TransformerEncoder: encoder,
    nn.TransformerEncoderLayer: encoder_layer,
    nn.Unflatten: layers.unflatten,
}
"""Layers that can be imported. Dropout and batch norm are those of a model in use."""

OPTIONS: dict[type[nn.Module], dict[str, Any]] = {
    nn.AvgPool1d: {"ceil_mode": False, "count_include_pad": True},
    nn.AvgPool2d: {"ceil_mode": False, "count_include_pad": True, "divisor_override": None},
    nn.Conv1d: {"groups": 1, "dilation": (1,), "padding_mode": "zeros"},
    nn.Conv2d: {"groups": 1, "dilation": (1, 1), "padding_mode": "zeros"},
    nn.Embedding: {"max_norm": None, "scale_grad_by_freq": False},
    nn.MaxPool1d: {"ceil_mode": False, "dilation": 1, "return_indices": False},
    nn.MaxPool2d: {"ceil_mode": False, "dilation": 1, "return_indices": False},
    nn.MultiheadAttention: {"_qkv_same_embed_dim": True, "bias_k": None, "add_zero_attn": False},
    nn.Softplus: {"beta": 1.0, "threshold": 20.0},
}
"""Options that a layer must have; others are refused when the module is imported."""


def check_options(name: str, layer: nn.Module) -> None:
    """Refuse the options of supported layers that we do not have."""
    for option, wanted in OPTIONS.get(type(layer), {}).items():
        got = getattr(layer, option)
        if got != wanted:
            raise InputError(
                f"layer {name!r}: {option} must be {wanted}, got {got} in {layer}; other values "
                "are not supported"
            )
    if isinstance(layer, nn.Conv1d | nn.Conv2d) and isinstance(layer.padding, str):
        raise InputError(f"layer {name!r}: wanted padding in numbers, got {layer.padding!r}")
    if isinstance(layer, nn.LayerNorm | nn.RMSNorm) and len(layer.normalized_shape) != 1:
        raise InputError(f"layer {name!r}: wanted the last dimension alone, got {layer}")
    if isinstance(layer, BatchNorm) and layer.running_mean is None:
        raise InputError(f"layer {name!r}: wanted running statistics, got {layer}")
    for part, inner in layer.named_children():
        check_options(f"{name}.{part}", inner)
