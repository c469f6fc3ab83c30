"""The layers of a language model on many texts at once, from embeddings, and differentiable.

What is computed is `tacit.llm`'s one plain engine; an attacker begins with embeddings, or behind
a layer.
"""

from dataclasses import replace

import torch
from torch import Tensor

from tacit.errors import ConfigError
from tacit.llm import Cache, LanguageModel
from tacit.llm.model.plain import scores_of, walk_layers

run_head = scores_of


def run_layers(
    model: LanguageModel, x: Tensor, *, first: int, last: int, past: Cache | None = None
) -> tuple[Tensor, Cache]:
    """Run layers `first` to `last` − 1 on hidden states (texts, tokens, width).

    Layer 0 starts at token embeddings; learned positions are added there. The past of these layers
    is not changed; the one that is returned holds it and these tokens.

    Raises:
        ConfigError: the model has no such layers.
    """
    layers = model.architecture.layers
    if not 0 <= first <= last <= layers:
        raise ConfigError(f"layers lie between 0 and {layers}, got {first} to {last}")
    past = pick(past or Cache(), slice(None))
    for hidden in walk_layers(model, x, past, first=first, last=last):
        x = hidden
    return x, past


def pick(past: Cache, texts: Tensor | slice) -> Cache:
    """Return the past of some texts."""
    return replace(
        past,
        keys={layer: one[texts] for layer, one in past.keys.items()},
        values={layer: one[texts] for layer, one in past.values.items()},
    )


def move(model: LanguageModel, device: torch.device | str) -> LanguageModel:
    """Return the model with its weights on a device."""
    return replace(model, weights={n: w.to(device) for n, w in model.weights.items()})
