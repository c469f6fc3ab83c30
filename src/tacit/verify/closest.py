"""How near a prediction is to changing: the least radius at which it falls, and the least lead.

The answer can only change at finitely many radii: those at which the box takes in a further
interval of some feature. A binary search over them needs a dozen questions; a counterexample is as
good as its own radius, which shortens the way. A lead is bounded from both sides, and the bounds
tighten until the budget ends.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError
from tacit.verify.box import Box, Domain, Intervals, ball, box_intervals, condition, place_witness
from tacit.verify.components import Incumbent
from tacit.verify.kernels.layout.rounding import fill_radii, max_distance
from tacit.verify.kernels.tables import Floats
from tacit.verify.models.ensemble import Ensemble
from tacit.verify.objectives import make_objectives
from tacit.verify.robustness import verify
from tacit.verify.verdict import ANYWHERE, PATIENCE, Budget, Counterexample, Robust, Spending


@dataclass(frozen=True, eq=False)
class Closest:
    """The prediction holds below `safe` and falls at `eps`; the two are equal when exact.

    `eps` is infinite when no input of the domain changes the prediction.
    """

    safe: float
    eps: float
    counterexample: Counterexample | None

    @property
    def is_exact(self) -> bool:
        """Whether every question was answered within its budget."""
        return self.safe == self.eps


def closest(
    ensemble: Ensemble,
    x: npt.ArrayLike,
    *,
    rho: float | None = None,
    domain: Domain = ANYWHERE,
    budget: Budget | None = None,
) -> Closest:
    """Find the least eps for which some x' with |x'_j − x_j| <= eps changes the prediction.

    Args:
        ensemble: the model.
        x: one input, finite.
        rho: for a regression, how far the output may move.
        domain: the values that features can take at all.
        budget: for each question on the way; 60 seconds when not given.
    """
    radii = critical_radii(ensemble, x, domain)
    low, high = 0, radii.size  # the answer is radii[low..high]; radii[high] is "never"
    best, doubt = None, radii.size
    step = 1
    while low < high:
        # Gallop up while nothing was found: far radii make boxes that are costly to search.
        middle = min(low + step, high) - 1 if best is None else (low + high) // 2
        answer = verify(ensemble, x, radii[middle], rho=rho, domain=domain, budget=budget)
        if isinstance(answer, Counterexample):
            best = answer
            center, is_present = answer.box.center, ~np.isnan(answer.x)
            needed = max_distance(center[is_present], answer.x[is_present])
            high = min(middle, int(np.searchsorted(radii, needed)))
        else:
            if not isinstance(answer, Robust):
                doubt = min(doubt, middle)
            low, step = middle + 1, 2 * step
    eps = float(radii[high]) if high < radii.size else np.inf
    safe = eps if doubt >= high else float(radii[doubt])
    return Closest(safe, eps, best)


def critical_radii(ensemble: Ensemble, x: npt.ArrayLike, domain: Domain) -> Floats:
    """List, in rising order, the radii at which the box takes in another interval."""
    box = ball(ensemble, x, np.inf, domain)
    index = condition(ensemble, box).index
    whole = np.zeros(box.low.size, dtype=bool) if ensemble.integer is None else ensemble.integer
    found = np.empty(index.cuts.size)
    is_single = ensemble.input_type == "float32"
    fill_radii(index.cuts, index.cut_start, box.center, box.low, box.high, is_single, whole, found)
    return np.unique(found[np.isfinite(found)])


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
    count = make_objectives(ensemble, label, None).plus.size
    ends = [box_intervals(ensemble, box) for _ in range(count)]
    lows, done = zip(
        *(_bound_objective(ensemble, label, k, ends[k], spent) for k in range(count)), strict=True
    )
    points = [place_witness(ensemble, box, *one) for one in ends]
    leads = _leads(ensemble, label, np.array(points))
    best = int(leads.argmin())
    high = float(leads[best])
    low = min(*lows, high)
    return Margin(box, float(label), low, high, points[best], all(done), spent.nodes)


def _bound_objective(
    ensemble: Ensemble, label: int, k: int, point: tuple[Intervals, Intervals], spent: Spending
) -> tuple[float, bool]:
    """Bound the lead over one rival: what the components of the ensemble add to it, one by one.

    Returns:
        a lower bound, and whether nothing is open; ``point`` becomes where the least was found.
    """
    objectives = make_objectives(ensemble, label, None)
    incumbent = Incumbent(ensemble.index, objectives, k, *point)
    incumbent.start()
    for component in incumbent.components:
        while not component.is_done and (chunk := spent.take()) > 0:
            _, visited = incumbent.lower(component, component.least, FAR, chunk)
            spent.nodes += visited
    low = _to_lead(ensemble, label, incumbent.total - incumbent.may_lose)
    return low, all(one.is_done for one in incumbent.components)


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
