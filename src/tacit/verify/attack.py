"""A quick look for a counterexample, optionally with few features that may change."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError
from tacit.verify.box import Box, Domain, ball
from tacit.verify.models.ensemble import Ensemble
from tacit.verify.robustness import verify_box
from tacit.verify.verdict import ANYWHERE, Budget, Counterexample


def attack(
    ensemble: Ensemble,
    x: npt.ArrayLike,
    eps: npt.ArrayLike,
    *,
    features: Sequence[int] | None = None,
    rho: float | None = None,
    domain: Domain = ANYWHERE,
    tries: int = 10,
) -> Counterexample | None:
    """Look at the `tries` most promising regions of the box; None says nothing about robustness.

    Args:
        ensemble: the model.
        x: one input, finite.
        eps: one radius, one per feature, or two rows (how far down, how far up).
        features: the only features that may change; all when not given.
        rho: for a regression, how far the output must move to count.
        domain: the values that features can take at all.
        tries: how many regions to look at.
    """
    box = ball(ensemble, x, eps, domain)
    if features is not None:
        if any(not 0 <= f < ensemble.n_features for f in features):
            raise ConfigError(f"features are numbered 0 to {ensemble.n_features - 1}")
        may_change = np.zeros(ensemble.n_features, dtype=bool)
        may_change[list(features)] = True
        low, high = (np.where(may_change, end, box.center) for end in (box.low, box.high))
        box = Box(box.center, low, high)
    answer = verify_box(ensemble, box, rho=rho, budget=Budget(nodes=tries, seconds=None))
    return answer if isinstance(answer, Counterexample) else None
