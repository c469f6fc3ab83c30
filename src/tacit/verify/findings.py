"""Verdicts about many rows, counted: by class, by size of the model, and as a score."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError, DataError
from tacit.verify.batch import verify_many
from tacit.verify.box import Domain
from tacit.verify.kernels.tables import Bools, Longs, Outcome, Reals
from tacit.verify.models.ensemble import Ensemble
from tacit.verify.models.load import import_ensemble
from tacit.verify.verdict import ANYWHERE, Budget, Counterexample, Robust, Timed, Verdict

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


def verified_accuracy(
    ensemble: Ensemble,
    rows: npt.ArrayLike,
    classes: npt.ArrayLike,
    eps: npt.ArrayLike,
    *,
    domain: Domain = ANYWHERE,
    budget: Budget | None = None,
    workers: int = 1,
) -> float:
    """Compute the share of rows that are predicted rightly and proved robust.

    A row that the budget leaves open counts as not robust, so the score is never too high.

    Args:
        ensemble: a classifier.
        rows: the inputs.
        classes: the true class indices.
        eps: one radius, one per feature, or two rows (how far down, how far up).
        domain: the values that features can take at all.
        budget: per row; 60 seconds when not given.
        workers: how many threads.
    """
    if ensemble.task != "classify":
        raise ConfigError("verified accuracy is that of a classifier; this is a regression")
    inputs, truth = np.asarray(rows), np.asarray(classes)
    if not len(inputs) or truth.shape != (len(inputs),):
        raise DataError(f"want one class per row, got shapes {inputs.shape} and {truth.shape}")
    # Rows predicted wrongly need no proof.
    right = inputs[ensemble.predict(inputs) == truth]
    if not len(right):
        return 0.0
    verdicts = verify_many(ensemble, right, eps, domain=domain, budget=budget, workers=workers)
    return sum(isinstance(one, Robust) for one in verdicts) / len(inputs)


@dataclass(frozen=True)
class RobustScorer:
    """Score a fitted classifier by its verified accuracy, as ``scoring=`` of scikit-learn.

    ``GridSearchCV(RandomForestClassifier(), grid, scoring=RobustScorer(0.02))``

    Args:
        eps: one radius, one per feature, or two rows (how far down, how far up).
        domain: the values that features can take at all.
        budget: per row; 60 seconds when not given.
    """

    eps: npt.ArrayLike
    domain: Domain = ANYWHERE
    budget: Budget | None = None

    def __call__(self, estimator: object, x: npt.ArrayLike, y: npt.ArrayLike) -> float:
        """Return the verified accuracy of a fitted estimator on labelled rows."""
        fitted: Any = estimator  # of whichever library
        names = np.asarray(fitted.classes_)
        truth = np.asarray(y)
        # A class that the estimator has not seen is never predicted.
        index = {name: number for number, name in enumerate(names.tolist())}
        classes = np.array([index.get(name, -1) for name in truth.tolist()])
        ensemble = import_ensemble(estimator)
        return verified_accuracy(
            ensemble, x, classes, self.eps, domain=self.domain, budget=self.budget
        )
