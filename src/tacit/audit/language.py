"""The audit of a language model: what it says by heart, and what its layers show."""

from collections.abc import Sequence
from dataclasses import dataclass

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
from tacit.errors import ConfigError, DataError
from tacit.llm import LanguageModel, Tokenizer
from tacit.party import Progress
from tacit.result import Curve

_INVERTED = 4
"""Texts whose hidden states are turned back; each takes a step per token of the vocabulary."""


@dataclass(frozen=True, kw_only=True)
class Canaries:
    """Secrets of one form that were planted before training.

    Attributes:
        sentence: what stands before the secret, up to its first character.
        planted: the secrets, all of one length, drawn at random.
        alphabet: the characters that they are made of, a token each.
    """

    sentence: str
    planted: tuple[str, ...]
    alphabet: str = "0123456789"

    def __post_init__(self) -> None:
        if not self.planted or len({len(one) for one in self.planted}) != 1 or not self.planted[0]:
            raise ConfigError(f"planted: wanted secrets of one length, got {len(self.planted)}")
        if not all(set(one) <= set(self.alphabet) for one in self.planted):
            raise ConfigError(f"planted: wanted secrets out of the characters {self.alphabet!r}")


@dataclass(frozen=True, kw_only=True)
class LanguagePlan:
    """With how much effort a language model is attacked.

    Attributes:
        prefix: tokens of a text that the attacker knows.
        tokens: tokens after them, that it wants.
        count: how many texts are attacked: the first that are long enough.
        draws: texts that the model says after every prefix.
        depths: how many layers a user runs where the model is cut; first, middle and last if empty.
        noise: at the middle cut, in standard deviations of the hidden states.
        beams: beginnings that are kept while a text is rebuilt.
        seed: of draws and noise.
    """

    prefix: int = 8
    tokens: int = 16
    count: int = 20
    draws: int = 20
    depths: tuple[int, ...] = ()
    noise: tuple[float, ...] = ()
    beams: int = 2
    seed: int = 0


def audit_language(
    model: LanguageModel,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    canaries: Canaries | None = None,
    second: LanguageModel | None = None,
    plan: LanguagePlan = LanguagePlan(),  # noqa: B008  it is frozen
    progress: Progress | None = None,
) -> tuple[tuple[Finding, ...], tuple[Curve, ...]]:
    """Extract training texts, rank canaries, and turn hidden states back into texts.

    Args:
        model: what is attacked.
        tokenizer: of the model.
        texts: that it was trained on.
        canaries: that were planted among them.
        second: a model that was not trained on the texts, for one of the rankings.
        plan: with how much effort.
        progress: is told what is being done.

    Returns:
        What was found, and what is drawn.

    Raises:
        DataError: no text is long enough.
        ConfigError: the tokenizer does not spell the canaries a character at a time.
    """
    steps = progress or Progress()
    corpus = [list(tokenizer.encode(one)) for one in texts if one.strip()]
    targets = choose_targets(corpus, plan, context=model.architecture.context)
    form = None if canaries is None else form_of(canaries, tokenizer)
    seen = see_checkpoint(model)
    with steps.stage(f"extracting {len(targets)} texts"):
        view = SeenSpeakers(
            speech=seen,
            prefixes=targets[:, : plan.prefix],
            second=None if second is None else see_checkpoint(second),
            spell=lambda ids: tokenizer.decode(list(ids)),
        )
        speech = Speech(tokens=plan.tokens)
        findings = list(
            audit_extraction(
                view,
                targets,
                methods=METHODS,
                speech=speech,
                count=plan.draws,
                corpus=corpus,
                seed=plan.seed,
            )
        )
    if form is not None:
        with steps.stage("ranking canaries"):
            findings.append(audit_canaries(seen, *form))
    with steps.stage("inverting hidden states"):
        found, curves = _invert(model, targets[:_INVERTED], plan)
    return (*findings, *found), curves


def choose_targets(corpus: Sequence[list[int]], plan: LanguagePlan, *, context: int) -> Tensor:
    """Return the first texts that are long enough, cut to one length.

    Raises:
        ConfigError: that length is more than the model can take.
        DataError: no text is long enough.
    """
    size = plan.prefix + plan.tokens
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
    return torch.tensor(chosen[: plan.count])


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
    model: LanguageModel, ids: Tensor, plan: LanguagePlan
) -> tuple[tuple[Finding, ...], tuple[Curve, ...]]:
    top = model.architecture.layers
    # Tokens can be tried in turn only where no place sees those behind it.
    name = "optimised embeddings" if model.architecture.family == "chatglm" else "tokens in turn"
    attack = ATTACKS[name] if name != "tokens in turn" else TryTokens(beams=plan.beams)
    attacks = {name: attack, "blind": ATTACKS["blind"]}
    depths = plan.depths or tuple(sorted({1, (top + 1) // 2, top}))
    found, curves = sweep_depth(model, ids, attacks=attacks, depths=depths, seed=plan.seed)
    if plan.noise:
        middle = (top + 1) // 2
        spread = float(see_hidden(model, ids, depth=middle).hidden.std())
        _, drawn = sweep_noise(
            model,
            ids,
            name,
            attack,
            depth=middle,
            scales=[spread * share for share in plan.noise],
            seed=plan.seed,
        )
        curves = (*curves, *drawn)
    return found, curves
