"""The whole audit of a round against reconstruction, as its report shows it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from tacit.audit.findings import Finding, Threat, draw_sweep, judge
from tacit.audit.reconstruction.attacks import (
    MatchDirection,
    dlg,
    guess_blindly,
    idlg,
    invert_linear,
    match_cosine,
)
from tacit.audit.reconstruction.newton import LARGEST_JACOBIAN, MatchNewton, match_newton
from tacit.audit.reconstruction.score import line_up, pair, score_rows, show
from tacit.audit.reconstruction.views import (
    GRADIENT,
    Defence,
    Rebuilt,
    SeenUpdate,
    Work,
    see_update,
)
from tacit.audit.views import Attack, seeded
from tacit.errors import ConfigError, DataError
from tacit.result import Curve, Picture

ATTACKS: dict[str, Attack[SeenUpdate, Rebuilt]] = {
    "first layer": invert_linear,
    "DLG": dlg,
    "iDLG": idlg,
    "Levenberg–Marquardt": match_newton,
    "cosine + TV": match_cosine,
    "blind": guess_blindly,
}
"""Every attack on an update; "blind" looks at nothing and must do no better than chance."""

THREAT = Threat(
    name="reconstruction from an update",
    who="the server of federated learning",
    sees="the update of one client, after its defence",
    knows="the model it sent out, the terms of the round, how many rows the client holds",
)
_REMEDIES = (
    "clip and add calibrated noise to every update (differential privacy)",
    "aggregate securely over many clients, so that no single update is seen",
    "take more local steps over more rows before an update is sent",
)
_SHOWN = 8
_BLIND_TRIALS = 8
_KINKED = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)


@dataclass(frozen=True, kw_only=True, eq=False)
class Round:
    """A round that is attacked; the audit's own knowledge.

    Attributes:
        model: as the server sends it out.
        rows: of the clients, dealt out `per_client` to each.
        labels: one per row.
        others: rows of the same kind that no client holds, for line-ups.
        classes: how many.
        per_client: rows of one client.
        work: what a client does.
        bounds: of the values of a row.
    """

    model: nn.Module
    rows: Tensor
    labels: Tensor
    others: Tensor
    classes: int
    per_client: int = 1
    work: Work = GRADIENT
    bounds: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        if self.per_client < 1 or len(self.rows) < self.per_client:
            raise DataError(
                f"wanted at least one client of {self.per_client} rows, got {len(self.rows)} rows"
            )


def audit_round(
    target: Round,
    name: str,
    attack: Attack[SeenUpdate, Rebuilt],
    *,
    defence: Defence | None = None,
    size: int = 10,
    seed: int = 0,
) -> Finding:
    """Attack every client of a round and say how many of their rows came back.

    Guesses at several rows are paired with them as fits best, which helps a blind guess too: the
    reference of the line-up is then what blind guesses reach.
    """
    generator = seeded(seed)
    guess, truth = _rebuild(target, attack, defence, generator)
    metrics = score_rows(
        name,
        guess,
        truth,
        others=target.others,
        generator=generator,
        size=size,
        bounds=target.bounds,
    )
    if target.per_client > 1:
        metrics = (replace(metrics[0], reference=_blind_rate(target, size)), *metrics[1:])
    pictures = _beside(name, truth, guess, target.bounds)
    return judge(THREAT, name, *metrics, pictures=pictures, remedies=_REMEDIES)


def _rebuild(
    target: Round,
    attack: Attack[SeenUpdate, Rebuilt],
    defence: Defence | None,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Return guesses, paired with the rows of every client, and these rows."""
    guesses, truths = [], []
    for at in range(0, len(target.rows) - target.per_client + 1, target.per_client):
        rows = target.rows[at : at + target.per_client]
        seen = see_update(
            target.model,
            rows,
            target.labels[at : at + target.per_client],
            classes=target.classes,
            work=target.work,
            defence=defence,
            bounds=target.bounds,
        )
        guesses.append(pair(attack(seen, generator=generator).rows, rows))
        truths.append(rows)
    return torch.cat(guesses), torch.cat(truths)


def _blind_rate(target: Round, size: int) -> float:
    """Return how often blind guesses, paired as fits best, pick their row out of a line-up."""
    generator, hits = seeded(0), []
    for _ in range(_BLIND_TRIALS):
        guess, truth = _rebuild(target, guess_blindly, None, generator)
        hits.append(line_up(guess, truth, target.others, size=size, generator=generator))
    return max(1 / size, float(torch.cat(hits).double().mean()))


def sweep_defence(
    target: Round,
    name: str,
    attack: Attack[SeenUpdate, Rebuilt],
    *,
    defend: Callable[[float], Defence],
    strengths: Sequence[float],
    utility: Callable[[Defence], float],
    seed: int = 0,
) -> tuple[tuple[Finding, ...], tuple[Curve, ...]]:
    """Attack a round under a defence of several strengths and draw privacy against utility.

    Args:
        target: the round.
        name: of the attack.
        attack: the attack.
        defend: makes the defence of a strength.
        strengths: the strengths to try.
        utility: what a model is worth that is trained under a defence, as a share.
        seed: of the attack.
    """
    findings, utilities = [], []
    for strength in strengths:
        label = f"{name} at {strength:g}"
        findings.append(audit_round(target, label, attack, defence=defend(strength), seed=seed))
        utilities.append(utility(defend(strength)))
    titles = ("Reconstruction under a defence", "Privacy against utility")
    return tuple(findings), draw_sweep(
        name, findings, strengths, utilities, titles=titles, y_label="picked out of the line-up"
    )


def audit_all(
    target: Round,
    *,
    attacks: Mapping[str, Attack[SeenUpdate, Rebuilt]],
    defence: Defence | None = None,
    seed: int = 0,
) -> tuple[Finding, ...]:
    """Attack a round with several attacks in turn."""
    return tuple(
        audit_round(target, name, attack, defence=defence, seed=seed)
        for name, attack in attacks.items()
    )


def _beside(
    name: str, truth: Tensor, guess: Tensor, bounds: tuple[float, float]
) -> tuple[Picture, ...]:
    if truth.ndim != 4 or truth.shape[1] not in (1, 3):
        return ()
    pictures: list[Picture] = []
    for i in range(min(_SHOWN, len(truth))):
        both = torch.stack([truth[i], guess[i].to(truth)])
        title = f"{name}: originals and what the server makes of the update"
        pictures += show(title, (f"original {i + 1}", f"rebuilt {i + 1}"), both, bounds=bounds)
    return tuple(pictures)


def choose_attacks(target: Round, *, steps: int) -> dict[str, Attack[SeenUpdate, Rebuilt]]:
    """Return the attacks that are worth trying on a round, by name, "blind" last.

    Args:
        target: the round.
        steps: of the search by cosine; a few hundred for a first answer, thousands for pictures.
    """
    if steps < 1:
        raise ConfigError(f"the search takes at least one step, got {steps}")
    found: dict[str, Attack[SeenUpdate, Rebuilt]] = {}
    model = target.model
    weighty = [m for m in model.modules() if not list(m.children()) and list(m.parameters())]
    if weighty and isinstance(weighty[0], nn.Linear) and weighty[0].bias is not None:
        found["first layer"] = invert_linear
    unknowns = target.per_client * math.prod(target.rows.shape[1:])
    known = sum(p.numel() for p in model.parameters() if p.requires_grad)
    is_smooth = not any(isinstance(m, _KINKED) for m in model.modules())
    if is_smooth and unknowns <= known and unknowns * known <= LARGEST_JACOBIAN:
        found["Levenberg–Marquardt"] = MatchNewton(restarts=2)
    is_picture = target.rows.ndim == 4
    smoothness = 0.1 if is_picture else 0.0
    found["cosine + TV"] = MatchDirection(steps=steps, restarts=1, smoothness=smoothness)
    found["blind"] = guess_blindly
    return found
