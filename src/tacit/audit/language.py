"""The audit of a language model: what it says by heart, and what its layers show."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.audit.embedding import ATTACKS, TryTokens, see_hidden, sweep_depth, sweep_noise
from tacit.audit.findings import Finding
from tacit.audit.memorisation import (
    METHODS,
    Format,
    SeenSpeakers,
    Speech,
    audit_canaries,
    audit_extraction,
    see_checkpoint,
)
from tacit.audit.spec import Canaries, Excerpts, LlmEffort
from tacit.errors import ConfigError, DataError
from tacit.llm import LanguageModel, Tokenizer
from tacit.party import Progress
from tacit.result import Curve

_INVERTED = 4
"""Texts whose hidden states are turned back; each takes a step per token of the vocabulary."""


def audit_language(
    model: LanguageModel,
    tokenizer: Tokenizer,
    lines: Sequence[str],
    *,
    texts: Excerpts = Excerpts(),  # noqa: B008  it is frozen
    canaries: Canaries | None = None,
    second: LanguageModel | None = None,
    effort: LlmEffort = LlmEffort(),  # noqa: B008  it is frozen
    progress: Progress | None = None,
) -> tuple[tuple[Finding, ...], tuple[Curve, ...]]:
    """Extract training texts, rank canaries, and turn hidden states back into texts.

    Args:
        model: what is attacked.
        tokenizer: of the model.
        lines: texts that it was trained on.
        texts: which beginnings of them are attacked.
        canaries: that were planted among them.
        second: a model that was not trained on the texts, for one of the rankings.
        effort: with how much.
        progress: is told what is being done.

    Returns:
        What was found, and what is drawn.

    Raises:
        DataError: no text is long enough.
        ConfigError: the tokenizer does not spell the canaries a character at a time.
    """
    steps = progress or Progress()
    corpus = [list(tokenizer.encode(one)) for one in lines if one.strip()]
    targets = choose_targets(corpus, texts, context=model.architecture.context)
    form = None if canaries is None else form_of(canaries, tokenizer)
    seen = see_checkpoint(model)
    with steps.stage(f"extracting {len(targets)} texts"):
        view = SeenSpeakers(
            speech=seen,
            prefixes=targets[:, : texts.prefix],
            second=None if second is None else see_checkpoint(second),
            spell=lambda ids: tokenizer.decode(list(ids)),
        )
        speech = Speech(tokens=texts.tokens)
        findings = list(
            audit_extraction(
                view,
                targets,
                methods=METHODS,
                speech=speech,
                count=effort.draws,
                corpus=corpus,
                seed=effort.seed,
            )
        )
    if form is not None:
        with steps.stage("ranking canaries"):
            findings.append(audit_canaries(seen, *form))
    with steps.stage("inverting hidden states"):
        found, curves = _invert(model, targets[:_INVERTED], effort)
    return (*findings, *found), curves


def choose_targets(corpus: Sequence[list[int]], texts: Excerpts, *, context: int) -> Tensor:
    """Return the first texts that are long enough, cut to one length.

    Raises:
        ConfigError: that length is more than the model can take.
        DataError: no text is long enough.
    """
    size = texts.prefix + texts.tokens
    if size > context:
        raise ConfigError(
            f"texts: prefix and tokens make {size}, more than the {context} that the model can take"
        )
    chosen = list(dict.fromkeys(tuple(ids[:size]) for ids in corpus if len(ids) >= size))
    if not chosen:
        longest = max((len(ids) for ids in corpus), default=0)
        raise DataError(
            f"texts.file: wanted texts of at least {size} tokens (prefix and tokens), the longest "
            f"of {len(corpus)} has {longest}"
        )
    return torch.tensor(chosen[: texts.count])


def form_of(canaries: Canaries, tokenizer: Tokenizer) -> tuple[Format, list[int]]:
    """Return the format of the canaries and the numbers of the planted ones.

    Raises:
        ConfigError: the tokenizer does not spell them a character at a time.
    """
    prefix = tuple(tokenizer.encode(canaries.sentence))
    alphabet = []
    for one in canaries.alphabet:
        *before, last = tokenizer.encode(canaries.sentence + one)
        if tuple(before) != prefix:
            raise ConfigError(
                f"canaries.alphabet: the tokenizer does not spell {one!r} there as one "
                "token; end the sentence with a character that stands alone"
            )
        alphabet.append(last)
    form = Format(prefix=prefix, alphabet=tuple(alphabet), blanks=len(canaries.planted[0]))
    numbers = []
    for secret in canaries.planted:
        number = 0
        for one in secret:
            number = number * len(alphabet) + canaries.alphabet.index(one)
        if tuple(tokenizer.encode(canaries.sentence + secret)) != form.text(number):
            raise ConfigError(
                f"canaries.planted: the tokenizer does not spell {secret!r} a character at a time"
            )
        numbers.append(number)
    return form, numbers


def _invert(
    model: LanguageModel, ids: Tensor, effort: LlmEffort
) -> tuple[tuple[Finding, ...], tuple[Curve, ...]]:
    top = model.architecture.layers
    # Tokens can be tried in turn only where no place sees those behind it.
    name = "optimised embeddings" if model.architecture.family == "chatglm" else "tokens in turn"
    attack = ATTACKS[name] if name != "tokens in turn" else TryTokens(beams=effort.beams)
    attacks = {name: attack, "blind": ATTACKS["blind"]}
    depths = effort.depths or tuple(sorted({1, (top + 1) // 2, top}))
    found, curves = sweep_depth(model, ids, attacks=attacks, depths=depths, seed=effort.seed)
    if effort.noise:
        middle = (top + 1) // 2
        spread = float(see_hidden(model, ids, depth=middle).hidden.std())
        _, drawn = sweep_noise(
            model,
            ids,
            name,
            attack,
            depth=middle,
            scales=[spread * share for share in effort.noise],
            seed=effort.seed,
        )
        curves = (*curves, *drawn)
    return found, curves
