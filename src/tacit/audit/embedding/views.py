"""What the owner of a cut language model sees of a user's text."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.audit.embedding.bottom import run_layers
from tacit.errors import ConfigError, DataError
from tacit.llm import LanguageModel

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
