"""Weights that are combined when a module is imported, so that a private run does less."""

from collections.abc import Mapping
from math import sqrt

import torch
from torch import Tensor, nn

from tacit.nn.running import NORM, ROWS, key_of, row_gain


def fold_weights(layers: Mapping[str, nn.Module], weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Fold the statistics of batch norms and the scale of attention into their weights."""
    for name, layer in layers.items():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            _fold_norm(name, layer, weights)
        if isinstance(layer, nn.MultiheadAttention):
            _fold_attention(name, layer, weights)
    return weights


def unfold_weights(
    layers: Mapping[str, nn.Module], weights: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Undo `fold_weights`: give weights the names and shapes that the module has for them."""
    for name, layer in layers.items():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            _unfold_norm(name, layer, weights)
        if isinstance(layer, nn.MultiheadAttention):
            _unfold_attention(name, layer, weights)
    return weights


def gains_of(layers: Mapping[str, nn.Module], weights: Mapping[str, Tensor]) -> dict[str, float]:
    """Say of every matrix how much larger than its input a product with it can be."""
    turned = {
        key_of(name, "weight"): layer.groups
        for name, layer in layers.items()
        if isinstance(layer, nn.ConvTranspose1d | nn.ConvTranspose2d)
    }
    return {
        name: row_gain(_outputs_first(value, turned[name]) if name in turned else value)
        for name, value in weights.items()
        if value.dim() > 1
    }


def lengths_of(weights: Mapping[str, Tensor]) -> dict[str, float]:
    """Say of every weight how long its rows are, and of a matrix how much it stretches a row.

    Rounding to fixed point may add half a unit of 2^-10 (or finer) to every element.
    """
    found = {}
    for name, value in weights.items():
        if 1 <= value.dim() <= 2:
            rows = value.detach().double().reshape(-1, value.shape[-1])
            found[ROWS.format(name)] = float(rows.norm(dim=1).max()) + _rounded(rows.shape[1])
            if value.dim() == 2:
                # The smaller of W·Wᵀ and Wᵀ·W: its largest eigenvalue is the square of the norm.
                small = rows if rows.shape[0] <= rows.shape[1] else rows.T
                largest = float(torch.linalg.eigvalsh(small @ small.T)[-1])
                found[NORM.format(name)] = sqrt(max(largest, 0.0)) + _rounded(rows.numel())
    return found


def _rounded(elements: int) -> float:
    return 2.0**-11 * sqrt(elements)


def _outputs_first(weight: Tensor, groups: int) -> Tensor:
    """Turn the weights of a transposed convolution, (inputs, outputs / groups, …), round."""
    return weight.reshape(groups, -1, *weight.shape[1:]).transpose(1, 2).flatten(0, 1)


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


def _unfold_norm(
    name: str, layer: nn.BatchNorm1d | nn.BatchNorm2d, weights: dict[str, Tensor]
) -> None:
    """Put a factor and an offset where they mean the same beside the statistics of the layer."""
    factor, offset = (weights.pop(key_of(name, what)) for what in ("factor", "offset"))
    if layer.affine:
        own = dict(layer.named_buffers())
        mean, variance = (own[f"running_{what}"].to(factor) for what in ("mean", "var"))
        gain, bias = factor * torch.sqrt(variance + layer.eps), offset + mean * factor
        weights |= {key_of(name, "weight"): gain, key_of(name, "bias"): bias}
    else:
        mean, variance = -offset / factor, factor**-2 - layer.eps
    weights |= {key_of(name, "running_mean"): mean, key_of(name, "running_var"): variance}


def _unfold_attention(name: str, layer: nn.MultiheadAttention, weights: dict[str, Tensor]) -> None:
    for what in ("weight", "bias"):
        parts = [weights.pop(key_of(name, f"{which}_{what}"), None) for which in "qkv"]
        whole = [one for one in parts if one is not None]
        if whole:
            whole[0] = whole[0] * sqrt(layer.head_dim)
            weights[key_of(name, f"in_proj_{what}")] = torch.cat(whole)


def _fold_attention(name: str, layer: nn.MultiheadAttention, weights: dict[str, Tensor]) -> None:
    """Cut the joint projection into three, and scale the queries by 1 / √width."""
    scale = 1 / sqrt(layer.head_dim)
    for what in ("weight", "bias"):
        joint = weights.pop(key_of(name, f"in_proj_{what}"), None)
        if joint is None:
            continue
        for which, part in zip("qkv", joint.chunk(3), strict=True):
            weights[key_of(name, f"{which}_{what}")] = part * (scale if which == "q" else 1.0)
