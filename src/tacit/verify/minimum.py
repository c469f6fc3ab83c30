"""Robust feature sets (abductive explanations) of the least possible size.

Every contrast (a set of features that changes the prediction when they are free) must have a
feature in the robust set. So the least set that hits all known contrasts is a lower bound, and if
it holds the prediction it is the answer; if not, the counterexample is one more (implicit hitting
sets).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from tacit.errors import ConfigError
from tacit.verify.box import Domain, ball, condition
from tacit.verify.explain import robust_features
from tacit.verify.kernels.outcome import Outcome
from tacit.verify.models.ensemble import Ensemble
from tacit.verify.oracle import Bools, ExplanationOracle
from tacit.verify.verdict import ANYWHERE, PATIENCE, Budget


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
