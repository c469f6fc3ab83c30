"""Explanations: which features hold a prediction in place.

A *robust feature set* is what the field calls a subset-minimal abductive explanation, within eps.

Every contrast (a set of features that changes the prediction when they are free) must have a
feature in the robust set. So the least set that hits all known contrasts is a lower bound of the
least one, and if it holds the prediction it is the answer; if not, the counterexample is one more
(implicit hitting sets).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from tacit.errors import ConfigError
from tacit.verify.box import Domain, ball, condition
from tacit.verify.kernels.tables import Bools, Floats, Longs, Outcome
from tacit.verify.models.ensemble import Ensemble, check_rows
from tacit.verify.oracle import ExplanationOracle
from tacit.verify.verdict import ANYWHERE, PATIENCE, Budget

HASTE = (5, 40)
"""Nodes per question and objective in the rounds before the last."""


ON_THE_WAY = 2
"""How much more a question counts, for the order of features, that the input itself is asked."""


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
    the prediction. Features are freed in blocks, those that the trees ask for least first; a block
    that cannot be freed loses the feature that must stay, or is halved. None is also the answer
    when the budget does not suffice to tell whether the prediction holds with all features bounded.
    Missing values and categories are held as they are, and are in no set.
    """
    near, far = (ball(ensemble, x, radius, domain) for radius in (eps, np.inf))
    ensemble = condition(ensemble, near)
    oracle, budget = (
        ExplanationOracle(ensemble, near, far, rho),
        PATIENCE if budget is None else budget,
    )
    uses = np.bincount(ensemble.feature[ensemble.feature >= 0], minlength=ensemble.n_features)
    order = np.argsort(uses + ON_THE_WAY * oracle.count_asked(), kind="stable")
    is_free = ~oracle.matters
    if oracle.ask(is_free, order, budget)[0] != Outcome.ROBUST:
        return None
    open_features = order[oracle.matters[order]]
    for nodes in HASTE:
        # What is hard to tell now may be easy to tell when others are free, or free with it.
        most = nodes * oracle.n_objectives
        hurried = Budget(nodes=min(most, budget.nodes or most), seconds=budget.seconds)
        is_free, open_features = _free(oracle, is_free, open_features, hurried)
    is_free, open_features = _free(oracle, is_free, open_features, budget)
    kept = tuple(np.flatnonzero(~is_free).tolist())
    return RobustSet(kept, not open_features.size, oracle.count)


def _free(
    oracle: ExplanationOracle, is_free: Bools, order: Longs, budget: Budget
) -> tuple[Bools, Longs]:
    """Free features block by block; return what is free, and the features left undecided."""
    blocks, undecided = [order], []
    while blocks:
        block = blocks.pop()
        if not block.size:
            continue
        trial = is_free.copy()
        trial[block] = True
        outcome, contrast = oracle.ask(trial, block, budget)
        if outcome == Outcome.ROBUST:
            is_free = trial
        elif (contrast & ~is_free).sum() == 1:
            # One more feature is enough to change the prediction: it must stay.
            blocks.append(block[~contrast[block]])
        elif block.size > 1:
            half = (block.size + 1) // 2
            blocks += [block[half:], block[:half]]
        else:
            undecided.append(int(block[0]))
    return is_free, np.array(undecided, dtype=np.int64)


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


@dataclass(frozen=True, eq=False)
class SmallestSet:
    """A robust feature set, and a size below which there is none."""

    features: tuple[int, ...]
    at_least: int
    questions: int

    @property
    def is_smallest(self) -> bool:
        """Whether no smaller set holds the prediction."""
        return len(self.features) == self.at_least


def smallest_features(
    ensemble: Ensemble,
    x: npt.ArrayLike,
    eps: npt.ArrayLike,
    *,
    rho: float | None = None,
    domain: Domain = ANYWHERE,
    budget: Budget | None = None,
    most_questions: int = 2000,
) -> SmallestSet | None:
    """Find a robust feature set of the least size at x; None if there is none.

    Finding it is hard in general: after `most_questions` questions the smallest known set is
    returned, with the lower bound reached.

    Args:
        ensemble: the model.
        x: one input, finite.
        eps: how far the features of the set may move.
        rho: for a regression, how far the output may move.
        domain: the values of the features outside the set.
        budget: per question; 60 seconds when not given.
        most_questions: when to give up.
    """
    if most_questions < 1:
        raise ConfigError(f"most_questions must be at least 1, got {most_questions}")
    known = robust_features(ensemble, x, eps, rho=rho, domain=domain, budget=budget)
    if known is None:
        return None
    near, far = (ball(ensemble, x, radius, domain) for radius in (eps, np.inf))
    ensemble = condition(ensemble, near)
    oracle, budget = (
        ExplanationOracle(ensemble, near, far, rho),
        PATIENCE if budget is None else budget,
    )
    oracle.count = known.questions
    contrasts: list[Bools] = []
    at_least = 0
    while oracle.count < most_questions:
        held = _least_hit(contrasts, ensemble.n_features)
        at_least = int(held.sum())
        if at_least == len(known.features):
            break
        outcome, contrast = oracle.ask(~held, np.flatnonzero(~held), budget)
        if outcome == Outcome.ROBUST:
            return SmallestSet(_list(held), at_least, oracle.count)
        if outcome != Outcome.COUNTEREXAMPLE:
            break
        contrasts.append(_shrink(oracle, contrast, budget))
    return SmallestSet(known.features, at_least, oracle.count)


def _shrink(oracle: ExplanationOracle, contrast: Bools, budget: Budget) -> Bools:
    """Find a subset-minimal part of a contrast that still changes the prediction."""
    for f in np.flatnonzero(contrast):
        if contrast[f]:
            trial = contrast.copy()
            trial[f] = False
            outcome, smaller = oracle.ask(trial, np.flatnonzero(trial), budget)
            contrast = smaller if outcome == Outcome.COUNTEREXAMPLE else contrast
    return contrast.copy()


def _least_hit(contrasts: list[Bools], n_features: int) -> Bools:
    """Find the fewest features that have one in each of the contrasts."""
    if not contrasts:
        return np.zeros(n_features, dtype=bool)
    table = csr_array(np.array(contrasts, dtype=float))
    found = milp(
        np.ones(n_features),
        constraints=LinearConstraint(table, lb=1.0),
        integrality=np.ones(n_features),
        bounds=Bounds(0.0, 1.0),
    )
    return np.asarray(found.x > 0.5)


def _list(held: Bools) -> tuple[int, ...]:
    return tuple(np.flatnonzero(held).tolist())
