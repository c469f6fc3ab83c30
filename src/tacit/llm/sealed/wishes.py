"""What a user wants of the next token, as secret inputs of a sealed pass."""

import math
from collections.abc import Collection

import torch
from torch import Tensor

from tacit.errors import ConfigError
from tacit.llm.backend.sampling import Sampling
from tacit.llm.sealed.choosing import HOTTEST, NOISE_BOUND, PENALTY_BOUND
from tacit.llm.sealed.program import Reveal
from tacit.ring import Prg

_FRACTION_BITS = 53


def check_wish(sampling: Sampling, reveal: Reveal = "token") -> None:
    """Refuse what cannot be done without seeing the scores, or with the dealer's noise.

    Raises:
        ConfigError: says which setting, and what to do.
    """
    if sampling.top_k or sampling.top_p < 1:
        raise ConfigError(
            "top_k and top_p need the scores of all tokens, and this chat shows the user the "
            "chosen token alone; leave them out, or have all parties start with --reveal scores"
        )
    if sampling.temperature > HOTTEST:
        raise ConfigError(
            f"a sealed chat draws at temperatures of at most {HOTTEST:g}, got "
            f"{sampling.temperature:g}"
        )
    if reveal == "sample" and (sampling.needs_places or sampling.seed is not None):
        raise ConfigError(
            "with --reveal sample the dealer draws: there is no repetition penalty and no seed; "
            "leave them out, or have all parties start with --reveal token"
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
    noise = torch.zeros(1, vocab, dtype=torch.float64)
    if sampling.temperature:
        noise = sampling.temperature * gumbel(prg, vocab)
    return {"slopes": slopes, "noise": noise}


def gumbel(prg: Prg, vocab: int) -> Tensor:
    """Draw Gumbel noise, (1, vocab); its tail beyond 32 (a chance of 1e-14) is cut off."""
    marks = prg.below((1 << _FRACTION_BITS) - 1, vocab).double().add_(1.0)
    uniform = marks * math.ldexp(1.0, -_FRACTION_BITS)
    noise = -torch.log(-torch.log(uniform))
    most = NOISE_BOUND / HOTTEST
    return noise.clamp(-most, most).unsqueeze(0)
