"""Extraction: let a language model speak after a prefix and rank what it says."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.audit.memorisation.views import SeenSpeech
from tacit.errors import ConfigError

Spell = Callable[[Sequence[int]], str]
"""Turns ids into text; what zlib compresses."""

_BLOCK = 256


@dataclass(frozen=True, kw_only=True)
class Speech:
    """How texts are drawn.

    Args:
        tokens: to draw after the prefix.
        top: draw among the most likely ones only; 0 for all.
        temperature: by which scores are divided.
        decay_from: temperature of the first token, falling in a line to `temperature`.
        decay_tokens: tokens until it is there; 0 for none.
    """

    tokens: int
    top: int = 20
    temperature: float = 1.0
    decay_from: float = 10.0
    decay_tokens: int = 0

    def __post_init__(self) -> None:
        if self.tokens < 1 or self.top < 0 or self.decay_tokens < 0:
            raise ConfigError(f"tokens, top and decay_tokens must make sense, got {self}")
        if not (self.temperature > 0 and self.decay_from > 0):
            raise ConfigError(f"temperatures must be positive, got {self}")

    def heat(self, step: int) -> float:
        """Return the temperature of the token after `step` others."""
        if step >= self.decay_tokens:
            return self.temperature
        left = 1 - step / self.decay_tokens
        return self.temperature + left * (self.decay_from - self.temperature)


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenSpeakers:
    """What the extractor holds: the model, prefixes, and perhaps a second model of its own.

    Attributes:
        speech: the model under attack.
        prefixes: beginnings of texts, all of one length.
        second: another model, that has not seen the same secrets.
        spell: turns ids into text.
    """

    speech: SeenSpeech
    prefixes: Tensor
    second: SeenSpeech | None
    spell: Spell


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawn:
    """Texts that a model said, prefix included, (texts, tokens), the most suspicious first."""

    texts: Tensor
    scores: Tensor


Rank = Callable[[SeenSpeakers, Tensor], Tensor]
"""Scores whole texts, (texts, tokens); the smaller, the surer that it was learned by heart."""


def speak(
    seen: SeenSpeech, prefix: Tensor, speech: Speech, *, count: int, generator: torch.Generator
) -> Tensor:
    """Draw `count` continuations of one prefix, (count, prefix + tokens)."""
    out = []
    for at in range(0, count, _BLOCK):
        ids = prefix.expand(min(_BLOCK, count - at), -1)
        for step in range(speech.tokens):
            scores = seen.answer(ids)[:, -1].float().cpu() / speech.heat(step)
            ids = torch.cat([ids, _pick(scores, speech.top, generator)], 1)
        out.append(ids)
    return torch.cat(out)


def by_perplexity(seen: SeenSpeakers, texts: Tensor) -> Tensor:
    """Score by the mean loss of the continuation: what the model finds likely."""
    return _continued(seen, texts).mean(1)


def by_second_model(seen: SeenSpeakers, texts: Tensor) -> Tensor:
    """Score by the loss beside that of another model: likely here, and only here."""
    if seen.second is None:
        raise ConfigError("comparing with a second model needs one; leave this ranking out")
    start = seen.prefixes.shape[1] - 1
    other = _all_losses(seen.second, texts)[:, start:].mean(1)
    return by_perplexity(seen, texts) / other.clamp_min(1e-6)


def by_zlib(seen: SeenSpeakers, texts: Tensor) -> Tensor:
    """Score by the loss beside the zlib entropy: likely, though not because it repeats itself."""
    start = seen.prefixes.shape[1]
    sizes = [8 * len(zlib.compress(seen.spell(text[start:]).encode())) for text in texts.tolist()]
    return by_perplexity(seen, texts) / torch.tensor(sizes)


@dataclass(frozen=True)
class ByWindow:
    """Score by the smallest mean loss of any `size` tokens in a row: a secret within chatter."""

    size: int = 5

    def __call__(self, seen: SeenSpeakers, texts: Tensor) -> Tensor:
        """Return the smallest mean over the windows of every continuation."""
        losses = _continued(seen, texts)
        size = min(self.size, losses.shape[1])
        return losses.unfold(1, size, 1).mean(2).min(1).values


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to extract: how texts are drawn, and how they are ranked."""

    rank: Rank
    is_decaying: bool = False


METHODS = {
    "plain sampling": Method(rank=by_perplexity),
    "second model": Method(rank=by_second_model),
    "zlib": Method(rank=by_zlib),
    "sliding window": Method(rank=ByWindow()),
    "decaying temperature": Method(rank=by_perplexity, is_decaying=True),
}
"""The five ways of Carlini et al. 2021, as the seed lists them."""


@dataclass(frozen=True, kw_only=True)
class Extract:
    """Draw continuations of every prefix, drop repetitions and rank them.

    Args:
        method: how to rank; with a decaying temperature the first half of the tokens decays.
        speech: how to draw.
        count: draws per prefix.
    """

    method: Method
    speech: Speech
    count: int

    def __call__(self, seen: SeenSpeakers, *, generator: torch.Generator) -> Drawn:
        """Return the distinct texts, most suspicious first."""
        return self.rank(seen, self.draw(seen, generator=generator))

    def draw(self, seen: SeenSpeakers, *, generator: torch.Generator) -> Tensor:
        """Return what the model says after the prefixes, each text once."""
        speech = self.speech
        if self.method.is_decaying:
            decay = speech.decay_tokens or max(1, speech.tokens // 2)
            speech = replace(speech, decay_tokens=decay)
        drawn = [
            speak(seen.speech, prefix, speech, count=self.count, generator=generator)
            for prefix in seen.prefixes
        ]
        texts: Tensor = torch.unique(torch.cat(drawn), dim=0)
        return texts

    def rank(self, seen: SeenSpeakers, texts: Tensor) -> Drawn:
        """Put the most suspicious first."""
        scores = self.method.rank(seen, texts)
        order = scores.argsort(stable=True)
        return Drawn(texts=texts[order], scores=scores[order])


def _pick(scores: Tensor, top: int, generator: torch.Generator) -> Tensor:
    if top:
        threshold = scores.topk(min(top, scores.shape[1]), dim=1).values[:, -1:]
        scores = scores.masked_fill(scores < threshold, -torch.inf)
    return torch.multinomial(scores.softmax(1), 1, generator=generator)


def _continued(seen: SeenSpeakers, texts: Tensor) -> Tensor:
    return _all_losses(seen.speech, texts)[:, seen.prefixes.shape[1] - 1 :]


def _all_losses(seen: SeenSpeech, texts: Tensor) -> Tensor:
    return torch.cat([seen.losses(block) for block in torch.split(texts, _BLOCK)])
