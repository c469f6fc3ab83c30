"""Verdicts about many rows, counted: robust accuracy, by class and by size of the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tacit.verify.kernels.arrays import Bools, Longs, Reals
from tacit.verify.kernels.outcome import Outcome
from tacit.verify.models.ensemble import Ensemble
from tacit.verify.verdict import Counterexample, Timed, Verdict

Labels = npt.NDArray[np.floating | np.integer | np.str_]
"""The true classes, of whichever type the file had."""


@dataclass(frozen=True, kw_only=True)
class Tally:
    """What was found about the rows of one class, or of all: counts of rows."""

    name: str
    rows: int
    right: int | None
    robust: int
    fragile: int
    unknown: int
    verified: int | None
    """Rows that are predicted rightly and found robust."""


def tally(
    ensemble: Ensemble, verdicts: Sequence[Verdict], labels: Labels | None = None
) -> tuple[Tally, ...]:
    """Count verdicts: of all rows first, then of each true class, where those are known."""
    predicted = np.array([one.prediction for one in verdicts])
    outcome = np.array([one.outcome for one in verdicts])
    if ensemble.task == "regress":
        labels = None  # an output is near its target, not right
    right = None if labels is None else predicted == labels
    found = [_count("all", np.ones(len(verdicts), bool), outcome, right)]
    if labels is not None:
        for value in np.unique(labels):
            found.append(_count(f"class {value}", labels == value, outcome, right))
    return tuple(found)


def _count(name: str, chosen: Bools, outcome: Longs, right: Bools | None) -> Tally:
    robust, fragile = (
        chosen & (outcome == one) for one in (Outcome.ROBUST, Outcome.COUNTEREXAMPLE)
    )
    return Tally(
        name=name,
        rows=int(chosen.sum()),
        right=None if right is None else int((chosen & right).sum()),
        robust=int(robust.sum()),
        fragile=int(fragile.sum()),
        unknown=int((chosen & ~robust & ~fragile).sum()),
        verified=None if right is None else int((robust & right).sum()),
    )


@dataclass(frozen=True, kw_only=True)
class Size:
    """What was found about all rows with a model of some size."""

    name: str
    trees: int
    depth: int
    tally: Tally
    median_ms: float
    p95_ms: float


def measure_size(
    name: str, ensemble: Ensemble, timed: Sequence[Timed], labels: Labels | None = None
) -> Size:
    """Count what was found with one model, and how long rows took."""
    median, p95 = np.quantile([1e3 * one.seconds for one in timed], [0.5, 0.95]).tolist()
    return Size(
        name=name,
        trees=ensemble.n_trees,
        depth=ensemble.depth,
        tally=tally(ensemble, [one.verdict for one in timed], labels)[0],
        median_ms=median,
        p95_ms=p95,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Findings:
    """A model, rows, and what was found about each; figures and pictures are made of it.

    Attributes:
        ensemble: the model.
        eps: how far every feature could move.
        rows: the inputs.
        timed: a verdict per row, with the processor time that it took.
        labels: the true classes, if they are known.
        names: of the features.
        shape: height and width, if the rows are images.
        sizes: the model and others beside it; empty if it is alone.
    """

    ensemble: Ensemble
    eps: float
    rows: Reals
    timed: tuple[Timed, ...]
    labels: Labels | None = None
    names: tuple[str, ...]
    shape: tuple[int, int] | None = None
    sizes: tuple[Size, ...] = ()

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """One per row."""
        return tuple(one.verdict for one in self.timed)

    @cached_property
    def times_ms(self) -> tuple[float, ...]:
        """Processor time of each row."""
        return tuple(1e3 * one.seconds for one in self.timed)

    @cached_property
    def groups(self) -> tuple[Tally, ...]:
        """What was found about all rows, then about each class."""
        return tally(self.ensemble, self.verdicts, self.labels)

    @property
    def has_fixed(self) -> bool:
        """Whether something in the rows does not move: a missing value or a category."""
        return bool(np.isnan(self.rows).any() or self.ensemble.is_category.any())

    @property
    def counterexamples(self) -> dict[int, Counterexample]:
        """Counterexamples by the number of their row."""
        every = enumerate(self.verdicts)
        return {number: one for number, one in every if isinstance(one, Counterexample)}

    @property
    def verified_share(self) -> float | None:
        """Return the verified robust accuracy, if labels are known."""
        every = self.groups[0]
        return None if every.verified is None else every.verified / every.rows
