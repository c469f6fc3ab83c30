"""What a user wants of the next token, as secret inputs of a sealed pass."""

import math
from collections.abc import Collection

import torch
from torch import Tensor

from tacit.errors import ConfigError
from tacit.llm.sampling import Sampling
from tacit.llm.sealed.program import NOISE_BOUND, PENALTY_BOUND
from tacit.ring import Prg

_HOTTEST = 2.0
_FRACTION_BITS = 53


def check_wish(sampling: Sampling) -> None:
    """Refuse what cannot be done without seeing the scores.

    Raises:
        ConfigError: says which setting, and what to do.
    """
    if sampling.top_k or sampling.top_p < 1:
        raise ConfigError(
            "top_k and top_p need the scores of all tokens, and this chat shows the user the "
            "chosen token alone; leave them out, or have all parties start with --reveal scores"
        )
    if sampling.temperature > _HOTTEST:
        raise ConfigError(
            f"a sealed chat draws at temperatures of at most {_HOTTEST:g}, got "
            f"{sampling.temperature:g}"
        )
    if not 1 / PENALTY_BOUND <= sampling.repetition_penalty <= PENALTY_BOUND:
        raise ConfigError(
            f"a sealed chat takes repetition penalties from {1 / PENALTY_BOUND:g} to "
            f"{PENALTY_BOUND:g}, got {sampling.repetition_penalty:g}"
        )


def wish(
    sampling: Sampling, prg: Prg, *, earlier: Collection[int], vocab: int
) -> dict[str, Tensor]:
    """Return the user's inputs: slopes of negative and positive scores, and noise.

    Guarantee: the owner gets uniform words; it cannot tell one wish from another.
    """
    slopes = torch.ones(2, vocab, dtype=torch.float64)
    slopes[1] = 0.0  # what the positive part adds to the slope of all scores
    if sampling.needs_places and earlier:
        index, penalty = torch.tensor(sorted(set(earlier))), sampling.repetition_penalty
        slopes[0, index] = penalty
        slopes[1, index] = 1 / penalty - penalty
    return {"slopes": slopes, "noise": _noise(sampling.temperature, prg, vocab)}


def _noise(temperature: float, prg: Prg, vocab: int) -> Tensor:
    """Draw Gumbel noise; its tail beyond 32 (a chance of 1e-14) is cut off."""
    if temperature == 0:
        return torch.zeros(1, vocab, dtype=torch.float64)
    marks = prg.below((1 << _FRACTION_BITS) - 1, vocab).double().add_(1.0)
    uniform = marks * math.ldexp(1.0, -_FRACTION_BITS)
    noise = -torch.log(-torch.log(uniform))
    most = NOISE_BOUND / _HOTTEST
    return (temperature * noise.clamp(-most, most)).unsqueeze(0)
