"""How well a model says texts that it has not seen: perplexity, and scientificity."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from tacit.dp.policy import Policy, mark_tokens
from tacit.errors import DataError
from tacit.result import Metric
from tacit.text.corpus import Speller, Tokens, Units, collate, cut, enclose, tokenise
from tacit.text.tune import token_losses

_Z95 = 1.959963984540054


def measure_perplexity(
    module: nn.Module,
    texts: Sequence[Tokens],
    *,
    length: int,
    batch: int = 32,
    name: str = "perplexity",
    marks: bool | None = None,
) -> Metric:
    """Return exp of the mean loss over all tokens but the first of every text.

    Texts are taken as they are, marked parts included, spelled sign by sign as in training.
    The interval is of texts that are drawn as these were: a ratio of two means over texts.
    `marks` counts marked tokens alone, or all others alone.

    Raises:
        DataError: no token counts.
    """
    counted = [
        [marks is None or one is marks for one in text.is_private] or [True] for text in texts
    ]
    if not any(any(one[1:]) for one in counted):
        raise DataError(f"none of {len(texts)} texts holds a token that counts")
    return _of_losses(module, texts, counted, length, batch, name)


def measure_scientificity(
    module: nn.Module,
    texts: Sequence[str],
    speller: Speller,
    terms: Policy,
    *,
    length: int,
    policy: Policy | None = None,
    starts: Sequence[int] = (),
    batch: int = 32,
    name: str = "scientificity",
) -> Metric:
    """Return exp of the mean loss over the tokens of terms, true tokens before them.

    The smaller, the better a model knows the words of the field. The list of terms is part of the
    measure: two lists cannot be compared. `policy` spells marked parts, and `starts`
    stand before every text, as in training.

    Raises:
        DataError: no text holds a term.
    """
    spelled = [tokenise(speller, text, policy(text) if policy else ()) for text in texts]
    counted = [
        [*(False for _ in starts), *mark_tokens(terms(text), one.offsets)]
        for text, one in zip(texts, spelled, strict=True)
    ]
    spelled = [enclose(one, starts, ()) for one in spelled]
    if not any(map(any, counted)):
        raise DataError(f"none of {len(texts)} texts holds a term of the list")
    return _of_losses(module, spelled, counted, length, batch, name)


def _of_losses(
    module: nn.Module,
    texts: Sequence[Tokens],
    counted: Sequence[Sequence[bool]],
    length: int,
    batch: int,
    name: str,
) -> Metric:
    units = Units(
        cut(one.ids, [float(w) for w in weights], length=length)
        for one, weights in zip(texts, counted, strict=True)
    )
    place = next(module.parameters()).device
    sums: list[float] = []
    counts: list[float] = []
    with torch.no_grad():
        for at in range(0, len(units), batch):
            ids, weights = collate([units[i] for i in range(at, min(at + batch, len(units)))])
            losses, kept = token_losses(module, ids.to(place)), weights[..., 1:].to(place)
            sums += (losses * kept).double().flatten(1).sum(1).tolist()
            counts += kept.double().flatten(1).sum(1).tolist()
    lost, kept_counts = np.array(sums), np.array(counts)
    samples = kept_counts.sum()
    mean, used = float(lost.sum() / samples), int((kept_counts > 0).sum())
    # The delta method for a ratio of sums over texts.
    spread = float(np.sqrt(((lost - mean * kept_counts) ** 2).sum()) / samples)
    is_known = used > 1 and spread > 0
    return Metric(
        name=name,
        value=math.exp(mean),
        unit="",
        samples=int(samples),
        low=math.exp(mean - _Z95 * spread) if is_known else None,
        high=math.exp(mean + _Z95 * spread) if is_known else None,
        note=f"exp of the mean loss over tokens; interval over {used} texts",
    )
