"""Layer-wise relevance: how much each input and each layer contributed to a network's answer.

The ε-rule of Bach et al. (2015): a layer hands the relevance of its outputs back to its inputs in
proportion to a_i·w_ij. Biases take no part, so what goes in comes out: relevance is conserved up to
the stabiliser.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.errors import ConfigError, DataError

_STABILISER = 1e-6
_PASSES = (nn.ReLU, nn.Dropout, nn.Identity, nn.Tanh, nn.Sigmoid, nn.GELU, nn.LeakyReLU)
_SPREADS = (nn.Linear, nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d)


@dataclass(frozen=True)
class Relevance:
    """What one pass back through a network found.

    Attributes:
        inputs: relevance of every input, of the shape of the batch.
        layers: for each layer with weights, by its name in the network, the relevance that reached
            its inputs, in absolute value, one sum per row.
    """

    inputs: Tensor
    layers: dict[str, Tensor]


def relevance(model: nn.Sequential, x: Tensor, labels: Tensor | None = None) -> Relevance:
    """Trace the score of each row's class back to the inputs.

    Args:
        model: linear and convolutional layers, pooling, element-wise activations, reshaping.
        x: a batch.
        labels: the classes to explain; by default those that the model prefers.

    Raises:
        ConfigError: a layer is of a kind that relevance cannot pass.
    """
    activations = _forward(model, x)
    scores = activations[-1]
    if scores.dim() != 2:
        raise DataError(f"the model must end in one score per class, got {tuple(scores.shape)}")
    chosen = scores.argmax(dim=1) if labels is None else labels
    flowing = torch.zeros_like(scores).scatter_(1, chosen.view(-1, 1), 1.0) * scores
    layers: dict[str, Tensor] = {}
    named = list(model.named_children())
    for (name, layer), given in zip(reversed(named), reversed(activations[:-1]), strict=True):
        flowing = _back(layer, given, flowing)
        if isinstance(layer, nn.Linear | nn.Conv2d):
            layers[name] = flowing.abs().flatten(1).sum(dim=1)
    return Relevance(flowing.view_as(x), dict(reversed(layers.items())))


def contributions(found: Tensor) -> Tensor:
    """Turn relevances of rows into shares that add up to one, in absolute value, row by row."""
    flat = found.detach().abs().flatten(1).to(torch.float64)
    if not bool(torch.isfinite(flat).all()):
        raise DataError("relevance is NaN or infinite; the model has diverged")
    total = flat.sum(dim=1, keepdim=True)
    even = torch.full_like(flat, 1 / flat.shape[1])
    return torch.where(total > 0, flat / total.clamp_min(1e-300), even)


def _forward(model: nn.Sequential, x: Tensor) -> list[Tensor]:
    """Return the input of every layer, and the output of the last."""
    model.eval()
    activations = [x]
    with torch.no_grad():
        for layer in model:
            activations.append(layer(activations[-1]))
    return activations


def _back(layer: nn.Module, given: Tensor, flowing: Tensor) -> Tensor:
    """Hand relevance from a layer's outputs to its inputs."""
    if isinstance(layer, _PASSES):
        return flowing
    if isinstance(layer, _SPREADS):
        return _spread(_without_bias(layer), given, flowing)
    if not list(layer.parameters()) and flowing.numel() == given.numel():
        return flowing.reshape(given.shape)  # a change of shape
    raise ConfigError(f"relevance cannot pass a layer of the kind {type(layer).__name__}")


def _spread(apply: Callable[[Tensor], Tensor], given: Tensor, flowing: Tensor) -> Tensor:
    """Compute a · ∂z/∂a of the relevance per output z, which is Σ_j a_i w_ij R_j / z_j."""
    with torch.enable_grad():
        a = given.detach().clone().requires_grad_()
        z = apply(a)
        safe = z + torch.where(z >= 0, _STABILISER, -_STABILISER)
        (share,) = torch.autograd.grad(z, a, flowing / safe.detach())
    return (a * share).detach()


def _without_bias(layer: nn.Module) -> Callable[[Tensor], Tensor]:
    if isinstance(layer, nn.Linear):
        return lambda a: F.linear(a, layer.weight)
    if isinstance(layer, nn.Conv2d):
        padding = cast("tuple[int, ...]", layer.padding)  # a string only for "same" and "valid"
        return lambda a: F.conv2d(
            a, layer.weight, None, layer.stride, padding, layer.dilation, layer.groups
        )
    return layer
