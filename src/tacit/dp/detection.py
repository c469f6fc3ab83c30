"""ε in one number that means something: how often the best attacker is right when seldom wrong."""

import math
from collections.abc import Mapping

from tacit.dp.event import DiscreteGaussian, Gaussian, Step

FALSE_POSITIVES = 0.01
"""How often the attacker may be wrong about those whose data was not used."""

_FINE = 2.0**12  # cells of the grid per deviation, from which on a discrete Gaussian is smooth
_FAR = 10.0  # deviations beyond which nothing is ever drawn: e^-50


def detection_of(
    epsilon: float, delta: float, *, false_positives: float = FALSE_POSITIVES
) -> float:
    """Bound the true-positive rate of every attacker with a false-positive rate, from (ε, δ).

    Kairouz, Oh and Viswanath (2015): TPR ≤ e^ε FPR + δ, and 1 − FPR ≤ e^ε (1 − TPR) + δ.
    """
    above = math.exp(min(epsilon, 700.0)) * false_positives + delta
    below = 1 - math.exp(-epsilon) * (1 - delta - false_positives)
    return max(false_positives, min(1.0, above, below))


def gaussian_detection(
    steps: Mapping[Step, int], *, false_positives: float = FALSE_POSITIVES
) -> float | None:
    """Compute the same from the whole trade-off curve, where all noise is Gaussian; else None.

    Gaussian steps together are one of μ = √Σ(sensitivity / σ)² (Dong, Roth and Su 2022), against
    which the best test has Φ(Φ⁻¹(FPR) + μ). A sum of discrete Gaussians of thousands of cells is
    one of the whole variance (Kairouz, Liu and Steinke 2021), which differs from the rounding of a
    smooth one by a factor of at most 1 + x²/24σ⁴ at x: that is added.
    """
    from scipy.special import ndtr, ndtri  # heavy: where it is used

    mu2, slack = 0.0, 0.0
    for step, count in steps.items():
        match step:
            case Gaussian():
                mu2 += count / step.multiplier**2
            case DiscreteGaussian() if float(step.sigma2) >= _FINE**2:
                variance = float(step.sigma2) * step.parts
                mu2 += count * step.l2_sensitivity**2 / variance
                slack += count * step.dimension * _FAR**2 / (6 * variance)
            case _:
                return None
    return min(1.0, float(ndtr(ndtri(false_positives) + math.sqrt(mu2))) + slack)
