"""The smallest perturbation that changes a prediction, exactly.

The answer can only change at finitely many radii: those at which the box takes in a further cell
of some feature. A binary search over them needs a dozen questions; a counterexample is as good as
its own radius, which shortens the way.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.verify.box import Domain, Floats, ball
from tacit.verify.ensemble import Ensemble
from tacit.verify.jit import compiled
from tacit.verify.search import ANYWHERE, Budget, Certificate, Counterexample, verify
from tacit.verify.witness import above, at_most


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
            needed = _distance(answer.box.center, answer.x)
            high = min(middle, int(np.searchsorted(radii, needed)))
        else:
            if not isinstance(answer, Certificate):
                doubt = min(doubt, middle)
            low, step = middle + 1, 2 * step
    eps = float(radii[high]) if high < radii.size else np.inf
    safe = eps if doubt >= high else float(radii[doubt])
    return Closest(safe, eps, best)


def critical_radii(ensemble: Ensemble, x: npt.ArrayLike, domain: Domain) -> Floats:
    """List, in rising order, the radii at which the box takes in another cell."""
    box = ball(ensemble, x, np.inf, domain)
    index = ensemble.index
    whole = np.zeros(box.low.size, dtype=bool) if ensemble.integer is None else ensemble.integer
    found = np.empty(index.cuts.size)
    is_single = ensemble.input_type == "float32"
    _radii(index.cuts, index.cut_start, box.center, box.low, box.high, is_single, whole, found)
    return np.unique(found[np.isfinite(found)])


@compiled
def _distance(x: Any, y: Any) -> Any:
    """Compute the largest difference of two inputs, rounded up."""
    most = 0.0
    for i in range(x.size):
        most = max(most, _subtract_up(max(x[i], y[i]), min(x[i], y[i])))
    return most


@compiled
def _subtract_up(x: float, y: float) -> Any:
    """Compute x − y rounded towards plus infinity."""
    total = x - y
    part = total - x
    rest = (x - (total - part)) + (-y - part)
    return np.nextafter(total, np.inf) if rest > 0 else total


@compiled
def _radii(
    cuts: Any, start: Any, x: Any, low: Any, high: Any, is_single: bool, whole: Any, out: Any
) -> None:
    for f in range(x.size):
        key = np.float64(np.float32(x[f])) if is_single else x[f]
        for i in range(start[f], start[f + 1]):
            if key <= cuts[i]:
                other = above(cuts[i], is_single, whole[f])
                out[i] = _subtract_up(other, x[f]) if other <= high[f] else np.inf
            else:
                other = at_most(cuts[i], is_single, whole[f])
                out[i] = _subtract_up(x[f], other) if other >= low[f] else np.inf
