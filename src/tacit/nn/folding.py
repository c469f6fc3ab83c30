"""Weights that are combined when a module is imported, so that a private run does less."""

from collections.abc import Mapping
from math import sqrt

import torch
from torch import Tensor, nn

from tacit.nn.running import key_of


def fold_weights(layers: Mapping[str, nn.Module], weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Fold the statistics of batch norms and the scale of attention into their weights."""
    for name, layer in layers.items():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            _fold_norm(name, layer, weights)
        if isinstance(layer, nn.MultiheadAttention):
            _fold_attention(name, layer, weights)
    return weights


def _fold_norm(
    name: str, layer: nn.BatchNorm1d | nn.BatchNorm2d, weights: dict[str, Tensor]
) -> None:
    """Replace statistics, gain and offset by one factor and one offset per channel."""
    mean, variance = (weights.pop(key_of(name, f"running_{what}")) for what in ("mean", "var"))
    gain = weights.pop(key_of(name, "weight"), torch.ones_like(mean))
    offset = weights.pop(key_of(name, "bias"), torch.zeros_like(mean))
    factor = gain / torch.sqrt(variance + layer.eps)
    weights[key_of(name, "factor")] = factor
    weights[key_of(name, "offset")] = offset - mean * factor


def _fold_attention(name: str, layer: nn.MultiheadAttention, weights: dict[str, Tensor]) -> None:
    """Cut the joint projection into three, and scale the queries by 1 / √width."""
    scale = 1 / sqrt(layer.head_dim)
    for what in ("weight", "bias"):
        joint = weights.pop(key_of(name, f"in_proj_{what}"), None)
        if joint is None:
            continue
        for which, part in zip("qkv", joint.chunk(3), strict=True):
            weights[key_of(name, f"{which}_{what}")] = part * (scale if which == "q" else 1.0)
