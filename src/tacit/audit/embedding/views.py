"""What the owner of a cut language model sees of a user's text, and the layers that it knows.

The layers run on many texts at once, from embeddings or behind a layer, and differentiable; what is
computed is `tacit.llm`'s one plain engine.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.errors import ConfigError, DataError
from tacit.llm import Cache, LanguageModel
from tacit.llm.model.plain import scores_of, walk_layers

Defence = Callable[[Tensor], Tensor]
"""What a user does to hidden states before they leave."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenHidden:
    """The owner of a split language model: its own weights, and the user's hidden states.

    Attributes:
        model: the owner handed the lower layers out and knows them all.
        depth: how many layers the user runs.
        hidden: (texts, tokens, width) as they arrive, after the defence.
    """

    model: LanguageModel
    depth: int
    hidden: Tensor


def see_hidden(
    model: LanguageModel, ids: Tensor, *, depth: int, defence: Defence | None = None
) -> SeenHidden:
    """Run a user's lower layers on (texts, tokens) ids and show the owner what it sends.

    Raises:
        DataError: an id is not in the vocabulary, or the texts are empty or too long.
    """
    a = model.architecture
    if ids.ndim != 2 or not 1 <= ids.shape[1] <= a.context:
        raise DataError(f"wanted texts of 1 to {a.context} tokens, got shape {tuple(ids.shape)}")
    if bool(((ids < 0) | (ids >= a.vocab)).any()):
        raise DataError(f"token ids lie between 0 and {a.vocab - 1}")
    with torch.no_grad():
        hidden, _ = run_layers(model, model.weights["embed"][ids], first=0, last=depth)
    return SeenHidden(model=model, depth=depth, hidden=defence(hidden) if defence else hidden)


def add_noise(scale: float, *, generator: torch.Generator) -> Defence:
    """Add normal noise of deviation `scale` to every number (seed 000, eq. 6-4); no guarantee."""
    if not scale >= 0:
        raise ConfigError(f"the scale of noise must be at least 0, got {scale}")

    def defend(hidden: Tensor) -> Tensor:
        return hidden + scale * torch.empty(hidden.shape).normal_(generator=generator).to(hidden)

    return defend


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
