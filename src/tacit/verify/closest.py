"""The smallest perturbation that changes a prediction, exactly.

The answer can only change at finitely many radii: those at which the box takes in a further
interval of some feature. A binary search over them needs a dozen questions; a counterexample is as
good as its own radius, which shortens the way.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.verify.box import Domain, Floats, ball, condition
from tacit.verify.kernels.layout.rounding import fill_radii, max_distance
from tacit.verify.models.ensemble import Ensemble
from tacit.verify.robustness import verify
from tacit.verify.verdict import ANYWHERE, Budget, Counterexample, Robust


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
