"""Canaries whose signs are several tokens each: full-width digits, numerals of another script."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.audit.memorisation.canary import Format
from tacit.audit.memorisation.views import SeenSpeech
from tacit.errors import ConfigError


def spell_canary(
    seen: SeenSpeech, prefix: Sequence[int], spellings: Sequence[Sequence[int]], *, blanks: int
) -> tuple[SeenSpeech, Format]:
    """Return a view in which every sign of a canary is one token, and the format in its ids.

    A sign has the probability of its tokens, one after the other; all else is one more token, so
    that losses are those of the texts as the model spells them. Only what follows a text is
    answered.

    Args:
        seen: the model.
        prefix: ids before the blank.
        spellings: of each sign, its ids.
        blanks: signs in the blank.

    Raises:
        ConfigError: a sign has no token, or begins another.
    """
    signs = [tuple(one) for one in spellings]
    clash = any(a != b and b[: len(a)] == a for a in signs for b in signs)
    if clash or not all(signs) or len(set(signs)) < len(signs):
        raise ConfigError("every sign needs a token of its own, and none may begin another")
    words = [*signs, *((one,) for one in prefix)]
    size = max(map(len, words))
    table = torch.tensor([[*word, *[0] * (size - len(word))] for word in words])
    lengths = torch.tensor([len(word) for word in words])
    begun = sorted({sign[:at] for sign in signs for at in range(len(sign))}, key=len)
    used = {one: at for at, one in enumerate(sorted({one for sign in signs for one in sign}))}

    def answer(ids: Tensor) -> Tensor:
        texts, ends = _joined(table[ids], lengths[ids])
        after = {start: _follow(seen, texts, ends, start, list(used)) for start in begun}
        odds = torch.stack(
            [
                torch.stack([after[sign[:at]][:, used[sign[at]]] for at in range(len(sign))]).sum(0)
                for sign in signs
            ],
            1,
        )
        rest = torch.log1p(-odds.double().logsumexp(1, keepdim=True).exp().clamp_max(1 - 1e-12))
        return torch.cat([odds.double(), rest], 1)[:, None]

    places = tuple(range(len(signs), len(words)))
    form = Format(prefix=places, alphabet=tuple(range(len(signs))), blanks=blanks)
    room = seen.context - len(prefix)
    view = SeenSpeech(answer=answer, vocab=len(words), context=len(prefix) + room // size)
    return view, form


def _joined(words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Write words of different lengths one behind the other; padded behind, with their ends."""
    is_there = torch.arange(words.shape[-1]) < lengths[..., None]
    places = is_there.flatten(1).long().cumsum(1) - 1
    ends = lengths.sum(1)
    out = torch.zeros(len(words), int(ends.max()) + 1, dtype=torch.long)
    last = out.shape[1] - 1
    out.scatter_(1, places.where(is_there.flatten(1), last), words.flatten(1))
    return out[:, :last], ends


def _follow(
    seen: SeenSpeech, texts: Tensor, ends: Tensor, start: tuple[int, ...], used: list[int]
) -> Tensor:
    """Return log-probabilities of the tokens `used` after each text and a few tokens more."""
    longer = torch.cat([texts, texts.new_zeros(len(texts), len(start))], 1)
    rows = torch.arange(len(texts))
    for at, one in enumerate(start):
        longer[rows, ends + at] = one
    scores = seen.answer(longer)
    where = (ends + len(start) - 1).to(scores.device)
    odds = scores[rows.to(scores.device), where].float().log_softmax(1)
    return odds[:, torch.tensor(used, device=odds.device)].cpu()
