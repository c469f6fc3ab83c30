"""How near a class comes to changing within a box: bounds that tighten until the budget ends."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError
from tacit.verify.box import (
    Box,
    Domain,
    Floats,
    Intervals,
    ball,
    box_intervals,
    condition,
    place_witness,
)
from tacit.verify.components import Incumbent
from tacit.verify.models.ensemble import Ensemble
from tacit.verify.objectives import make_objectives
from tacit.verify.verdict import ANYWHERE, PATIENCE, Budget, Spending

FAR = -(1 << 62)
"""Below every sum."""


@dataclass(frozen=True, eq=False)
class Margin:
    """The least lead of the predicted class over all inputs of a box lies in [`low`, `high`].

    The lead is by how much its score exceeds the best other's, before any sigmoid or softmax;
    with a single score, how far that is from the cutoff. Above zero the prediction holds.
    """

    box: Box
    prediction: float
    low: float
    high: float
    """The lead at `x`, in the library's arithmetic."""
    x: Floats
    is_exact: bool
    """Whether no input has a smaller lead, but for rounding."""
    nodes: int


def margin(
    ensemble: Ensemble,
    x: npt.ArrayLike,
    eps: npt.ArrayLike,
    *,
    domain: Domain = ANYWHERE,
    budget: Budget | None = None,
) -> Margin:
    """Bound the least lead of the predicted class over all x' with |x'_j − x_j| <= eps_j.

    The bounds are valid whenever the budget ends; with time they meet, but for rounding.

    Args:
        ensemble: a classifier.
        x: one input, finite.
        eps: one radius, one per feature, or two rows (how far down, how far up).
        domain: the values that features can take at all.
        budget: how long to try; 60 seconds when not given.
    """
    if ensemble.task != "classify":
        raise ConfigError("a margin is that of a class; this is a regression")
    box, budget = ball(ensemble, x, eps, domain), PATIENCE if budget is None else budget
    ensemble = condition(ensemble, box)
    label = int(ensemble.predict(box.center[None])[0])
    spent = Spending(budget)
    found = [
        _bound_objective(ensemble, label, k, box_intervals(ensemble, box), spent)
        for k in range(make_objectives(ensemble, label, None).plus.size)
    ]
    points = [place_witness(ensemble, box, *one.point) for one in found]
    leads = _leads(ensemble, label, np.array(points))
    best = int(leads.argmin())
    low, high = min(one.low for one in found), float(leads[best])
    is_exact = all(one.is_done for one in found)
    return Margin(box, float(label), min(low, high), high, points[best], is_exact, spent.nodes)


@dataclass(frozen=True, eq=False)
class _Lead:
    """Over one rival: a lower bound, where the least was found, and whether nothing is open."""

    low: float
    point: tuple[Intervals, Intervals]
    is_done: bool


def _bound_objective(
    ensemble: Ensemble, label: int, k: int, point: tuple[Intervals, Intervals], spent: Spending
) -> _Lead:
    """Bound the lead over one rival: what the components of the ensemble add to it, one by one."""
    objectives = make_objectives(ensemble, label, None)
    incumbent = Incumbent(ensemble.index, objectives, k, *point)
    incumbent.start()
    for component in incumbent.components:
        while not component.is_done and (chunk := spent.take()) > 0:
            _, visited = incumbent.lower(component, component.least, FAR, chunk)
            spent.nodes += visited
    low = _to_lead(ensemble, label, incumbent.total - incumbent.may_lose)
    return _Lead(low, point, all(one.is_done for one in incumbent.components))


def _to_lead(ensemble: Ensemble, label: int, fixed: int) -> float:
    """Translate fixed point into a lead that is surely not too large."""
    index, scores = ensemble.index, 1 if ensemble.n_scores == 1 else 2
    exact = Fraction(fixed - scores * index.slack) / Fraction(2) ** index.exponent
    exact /= Fraction(ensemble.divisor)
    if ensemble.n_scores == 1:
        exact += Fraction(ensemble.cutoff) * (-1 if label == 1 else 1)
    return float(np.nextafter(float(exact), -np.inf))


def _leads(ensemble: Ensemble, label: int, points: Floats) -> Floats:
    scores = ensemble.scores(points).astype(np.float64)
    if ensemble.n_scores == 1:
        return (scores[:, 0] - ensemble.cutoff) * (1.0 if label == 1 else -1.0)
    own = scores[:, label].copy()
    scores[:, label] = -np.inf
    return np.asarray(own - scores.max(axis=1))
