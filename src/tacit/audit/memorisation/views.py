"""What somebody who may question a language model sees of it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tacit.audit.embedding.attacks import run_head, run_layers
from tacit.errors import DataError
from tacit.llm import LanguageModel

Answer = Callable[[Tensor], Tensor]
"""Given (texts, tokens) ids, return (texts, tokens, vocab) scores of each next token."""

Defence = Callable[[Tensor], Tensor]
"""What the owner does to scores before it shows them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenSpeech:
    """A user of a language model: for any text, the scores of the next token; nothing else.

    Attributes:
        answer: gives the scores; it is all that is seen of the model.
        vocab: how many tokens there are.
        context: the longest text that can be asked about.
        is_causal: a score is of what came before it alone. Where it is not, as in the prompt of
            ChatGLM, a text is asked about beginning by beginning: asked at once, the model would
            see each token that it is to tell.
    """

    answer: Answer
    vocab: int
    context: int
    is_causal: bool = True

    def losses(self, ids: Tensor) -> Tensor:
        """Return −log p of each token but the first, (texts, tokens − 1).

        Raises:
            DataError: the texts are too short or too long.
        """
        if ids.ndim != 2 or not 2 <= ids.shape[1] <= self.context:
            raise DataError(
                f"wanted texts of 2 to {self.context} tokens, got shape {tuple(ids.shape)}"
            )
        if self.is_causal:
            scores = self.answer(ids)[:, :-1].float()
        else:
            ends = range(1, ids.shape[1])
            scores = torch.stack([self.answer(ids[:, :end])[:, -1] for end in ends], 1).float()
        return nn.functional.cross_entropy(
            scores.transpose(1, 2), ids[:, 1:].to(scores.device), reduction="none"
        ).cpu()


def see_module(
    model: nn.Module, *, vocab: int, context: int, defence: Defence | None = None
) -> SeenSpeech:
    """Let a torch language model be questioned; it maps ids to (texts, vocab, tokens)."""

    def answer(ids: Tensor) -> Tensor:
        place = next(model.parameters()).device
        with torch.no_grad():
            scores: Tensor = model(ids.to(place))
        shown = scores.transpose(1, 2)
        return defence(shown) if defence else shown

    return SeenSpeech(answer=answer, vocab=vocab, context=context)


def see_checkpoint(model: LanguageModel, *, defence: Defence | None = None) -> SeenSpeech:
    """Let a language model from disk be questioned: it answers what `tacit.llm.logits` says."""
    a = model.architecture

    def answer(ids: Tensor) -> Tensor:
        with torch.no_grad():
            embedded = model.weights["embed"][ids]
            hidden, _ = run_layers(model, embedded, first=0, last=a.layers)
            shown = run_head(model, hidden)
        return defence(shown) if defence else shown

    return SeenSpeech(
        answer=answer, vocab=a.vocab, context=a.context, is_causal=a.family != "chatglm"
    )
