"""What a run gave: the answers of one party, its view of the run, and how good the answers are."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.data.ids import quoted
from tacit.data.metrics import measure_classes, measure_odds
from tacit.mpc import Plan
from tacit.notebook import Lines
from tacit.party import Session, Usage
from tacit.result import Claim, Forecast, Metric, Reported, Result

Labels = NDArray[np.int64] | None
"""The true classes, or None where nobody knows them."""


@dataclass(frozen=True, kw_only=True, repr=False)
class PrivateAnswer(Reported):
    """What a run gave.

    Attributes:
        values: the output, for the client; None for the others.
        plan: what was done on shares, step by step; None where nothing was shared.
        result: cost, leakage and claims, as one party saw them or as all did.
    """

    values: Tensor | None
    plan: Plan | None
    result: Result

    def _shown(self) -> tuple[str, Lines]:
        shape = "not for this party" if self.values is None else f"{tuple(self.values.shape)}"
        return "Private answer", [("values", shape), *self.result.headline()]


def result_of(
    session: Session,
    usage: Usage,
    *,
    kind: str = "infer",
    name: str,
    protocol: str,
    role: str,
    forecast: Forecast,
    claims: tuple[Claim, ...],
    notes: tuple[str, ...] = (),
) -> Result:
    """Write down one party's view: what it sent, what it knows to have leaked, what it used."""
    return Result(
        kind=kind,
        name=name,
        protocol=protocol,
        launched="session",
        parties=(usage.report(name=session.me, role=role, progress=session.progress),),
        forecast=forecast,
        metered=session.cost(),
        leakage=session.ledger.entries(),
        claims=claims,
        utility=(),
        notes=notes,
    )


def claim_of_answers(client: str, reason: str) -> Claim:
    """Say what no protocol can hide: what follows from the declared result itself."""
    return Claim(
        subject=f"what the answers tell {client} about the model",
        guarantee="no guarantee",
        assumptions=(reason,),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class AnsweredRows:
    """What the receiver of answers has.

    Attributes:
        values: a class or a probability per row, or a row of scores.
        reveal: which of them.
        labels: the true classes, if the receiver knows them.
        ids: names of the rows, if they have any.
    """

    values: Tensor
    reveal: Literal["class", "score", "output"]
    labels: Labels = None
    ids: Sequence[str] = ()

    def measure(self) -> tuple[Metric, ...]:
        """Say how good the answers are, as far as their receiver can tell."""
        if self.labels is None:
            return ()
        if self.values.dim() > 1:
            return measure_odds(odds_of(self.values).numpy(), self.labels)
        measured = measure_odds if self.reveal == "score" else measure_classes
        return measured(self.values.numpy(), self.labels)

    def compare(self, plain: Tensor) -> Metric:
        """Say how far the answers are from those of a plain computation."""
        rows, name, unit, ideal = len(plain), "answers equal to plaintext", "share", 1.0
        if self.reveal == "score":
            name, unit, ideal = "largest difference to plaintext", "", 0.0
            value = float((self.values - plain).abs().max())
        else:
            value = int((_as_classes(self.values) == _as_classes(plain)).sum()) / rows
        return Metric(name=name, value=value, unit=unit, samples=rows, reference=ideal)

    def to_csv(self, *, head: str = "class") -> str:
        """Write a line per row: its answer, its scores if they were opened, its label if known.

        Rows are named by their ids, where they have any, and numbered from 1 where not.
        """
        is_class, answers = self.reveal != "score", _as_classes(self.values)
        heads = ["id" if self.ids else "row", head]
        columns = [
            [quoted(one) for one in self.ids] or [str(row) for row in range(1, len(answers) + 1)],
            [str(int(one)) if is_class else repr(one) for one in answers.tolist()],
        ]
        if self.values.dim() > 1:
            heads += [f"score {at}" for at in range(self.values.shape[1])]
            columns += [[repr(value) for value in column] for column in self.values.T.tolist()]
        if self.labels is not None:
            heads.append("label")
            columns.append([str(label) for label in self.labels.tolist()])
        return "\n".join([",".join(heads), *map(",".join, zip(*columns, strict=True))]) + "\n"


def read_answers(path: Path) -> Tensor:
    """Read the answers back from a file that `AnsweredRows.to_csv` made."""
    with path.open(encoding="utf-8", newline="") as stream:
        _, *rows = csv.reader(stream)
    return torch.tensor([float(row[1]) for row in rows], dtype=torch.float64)


def odds_of(scores: Tensor) -> Tensor:
    """Turn scores into probabilities; one score is that of class 1."""
    return torch.sigmoid(scores[:, 0]) if scores.shape[1] == 1 else scores.softmax(dim=-1)


def _as_classes(values: Tensor) -> Tensor:
    """Give the class of every row of scores; one score says yes or no."""
    if values.dim() == 1:
        return values
    return (values[:, 0] >= 0).long() if values.shape[1] == 1 else values.argmax(dim=-1)
