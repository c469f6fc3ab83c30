"""The audit of a cut language model: tokens recovered at every depth, against noise and utility."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tacit.audit.embedding.attacks import (
    Defence,
    SeenHidden,
    add_noise,
    guess_blindly,
    optimise_embeddings,
    run_head,
    run_layers,
    see_hidden,
    try_tokens,
)
from tacit.audit.estimators import bootstrap, clopper_pearson
from tacit.audit.findings import Finding, Threat, judge
from tacit.audit.views import Attack, seeded
from tacit.errors import DataError
from tacit.llm import LanguageModel
from tacit.result import Curve, Metric

ATTACKS: dict[str, Attack[SeenHidden, Tensor]] = {
    "optimised embeddings": optimise_embeddings,
    "tokens in turn": try_tokens,
    "blind": guess_blindly,
}
"""Every attack on hidden states; "blind" looks at nothing and must do no better than chance."""

THREAT = Threat(
    name="inversion of hidden states",
    who="the owner of a split language model",
    sees="the hidden states that a user sends, after the user's defence",
    knows="all weights of the model",
)
_REMEDIES = (
    "compute on shares instead of sending hidden states: tacit chat with a private protocol",
    "noise hides the text only where the answer is lost too",
)


def score_tokens(name: str, guess: Tensor, truth: Tensor, *, vocab: int) -> Metric:
    """Return the mean share of right tokens per text (seed 000, eq. 6-5).

    The interval is a bootstrap over texts, whose tokens stand and fall together; where all texts
    came out alike it would be a point, and that of a share of texts stands in.
    """
    if guess.shape != truth.shape:
        raise DataError(f"wanted guesses of shape {tuple(truth.shape)}, got {tuple(guess.shape)}")
    shares = (guess.cpu() == truth.cpu()).double().mean(1).numpy()
    if shares.min() == shares.max():
        low, high = clopper_pearson(float(shares.sum()), len(shares))
    else:
        low, high = bootstrap(lambda rows: float(rows.mean()), shares, generator=seeded(0))
    return Metric(
        name=f"{name}: tokens recovered",
        value=float(shares.mean()),
        unit="fraction",
        samples=len(shares),
        low=low,
        high=high,
        reference=1 / vocab,
        note="reference: a random token; samples are texts",
    )


def audit_hidden(
    model: LanguageModel,
    ids: Tensor,
    name: str,
    attack: Attack[SeenHidden, Tensor],
    *,
    depth: int,
    defence: Defence | None = None,
    seed: int = 0,
) -> Finding:
    """Attack the hidden states of texts at one depth."""
    seen = see_hidden(model, ids, depth=depth, defence=defence)
    guess = attack(seen, generator=seeded(seed))
    headline = score_tokens(f"{name}, {depth} layers", guess, ids, vocab=model.architecture.vocab)
    return judge(THREAT, name, headline, remedies=_REMEDIES)


def sweep_depth(
    model: LanguageModel,
    ids: Tensor,
    *,
    attacks: Mapping[str, Attack[SeenHidden, Tensor]],
    depths: Sequence[int],
    seed: int = 0,
) -> tuple[tuple[Finding, ...], tuple[Curve, ...]]:
    """Attack at several depths and draw the share of recovered tokens."""
    findings, curves = [], []
    for name, attack in attacks.items():
        found = [audit_hidden(model, ids, name, attack, depth=d, seed=seed) for d in depths]
        findings += found
        points = tuple(
            (float(d), f.headline.value or 0.0) for d, f in zip(depths, found, strict=True)
        )
        curves.append(_curve("Tokens recovered by depth", "layers", name, points))
    return tuple(findings), tuple(curves)


def sweep_noise(
    model: LanguageModel,
    ids: Tensor,
    name: str,
    attack: Attack[SeenHidden, Tensor],
    *,
    depth: int,
    scales: Sequence[float],
    seed: int = 0,
) -> tuple[tuple[Finding, ...], tuple[Curve, ...]]:
    """Attack under noise of several scales; draw recovery and what is left of the answer."""
    findings, useful = [], []
    for scale in scales:
        defence = add_noise(scale, generator=seeded(seed + 1))
        label = f"{name}, noise {scale:g}"
        findings.append(
            audit_hidden(model, ids, label, attack, depth=depth, defence=defence, seed=seed)
        )
        again = add_noise(scale, generator=seeded(seed + 1))
        useful.append((float(scale), agreement(model, ids, depth=depth, defence=again)))
    found = tuple(
        (float(s), f.headline.value or 0.0) for s, f in zip(scales, findings, strict=True)
    )
    title = f"Noise at a cut after {depth} layers"
    return tuple(findings), (
        _curve(title, "noise", f"{name}: tokens recovered", found),
        _curve(title, "noise", "next token unchanged", tuple(useful)),
    )


def agreement(model: LanguageModel, ids: Tensor, *, depth: int, defence: Defence) -> float:
    """Return how often the next token is the same with the defence as without: its utility."""
    with torch.no_grad():
        plain = see_hidden(model, ids, depth=depth).hidden
        top = model.architecture.layers
        answers = []
        for hidden in (plain, defence(plain)):
            last, _ = run_layers(model, hidden, first=depth, last=top)
            answers.append(run_head(model, last).argmax(2))
    return float((answers[0] == answers[1]).double().mean())


def _curve(title: str, x_label: str, name: str, points: tuple[tuple[float, float], ...]) -> Curve:
    return Curve(title=title, x_label=x_label, y_label="share", name=name, points=points)
