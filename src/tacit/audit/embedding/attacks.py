"""Attacks on hidden states: what the owner of a cut language model sees, and the text behind it.

The layers run on many texts at once, from embeddings or behind a layer, and differentiable; what is
computed is `tacit.llm`'s one plain engine.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

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


_BLOCK = 8192  # beginnings and tokens that are tried at once


@dataclass(frozen=True, kw_only=True)
class OptimiseEmbeddings:
    """Search embeddings whose hidden states match, then take the nearest tokens by cosine.

    Seed 000, equations 6-2 and 6-3, with Adam. The seed stops where the embeddings are close to
    the true ones, which an attacker cannot know; this stops where the hidden states fit.

    Args:
        steps: at most.
        step_size: in deviations of the embedding table.
        fits: relative squared distance of the hidden states at which the search ends.
    """

    steps: int = 500
    step_size: float = 0.3
    fits: float = 1e-4

    def __post_init__(self) -> None:
        if self.steps < 1 or not self.step_size > 0:
            raise ConfigError(f"steps and step_size must be positive, got {self}")

    def __call__(self, seen: SeenHidden, *, generator: torch.Generator) -> Tensor:
        """Return (texts, tokens) ids."""
        return nearest(seen, self.search(seen, generator=generator))

    def search(self, seen: SeenHidden, *, generator: torch.Generator) -> Tensor:
        """Return the embeddings that were found, (texts, tokens, width)."""
        table = seen.model.weights["embed"]
        spread = float(table.std())
        noise = torch.empty(seen.hidden.shape).normal_(generator=generator)
        x = (table.mean(0) + 0.1 * spread * noise.to(table)).requires_grad_()
        optimiser = torch.optim.Adam([x], lr=self.step_size * spread)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, self.steps)
        # Token by token: the first one of a text is often longer than all others together.
        scale = seen.hidden.square().sum(2).clamp_min(1e-30)
        for _ in range(self.steps):
            hidden, _past = run_layers(seen.model, x, first=0, last=seen.depth)
            loss = ((hidden - seen.hidden).square().sum(2) / scale).mean()
            if float(loss.detach()) < self.fits:
                break
            # Per number rather than in all: Adam does not mind the scale, rounding does.
            (x.grad,) = torch.autograd.grad(loss * x.numel(), [x])
            optimiser.step()
            schedule.step()
        return x.detach()


@dataclass(frozen=True, kw_only=True)
class TryTokens:
    """Rebuild a text from left to right by trying tokens and keeping the best match.

    A causal model's hidden state depends on what came before alone, so with the beginning known
    one position is a choice among the vocabulary. Stronger than the search for embeddings, and as
    exact as the arithmetic; a wrong token spoils what follows, so several beginnings are kept.

    Args:
        beams: beginnings that are kept.
        tried: tokens tried per position, those nearest to the embeddings that `by` finds; 0 for
            the whole vocabulary.
        by: the search that makes the short list, if not every token is tried.
    """

    beams: int = 4
    tried: int = 0
    by: OptimiseEmbeddings = OptimiseEmbeddings()

    def __post_init__(self) -> None:
        if self.beams < 1 or self.tried < 0:
            raise ConfigError(f"beams and tried must make sense, got {self}")

    def __call__(self, seen: SeenHidden, *, generator: torch.Generator) -> Tensor:
        """Return (texts, tokens) ids.

        Raises:
            ConfigError: the model looks at the prompt in both directions (ChatGLM).
        """
        vocab = seen.model.architecture.vocab
        if seen.model.architecture.family == "chatglm":
            raise ConfigError(
                "ChatGLM looks at the prompt in both directions: no place can be told before those "
                "behind it; wanted optimised embeddings"
            )
        if 0 < self.tried < vocab:
            likeness = _likeness(seen, self.by.search(seen, generator=generator))
            offers = likeness.topk(self.tried, dim=2).indices
        else:
            offers = torch.arange(vocab, device=seen.hidden.device).expand(
                *seen.hidden.shape[:2], -1
            )
        return torch.stack(
            [self._rebuild(seen, text, offers[text]) for text in range(len(seen.hidden))]
        )

    @torch.no_grad()
    def _rebuild(self, seen: SeenHidden, text: int, offers: Tensor) -> Tensor:
        place = seen.hidden.device
        chosen = torch.empty(1, 0, dtype=torch.long, device=place)
        costs = torch.zeros(1, device=place)
        past = Cache()
        for at, wanted in enumerate(seen.hidden[text]):
            found = _distances(seen, past, len(chosen), offers[at], wanted)
            totals = costs[:, None] + found  # (beams, offers)
            costs, best = totals.flatten().topk(min(self.beams, totals.numel()), largest=False)
            parents, picks = best // totals.shape[1], best % totals.shape[1]
            chosen = torch.cat([chosen[parents], offers[at][picks][:, None]], 1)
            x, past = seen.model.weights["embed"][chosen[:, -1:]], pick(past, parents)
            _, past = run_layers(seen.model, x, first=0, last=seen.depth, past=past)
        return chosen[0]


optimise_embeddings = OptimiseEmbeddings()
try_tokens = TryTokens()


def guess_blindly(seen: SeenHidden, *, generator: torch.Generator) -> Tensor:
    """Return random tokens: what an attack is worth must be more than this."""
    rolls = torch.empty(seen.hidden.shape[:2]).uniform_(generator=generator)
    return (rolls * seen.model.architecture.vocab).long()


def nearest(seen: SeenHidden, embeddings: Tensor) -> Tensor:
    """Return the tokens whose embeddings have the largest cosine with these (eq. 6-3)."""
    return _likeness(seen, embeddings).argmax(2)


def _likeness(seen: SeenHidden, embeddings: Tensor) -> Tensor:
    table = functional.normalize(seen.model.weights["embed"], dim=1)
    return functional.normalize(embeddings, dim=2) @ table.t()


def _distances(seen: SeenHidden, past: Cache, beams: int, offers: Tensor, wanted: Tensor) -> Tensor:
    """Return how far the hidden state of each offered token is off, (beams, offers)."""
    pairs = torch.arange(beams * len(offers), device=wanted.device)
    found = []
    for block in torch.split(pairs, _BLOCK):
        x = seen.model.weights["embed"][offers[block % len(offers)]].unsqueeze(1)
        before = pick(past, block // len(offers))
        hidden, _ = run_layers(seen.model, x, first=0, last=seen.depth, past=before)
        found.append((hidden[:, 0] - wanted).square().sum(1))
    return torch.cat(found).view(beams, -1)
