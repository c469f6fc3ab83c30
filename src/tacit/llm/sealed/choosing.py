"""How the next token is chosen among scores, by what only the user or the dealer knows."""

import math
from collections.abc import Collection
from typing import TypeVar

import torch
from torch import Tensor

from tacit.errors import ConfigError
from tacit.llm.claims import Reveal
from tacit.llm.sampling import Sampling
from tacit.mpc.ops import ProtocolOps
from tacit.ring import Prg

V = TypeVar("V")

NOISE_BOUND = 64.0
HOTTEST = 2.0
"""The highest temperature; noise is at most 64 with it."""
PENALTY_BOUND = 8.0
_FRACTION_BITS = 53


def adjusted(ops: ProtocolOps[V], scores: V, *, user: str) -> V:
    """Scale negative and positive scores apart and add noise, all of it the user's secret.

    With noise of Gumbel's distribution times a temperature, the largest of the sums is a draw
    from the softmax at that temperature.
    """
    vocab = ops.shape(scores)[-1]
    slopes = ops.input("slopes", owner=user, shape=(2, vocab), bound=PENALTY_BOUND)
    noise = ops.input("noise", owner=user, shape=(1, vocab), bound=NOISE_BOUND)
    both = ops.concatenate((scores, ops.relu(scores)), dim=0)
    scaled = ops.reshape(ops.sum(ops.mul(both, slopes), dim=0), (1, vocab))
    return ops.normalise_scale(ops.add(scaled, noise))


def drawn(ops: ProtocolOps[V], scores: V, *, user: str, dealer: str | None) -> V:
    """Add the dealer's noise at the user's temperature, and nothing else of the user's.

    If the ``dealer`` is gone, its noise lies in shares with the material.
    """
    shape, bound = (1, ops.shape(scores)[-1]), NOISE_BOUND / HOTTEST
    if dealer is None:
        noise = ops.resume("noise", shape=shape, bound=bound)
    else:
        noise = ops.input("noise", owner=dealer, shape=shape, bound=bound)
    heat = ops.input("temperature", owner=user, shape=(1, 1), bound=HOTTEST)
    return ops.normalise_scale(ops.add(scores, ops.mul(noise, heat)))


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
