"""Verified robust accuracy as a score, for whoever chooses hyper-parameters."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError, DataError
from tacit.verify.batch import verify_many
from tacit.verify.box import Domain
from tacit.verify.models.ensemble import Ensemble
from tacit.verify.models.load import import_ensemble
from tacit.verify.verdict import ANYWHERE, Budget, Robust


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


class Classifier(Protocol):
    """A fitted classifier, of whichever library."""

    classes_: npt.ArrayLike


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

    def __call__(self, estimator: Classifier, x: npt.ArrayLike, y: npt.ArrayLike) -> float:
        """Return the verified accuracy of a fitted estimator on labelled rows."""
        names = np.asarray(estimator.classes_)
        truth = np.asarray(y)
        # A class that the estimator has not seen is never predicted.
        index = {name: number for number, name in enumerate(names.tolist())}
        classes = np.array([index.get(name, -1) for name in truth.tolist()])
        ensemble = import_ensemble(estimator)
        return verified_accuracy(
            ensemble, x, classes, self.eps, domain=self.domain, budget=self.budget
        )
