"""What an audit attacks, whatever the kind of job: a model, its trainer, members and strangers."""

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.audit import Classifier, Finding, Trainer
from tacit.result import Claim
from tacit.ring import KEY_BYTES, Prg

SPLIT_SEED = 0
Side = tuple[Tensor, Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """What is attacked, with everything that the games need.

    Attributes:
        model: the trained classifier.
        trainer: trains more like it.
        members: rows and labels that it was trained on.
        non_members: rows and labels that it was not.
        classes: how many.
        threats: those that make sense for this kind of job; all if empty.
        findings: of attacks that only this kind of job knows.
        claims: what the job promises.
        notes: for the reader of the report.
        picture: height and width of a row that is a picture; empty if it is none.
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


def halve_rows(both: Side, rows: int | None) -> tuple[Side, Side]:
    """Draw members and as many strangers from all rows, at most `rows` of each."""
    x, y = both
    keys = torch.empty(len(y)).uniform_(generator=torch.Generator().manual_seed(SPLIT_SEED))
    order, half = keys.argsort(), len(y) // 2
    inside, outside = order[:half].sort().values, order[half:].sort().values
    return take_rows((x[inside], y[inside]), rows), take_rows((x[outside], y[outside]), rows)


def take_rows(side: Side, rows: int | None) -> Side:
    """Return at most so many rows of a side, drawn evenly from it."""
    x, y = side
    if rows is None or rows >= len(y):
        return side
    keys = torch.empty(len(y)).uniform_(generator=torch.Generator().manual_seed(SPLIT_SEED))
    chosen = keys.argsort()[: max(rows, 1)].sort().values
    return x[chosen], y[chosen]


def prg_of(seed: int) -> Prg:
    """Return a generator that can be repeated: for games, never for secrets."""
    return Prg(hashlib.sha256(f"audit {seed}".encode()).digest()[:KEY_BYTES])


def no_claim(subject: str) -> Claim:
    """Return what stands in a report where nothing was promised."""
    return Claim(
        subject=subject,
        guarantee="no guarantee",
        assumptions=("nothing was claimed; an attack that fails proves nothing",),
    )
