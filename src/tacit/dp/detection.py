"""ε in one number that means something: how often the best attacker is right when seldom wrong."""

import math

FALSE_POSITIVES = 0.01
"""How often the attacker may be wrong about those whose data was not used."""


def detection_of(
    epsilon: float, delta: float, *, false_positives: float = FALSE_POSITIVES
) -> float:
    """Bound the true-positive rate of every attacker with a false-positive rate, from (ε, δ).

    Kairouz, Oh and Viswanath (2015): TPR ≤ e^ε FPR + δ, and 1 − FPR ≤ e^ε (1 − TPR) + δ.
    """
    above = math.exp(min(epsilon, 700.0)) * false_positives + delta
    below = 1 - math.exp(-epsilon) * (1 - delta - false_positives)
    return max(false_positives, min(1.0, above, below))
