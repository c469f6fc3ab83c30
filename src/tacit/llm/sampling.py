"""Choose the next token from its scores.

The scores may lie in any order: in a private chat the user sees them permuted and chooses a
*place*, an index into an order that it does not know. Nothing here needs the order; a repetition
penalty is told the places of the tokens that came before.
"""

import hashlib
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NewType

import torch
from torch import Tensor

from tacit.errors import ConfigError, DataError
from tacit.ring import KEY_BYTES, Prg

Place = NewType("Place", int)
"""An index into one array of scores; a token id only if the scores are in the model's order."""

Chooser = Callable[[Tensor, Collection[Place]], Place]
"""Given scores and the places of the tokens so far, return the place to take."""

_FRACTION_BITS = 53


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next token is chosen: a temperature of 0 takes the best, the rest bounds the draw.

    ``top_k`` keeps the k best (0: all), ``top_p`` the fewest best that together have that much
    probability, ``repetition_penalty`` divides positive and multiplies negative scores of tokens
    that came before (1: nothing). The same ``seed`` draws the same way; None takes entropy from
    the operating system.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ConfigError(f"temperature must be at least 0, got {self.temperature}")
        if self.top_k < 0:
            raise ConfigError(f"top_k must be at least 0, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p must be above 0 and at most 1, got {self.top_p}")
        if not (math.isfinite(self.repetition_penalty) and self.repetition_penalty > 0):
            raise ConfigError(
                f"repetition_penalty must be greater than 0, got {self.repetition_penalty}"
            )

    @property
    def needs_places(self) -> bool:
        """Say whether the places of earlier tokens are needed."""
        return self.repetition_penalty != 1.0


def generator(sampling: Sampling) -> Prg:
    """Return what draws: the same for the same seed, the system's entropy without one."""
    if sampling.seed is None:
        return Prg.from_os()
    digest = hashlib.sha256(f"tacit sampling {sampling.seed}".encode()).digest()
    return Prg(digest[:KEY_BYTES])


def chooser(sampling: Sampling) -> Chooser:
    """Return a function that chooses places, drawing anew at every call."""
    prg = generator(sampling)

    def choose_next(scores: Tensor, earlier: Collection[Place] = ()) -> Place:
        return choose(scores, sampling, prg, earlier=earlier)

    return choose_next


def choose(
    scores: Tensor, sampling: Sampling, prg: Prg, *, earlier: Collection[Place] = ()
) -> Place:
    """Choose a place from scores of shape (vocab,).

    Guarantee: only this party knows the draw, if it alone has the generator's key.
    Cost: 0 rounds, 0 bits; one sort of the scores.

    Raises:
        DataError: a score is not a number, or not finite.
    """
    if scores.ndim != 1 or not bool(torch.isfinite(scores).all()):
        raise DataError(f"scores must be finite and of shape (vocab,), got {tuple(scores.shape)}")
    scores = scores.double()
    if sampling.needs_places and earlier:
        is_earlier = torch.zeros(len(scores), dtype=torch.bool)
        is_earlier[torch.tensor(list(earlier))] = True
        scores = penalise(scores, is_earlier, sampling.repetition_penalty)
    if sampling.temperature == 0:
        return Place(int(scores.argmax()))
    kept, places = scores.sort(descending=True, stable=True)
    if sampling.top_k:
        kept = kept[: sampling.top_k]
    odds = ((kept - kept[0]) / sampling.temperature).softmax(0)
    odds = _nucleus(odds, sampling.top_p)
    return Place(int(places[_draw(odds, prg)]))


def penalise(scores: Tensor, is_earlier: Tensor, penalty: float) -> Tensor:
    """Divide positive and multiply negative scores of the tokens that came before."""
    punished = torch.where(scores > 0, scores / penalty, scores * penalty)
    return torch.where(is_earlier, punished, scores)


def _nucleus(odds: Tensor, top_p: float) -> Tensor:
    """Keep the first of sorted odds until they reach ``top_p``, at least one."""
    before = odds.cumsum(0) - odds
    return odds[: max(1, int((before < top_p).sum()))]


def _draw(odds: Tensor, prg: Prg) -> int:
    """Draw an index with probability proportional to ``odds``."""
    edges = odds.cumsum(0)
    mark = int(prg.below(1 << _FRACTION_BITS, 1)) / (1 << _FRACTION_BITS) * float(edges[-1])
    return min(int(torch.searchsorted(edges, mark, right=True)), len(odds) - 1)
