"""Robust feature sets of the least possible size.

Every way to change the prediction moves some features beyond eps; a robust set must hold at least
one of them. So the least set that hits all known ways is a lower bound, and if it holds the
prediction it is the answer; if not, the counterexample is one more way (implicit hitting sets).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from tacit.errors import ConfigError
from tacit.verify.box import Box, Domain, ball
from tacit.verify.ensemble import Ensemble
from tacit.verify.features import robust_features
from tacit.verify.search import ANYWHERE, Budget, Certificate, Counterexample, Verdict, verify_box

Bools = npt.NDArray[np.bool_]


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
    quest = _Quest(ensemble, near, far, rho, budget)
    quest.count = known.questions
    ways: list[Bools] = []
    at_least = 0
    while quest.count < most_questions:
        held = _least_hit(ways, ensemble.n_features)
        at_least = int(held.sum())
        if at_least == len(known.features):
            break
        answer = quest.ask(~held)
        if isinstance(answer, Certificate):
            return SmallestSet(_list(held), at_least, quest.count)
        if not isinstance(answer, Counterexample):
            break
        ways.append(quest.shrink(answer))
    return SmallestSet(known.features, at_least, quest.count)


class _Quest:
    """Questions about one input: may these features go free?"""

    def __init__(
        self, ensemble: Ensemble, near: Box, far: Box, rho: float | None, budget: Budget | None
    ) -> None:
        self._ensemble, self._near, self._far = ensemble, near, far
        self._rho, self._budget = rho, budget
        self.count = 0

    def ask(self, is_free: Bools) -> Verdict:
        """Verify with some features free over the domain and the others within eps."""
        near, far = self._near, self._far
        low, high = np.where(is_free, far.low, near.low), np.where(is_free, far.high, near.high)
        self.count += 1
        box = Box(near.center, low, high)
        return verify_box(self._ensemble, box, rho=self._rho, budget=self._budget)

    def shrink(self, answer: Counterexample) -> Bools:
        """Find a subset-minimal part of the features moved beyond eps that changes the answer."""
        moved = self._moved(answer)
        for f in np.flatnonzero(moved):
            if not moved[f]:
                continue
            trial = moved.copy()
            trial[f] = False
            smaller = self.ask(trial)
            if isinstance(smaller, Counterexample):
                moved = self._moved(smaller)
        return moved

    def _moved(self, answer: Counterexample) -> Bools:
        return np.asarray((answer.x < self._near.low) | (answer.x > self._near.high))


def _least_hit(ways: list[Bools], n_features: int) -> Bools:
    """Find the fewest features that have one in each of the ways."""
    if not ways:
        return np.zeros(n_features, dtype=bool)
    table = csr_array(np.array(ways, dtype=float))
    found = milp(
        np.ones(n_features),
        constraints=LinearConstraint(table, lb=1.0),
        integrality=np.ones(n_features),
        bounds=Bounds(0.0, 1.0),
    )
    return np.asarray(found.x > 0.5)


def _list(held: Bools) -> tuple[int, ...]:
    return tuple(np.flatnonzero(held).tolist())
