"""Explanations: which features hold a prediction in place."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError
from tacit.verify.box import Box, Domain, Floats, ball
from tacit.verify.ensemble import Ensemble, check_rows
from tacit.verify.search import ANYWHERE, Budget, Certificate, Counterexample, verify_box


@dataclass(frozen=True, eq=False)
class RobustSet:
    """Features that must stay within eps; all others may take any value of their domain.

    The set is subset-minimal: no feature of it can be freed as well. Where a question ran out of
    budget, `is_minimal` is false: the set still holds the prediction, but may be too large.
    """

    features: tuple[int, ...]
    is_minimal: bool
    questions: int


def robust_features(
    ensemble: Ensemble,
    x: npt.ArrayLike,
    eps: npt.ArrayLike,
    *,
    rho: float | None = None,
    domain: Domain = ANYWHERE,
    budget: Budget | None = None,
) -> RobustSet | None:
    """Find a subset-minimal set of features that holds the prediction at x; None if none does.

    Bounding the features of the set within eps and leaving all others free over the domain keeps
    the prediction. Features are freed in blocks, the least used by the trees first; a block that
    cannot be freed is halved.
    """
    near = ball(ensemble, x, eps, domain)
    far = ball(ensemble, x, np.inf, domain)
    uses = np.bincount(ensemble.feature[ensemble.feature >= 0], minlength=ensemble.n_features)
    is_free = uses == 0
    questions, in_doubt = 1, False

    ways: list[npt.NDArray[np.bool_]] = []

    def holds(free: npt.NDArray[np.bool_]) -> bool | None:
        # A change that needs only features which are free once more needs no search.
        if any(free[way].all() for way in ways):
            return False
        box = Box(
            near.center, np.where(free, far.low, near.low), np.where(free, far.high, near.high)
        )
        answer = verify_box(ensemble, box, rho=rho, budget=budget)
        if isinstance(answer, Counterexample):
            ways.append((answer.x < near.low) | (answer.x > near.high))
            return False
        return True if isinstance(answer, Certificate) else None

    if not holds(is_free):
        return None
    order = np.argsort(uses, kind="stable")
    blocks = [order[~is_free[order]]]
    while blocks:
        block = blocks.pop()
        if not block.size:
            continue
        trial = is_free.copy()
        trial[block] = True
        answer = holds(trial)
        questions += 1
        if answer:
            is_free = trial
        elif block.size > 1:
            half = (block.size + 1) // 2
            blocks += [block[half:], block[:half]]
        elif answer is None:
            in_doubt = True
    return RobustSet(tuple(np.flatnonzero(~is_free).tolist()), not in_doubt, questions)


@dataclass(frozen=True, eq=False)
class Importance:
    """Local robust feature importance, per class."""

    share: Floats
    """(classes, features): the share of the class's robust samples whose set has the feature."""
    robust: npt.NDArray[np.int64]
    """(classes): how many samples of the class had a robust set."""
    samples: npt.NDArray[np.int64]
    """(classes): how many samples of the class were looked at."""


def importance(
    ensemble: Ensemble,
    rows: npt.ArrayLike,
    eps: npt.ArrayLike,
    *,
    domain: Domain = ANYWHERE,
    budget: Budget | None = None,
) -> Importance:
    """Count, per predicted class, how often a feature is in the robust set of a robust sample.

    A class without robust samples has the share NaN: not measured.
    """
    if ensemble.task != "classify":
        raise ConfigError("importance is counted per class; this is a regression")
    inputs = check_rows(ensemble, rows)
    sets = [robust_features(ensemble, row, eps, domain=domain, budget=budget) for row in inputs]
    return count_importance(ensemble, ensemble.predict(inputs), sets)


def count_importance(
    ensemble: Ensemble, classes: npt.ArrayLike, sets: Sequence[RobustSet | None]
) -> Importance:
    """Count the features of robust sets that are already known, per class of their samples."""
    counts = np.zeros((ensemble.n_classes, ensemble.n_features), dtype=np.int64)
    robust, samples = np.zeros((2, ensemble.n_classes), dtype=np.int64)
    for label, found in zip(np.asarray(classes, dtype=np.int64), sets, strict=True):
        samples[label] += 1
        if found is not None:
            robust[label] += 1
            counts[label, list(found.features)] += 1
    with np.errstate(invalid="ignore"):
        share = counts / np.where(robust > 0, robust, np.nan)[:, None]
    return Importance(share, robust, samples)
