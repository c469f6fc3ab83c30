"""What an audit attacks, however it was trained: a model, its trainer, members and strangers."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from tacit.audit.findings import Finding, Verdict, build_result
from tacit.audit.inversion import Climb, SeenConfidences, score_representatives
from tacit.audit.membership import Effort
from tacit.audit.membership.audit import audit_membership, sweep
from tacit.audit.privacy.claims import short_claim
from tacit.audit.shadows import Fleet
from tacit.audit.target import Classifier, Trainer
from tacit.audit.views import seeded
from tacit.data import Rows, load_dataset
from tacit.data.partition import PUBLIC_SEED
from tacit.party import Progress
from tacit.result import Claim, Curve, Result, Sheet

Side = tuple[Tensor, Tensor]
"""Rows and labels."""
_MOST_CLASSES = 20


@dataclass(frozen=True, kw_only=True, eq=False)
class Tested:
    """What became of the claims about ε: attacks, verdicts, and the claims themselves."""

    findings: tuple[Finding, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """What is attacked, with everything that the games need.

    Attributes:
        model: the trained classifier.
        trainer: trains more like it.
        members: rows and labels that it was trained on.
        non_members: rows and labels that it was not.
        classes: how many.
        threats: those that make sense for how it was trained; all if empty.
        findings: of attacks that only this kind of training knows.
        claims: what is promised.
        notes: for the reader of the report.
        picture: height and width of a row that is a picture; empty if it is none.
        put_to_the_test: tries what is claimed about ε; None where nothing is.
        swept: a defence, and trainers with it by the words that describe its strength.
    """

    model: Classifier
    trainer: Trainer
    members: Side
    non_members: Side
    classes: int
    threats: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()
    picture: tuple[int, ...] = ()
    put_to_the_test: Callable[[Effort], Tested] | None = None
    swept: tuple[str, Mapping[str, Trainer]] = ("", {})


def halve_rows(both: Side, rows: int | None) -> tuple[Side, Side]:
    """Draw members and as many strangers from all rows, at most `rows` of each."""
    x, y = both
    order, half = _order(len(y)), len(y) // 2
    inside, outside = order[:half].sort().values, order[half:].sort().values
    return take_rows((x[inside], y[inside]), rows), take_rows((x[outside], y[outside]), rows)


def take_rows(side: Side, rows: int | None) -> Side:
    """Return at most so many rows of a side, drawn evenly from it."""
    x, y = side
    if rows is None or rows >= len(y):
        return side
    chosen = _order(len(y))[: max(rows, 1)].sort().values
    return x[chosen], y[chosen]


def picture_of(rows: Rows) -> tuple[int, ...]:
    """Return height and width of a row, if a set holds grey pictures; nothing if it does not."""
    if rows.features.ndim == 3:
        return tuple(rows.features.shape[1:])
    if all(one.startswith("pixel") for one in rows.columns):
        side = math.isqrt(rows.features.shape[1])
        return (side, side) if side**2 == rows.features.shape[1] else ()
    return ()


def picture_of_set(name: str | None, search: Sequence[Path]) -> tuple[int, ...]:
    """Do the same for a set that is known by name; nothing without one."""
    return () if name is None else picture_of(load_dataset(name, search))


def no_claim(subject: str) -> Claim:
    """Return what stands in a report where nothing was promised."""
    return Claim(
        subject=subject,
        guarantee="no guarantee",
        assumptions=("nothing was claimed; an attack that fails proves nothing",),
    )


def _order(rows: int) -> Tensor:
    keys = torch.empty(rows).uniform_(generator=torch.Generator().manual_seed(PUBLIC_SEED))
    return keys.argsort()


def show_classes(target: Target, *, is_quick: bool) -> tuple[Finding, ...]:
    """Let a client of the model find out what its classes look like; nothing without pictures."""
    x, y = target.members
    rows = to_pictures(x, target.picture)
    if rows.dim() != 4 or target.classes > _MOST_CLASSES:
        return ()
    if len(set(y.tolist())) < target.classes:
        return ()  # a class without rows has no mean to compare with
    seen = SeenConfidences(
        ask=lambda rows: target.model.log_probs(rows).exp().float(),
        shape=tuple(x.shape[1:]),
        classes=target.classes,
        bounds=bounds_of(x),
    )
    found = Climb(steps=20 if is_quick else 60)(seen, generator=seeded(0))
    low, high = seen.bounds
    # Shown between black and white; which class is the nearest does not change by that.
    shown, rows = ((one - low) / (high - low) for one in (found.view(-1, *rows.shape[1:]), rows))
    return (score_representatives("climbing", shown, rows, y),)


class Shaped(nn.Module):
    """Takes pictures with a channel and hands rows on in the shape that a model wants."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self._shape = shape

    def forward(self, x: Tensor) -> Tensor:
        """Return (rows, *shape)."""
        return x.reshape(len(x), *self._shape)


def to_pictures(x: Tensor, picture: tuple[int, ...] = ()) -> Tensor:
    """Give rows that are pictures their channel: (rows, 1, height, width)."""
    if x.dim() == 2 and picture:
        return x.view(-1, 1, *picture)
    return x.unsqueeze(1) if x.dim() == 3 else x


def bounds_of(x: Tensor) -> tuple[float, float]:
    """Return the least and the largest value."""
    return float(torch.min(x)), float(torch.max(x))


_SUBJECT = "each member's presence in the training data"


def audit_target(
    name: str,
    target: Target,
    *,
    effort: Effort = Effort(),  # noqa: B008  it is frozen
    fleet: Fleet = Fleet(),  # noqa: B008  it is frozen
    is_quick: bool = False,
    progress: Progress | None = None,
) -> tuple[Result, tuple[Verdict, ...]]:
    """Attack a target by everything there is; lay out what was found, and what of its claims.

    Args:
        name: of the result.
        target: what is attacked.
        effort: what is tried; without threats, those of the target.
        fleet: how shadow models are trained and kept.
        is_quick: search less.
        progress: is told what is being done.
    """
    steps, tested = progress or Progress(), Tested()
    if target.put_to_the_test is not None:
        with steps.stage("putting the claim to the test"):
            tested = target.put_to_the_test(effort)
    with steps.stage("asking who was trained on", effort.shadows) as advance:
        found = audit_membership(
            target.model,
            target.members,
            target.non_members,
            trainer=target.trainer,
            effort=effort if effort.threats else replace(effort, threats=target.threats),
            fleet=replace(fleet, report=lambda done, total: advance(done)),
        )
    with steps.stage("rebuilding what classes look like"):
        shown = show_classes(target, is_quick=is_quick)
    curves, sheets = _sweep(target, effort, fleet, steps)
    words = "; ".join(short_claim(claim) for claim in tested.claims[:1])
    every = (*found.findings, *target.findings, *shown, *tested.findings)
    result = build_result(
        name,
        [replace(one, claimed=words) for one in every],
        verdicts=tested.verdicts,
        utility=found.utility,
        sheets=(*found.sheets, *sheets),
        curves=curves,
        notes=(*target.notes, *tested.notes, *found.notes),
    )
    claims = (*tested.claims, *target.claims) or (no_claim(_SUBJECT),)
    return replace(result, claims=claims), tested.verdicts


def _sweep(
    target: Target, effort: Effort, fleet: Fleet, steps: Progress
) -> tuple[tuple[Curve, ...], tuple[Sheet, ...]]:
    setting, trainers = target.swept
    if not trainers:
        return (), ()
    # The cheapest threat with teeth: shadow models for every setting would take too long.
    cheap = replace(effort, threats=("scores",))
    with steps.stage(f"sweeping {setting}", len(trainers)) as advance:
        curve, sheet = sweep(
            trainers,
            target.members,
            target.non_members,
            name=setting,
            effort=cheap,
            fleet=fleet,
            report=advance,
        )
    return (curve,), (sheet,)
