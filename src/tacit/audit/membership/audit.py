"""The whole membership audit of a model: every threat that can be played, every attack on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.audit.estimators import proportion
from tacit.audit.findings import (
    BY_CLASS,
    BY_DP,
    EARLIER,
    Finding,
    best_findings,
    build_result,
)
from tacit.audit.membership.exposure import sheet_of_exposed, sheet_of_groups
from tacit.audit.membership.plays import PLAYS, Played, Scene, why_not
from tacit.audit.membership.threats import ATTACKS, SETTINGS, Effort
from tacit.audit.membership.views import Push
from tacit.audit.ranking import Ranking, auc, draw_roc, measure_ranking
from tacit.audit.shadows import Fleet
from tacit.audit.target import Trainer, as_classifier
from tacit.data.memory import numbers_of, to_array
from tacit.errors import DataError
from tacit.notebook import Lines, Shown
from tacit.result import Metric, Result, Sheet

LEAST = 20
"""Fewest records of a side from which anything can be said."""

REMEDIES = (BY_DP, EARLIER, BY_CLASS)

Labelled = tuple[Any, Any]
"""Rows and labels, as tensors or arrays."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Membership(Shown):
    """What the audit found; ``rankings`` holds the scores behind every attack."""

    findings: tuple[Finding, ...]
    rankings: dict[str, Ranking]
    sheets: tuple[Sheet, ...]
    utility: tuple[Metric, ...]
    notes: tuple[str, ...]

    @property
    def best(self) -> Finding:
        """Return the strongest attack."""
        return max(self.findings, key=lambda one: one.headline.value or 0.0)

    @property
    def auc(self) -> float:
        """Return the area under its curve: ½ is a blind guess, 1 knows every member."""
        return self.best.headline.value or 0.0

    def result(self, name: str = "membership") -> Result:
        """Lay it out for `tacit.report`."""
        return build_result(
            name, self.findings, utility=self.utility, sheets=self.sheets, notes=self.notes
        )

    def _shown(self) -> tuple[str, Lines]:
        """Say how the best attack on every threat did, and how good the model is."""
        best = [(one.threat.name, one.attack, one.headline) for one in best_findings(self.findings)]
        return "Membership audit", [
            *((metric.name, f"{metric.value:.3f}") for metric in self.utility),
            *((name, attack, _in_words(metric)) for name, attack, metric in best),
            *(("note", note) for note in self.notes),
        ]


def audit_membership(
    model: object,
    members: Labelled,
    non_members: Labelled,
    *,
    trainer: Trainer | None = None,
    effort: Effort = Effort(),  # noqa: B008  it is frozen
    fleet: Fleet = Fleet(),  # noqa: B008  it is frozen
    groups: Sequence[str] | None = None,
    known_share: float = 0.2,
    push: Push = Push(),  # noqa: B008  it is frozen
) -> Membership:
    """Ask of every record whether it was trained on, by every attack that this target allows.

    Args:
        model: a torch module with a logit per class, or a fitted scikit-learn classifier.
        members: rows and labels that it was trained on.
        non_members: rows and labels of the same distribution that it was not.
        trainer: trains models like the target, for attacks with shadow models.
        effort: what is tried.
        fleet: how shadow models are trained and kept.
        groups: a word for every record, members first, to compare leakage between groups; the
            classes if not given.
        known_share: of the records, whose membership a white-box attacker knows already.
        push: how a malicious participant attacks.

    Raises:
        DataError: too few records, one class only, or a threat that this model does not allow.
    """
    x, y, is_member = join_records(members, non_members)
    classes = int(y.max()) + 1
    target = as_classifier(model, classes=classes)
    scene = Scene(
        target=target,
        trainer=trainer,
        x=x,
        y=y,
        is_member=is_member,
        effort=effort,
        fleet=fleet,
        known_share=known_share,
        push=push,
    )
    return audit_scene(scene, groups=groups)


def audit_scene(scene: Scene, *, groups: Sequence[str] | None = None) -> Membership:
    """Play every threat that is to be tried and lay out what was found."""
    findings: list[Finding] = []
    rankings: dict[str, Ranking] = {}
    notes: list[str] = []
    for name, play in PLAYS.items():
        if scene.effort.threats and name not in scene.effort.threats:
            continue
        reason = why_not(name, scene)
        if reason and scene.effort.threats:
            raise DataError(f"threat {name!r}: {reason}")
        if reason:
            notes.append(f"{SETTINGS[name].threat.name}: not measured; {reason}")
            continue
        found = _judge(name, play(scene), scene)
        findings += found[0]
        rankings |= found[1]
    words = groups if groups is not None else [f"class {int(label)}" for label in scene.y]
    best = best_findings(
        [one for one in findings if len(rankings[one.attack].scores) == len(words)]
    )
    return Membership(
        findings=tuple(findings),
        rankings=rankings,
        sheets=_sheets(best, rankings, words),
        utility=_utility(scene),
        notes=tuple(notes),
    )


def join_records(members: Labelled, non_members: Labelled) -> tuple[Tensor, Tensor, Tensor]:
    """Return all rows, all labels, and which are members.

    Raises:
        DataError: lengths or shapes do not fit, too few records, or one class only.
    """
    given = {"members": members, "non-members": non_members}
    sides = [(_rows(x, word), _labels(y, word)) for word, (x, y) in given.items()]
    for word, (x, y) in zip(given, sides, strict=True):
        if x.dim() < 2 or len(x) != len(y) or y.dim() != 1:
            raise DataError(
                f"{word}: wanted a label per row, got {tuple(x.shape)} and {tuple(y.shape)}"
            )
        if len(x) < LEAST:
            raise DataError(f"{word}: wanted {LEAST} records or more to say anything, got {len(x)}")
    if sides[0][0].shape[1:] != sides[1][0].shape[1:]:
        raise DataError(
            f"wanted rows of one shape, got {tuple(sides[0][0].shape[1:])} for members "
            f"and {tuple(sides[1][0].shape[1:])} for non-members"
        )
    y = torch.cat([sides[0][1], sides[1][1]])
    found = sorted(set(y.tolist()))
    if found[0] < 0 or len(found) < 2:
        raise DataError(
            "wanted labels 0, 1, … of two classes or more; with one class there is nothing to "
            f"predict and nothing to leak through it, got {found[:5]}"
        )
    is_member = torch.arange(len(y)) < len(sides[0][1])
    return torch.cat([sides[0][0], sides[1][0]]), y, is_member


def _rows(x: Any, word: str) -> Tensor:
    rows = torch.from_numpy(numbers_of(x, whose=word))
    if not bool(torch.isfinite(rows).all()):
        raise DataError(f"{word}: the rows hold NaN or infinite values; clean them first")
    return rows.float()


def _labels(y: Any, word: str) -> Tensor:
    found = to_array(y)
    if found.dtype.kind not in "biuf" or not bool((found == found.round()).all()):
        raise DataError(
            f"{word}: wanted a label per row, whole numbers from 0 on, got "
            f"{'none' if y is None else found.dtype}"
        )
    return torch.from_numpy(found.astype(np.int64))


def _judge(name: str, played: Played, scene: Scene) -> tuple[list[Finding], dict[str, Ranking]]:
    """Bring the truth to the scores."""
    findings, rankings = [], {}
    for attack, (scores, judged) in played.items():
        ranking = Ranking(scores[judged], scene.is_member.numpy()[judged])
        metrics = measure_ranking(attack, ranking)
        # The best of several attacks is chosen on the same records: each gets its part of 5 %.
        _, low, _ = auc(ranking, confidence=1 - 0.05 / len(ATTACKS))
        rankings[attack] = ranking
        findings.append(
            Finding(
                threat=SETTINGS[name].threat,
                attack=attack,
                headline=metrics[0],
                metrics=metrics,
                is_found=low > 0.5,
                curves=(draw_roc(attack, ranking),),
                remedies=REMEDIES,
            )
        )
    return findings, rankings


def _sheets(
    best: Sequence[Finding], rankings: dict[str, Ranking], words: Sequence[str]
) -> tuple[Sheet, ...]:
    if not best:
        return ()
    strongest = max(best, key=lambda one: one.headline.value or 0.0).attack
    ranking = rankings[strongest]
    return (
        sheet_of_exposed(strongest, ranking, words),
        sheet_of_groups(strongest, ranking, words),
    )


def _utility(scene: Scene) -> tuple[Metric, ...]:
    right = (scene.target.log_probs(scene.x).argmax(1) == scene.y).numpy()
    inside = scene.is_member.numpy()
    return tuple(
        proportion(f"accuracy on {word}", int(right[rows].sum()), int(rows.sum()))
        for word, rows in (("members", inside), ("non-members", ~inside))
    )


def _in_words(metric: Metric) -> str:
    between = "" if metric.low is None else f" ({metric.low:.3f} to {metric.high:.3f})"
    return f"AUC {metric.value:.3f}{between}"
