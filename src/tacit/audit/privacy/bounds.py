"""Lower bounds on ε from guesses, each valid at a stated confidence."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from tacit.audit.estimators import clopper_pearson
from tacit.audit.ranking import Ranking
from tacit.errors import ConfigError

_LARGEST_EPSILON = 60.0
SHARES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares of the canaries that are guessed about; the surest are guessed first."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """An ε that is spent at least, with this confidence, at this δ.

    Attributes:
        epsilon: 0 if nothing was proved.
        delta: the δ that it holds at.
        confidence: how sure.
        guesses: how many of the canaries were guessed about.
        right: how many of those guesses were right.
        trials: how many canaries or rounds there were.
    """

    epsilon: float
    delta: float
    confidence: float
    guesses: int
    right: int
    trials: int


def one_run_p_value(
    *, canaries: int, guesses: int, right: int, epsilon: float, delta: float
) -> float:
    """Bound the chance of so many right guesses if training is (ε, δ)-DP per record.

    Steinke, Nasr and Jagielski 2023, theorem 5.2: the canaries' coins are independent and fair,
    they all go into the same run, and the guesser may abstain. With δ = 0 the right guesses are
    dominated by a binomial of chance e^ε / (1 + e^ε); δ costs the second term.

    Guarantee: an upper bound on the probability, for adding or removing a record.
    """
    if not (0 <= right <= guesses <= canaries and canaries > 0):
        raise ConfigError(
            f"wanted right ≤ guesses ≤ canaries, got {right}, {guesses} and {canaries}"
        )
    chance = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, chance))
    if delta == 0 or right == 0:
        return min(tail, 1.0)
    below = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, chance))
    slope = float((below / np.arange(1, right + 1)).max())
    return min(tail + 2 * canaries * delta * slope, 1.0)


def one_run_epsilon(
    ranking: Ranking, *, delta: float, confidence: float = 0.95, shares: Sequence[float] = SHARES
) -> Bound:
    """Return the best ε lower bound from one training run with canaries.

    For each share of the canaries, half of the guesses say "in" for the highest scores and half
    "out" for the lowest; if all are guessed about, the cut lies in the middle of the scores. The
    error is divided among the shares, so that taking the best is fair.
    """
    _check(delta, confidence)
    canaries = len(ranking.scores)
    error = (1 - confidence) / len(shares)
    order = np.argsort(ranking.scores, kind="stable")
    best = Bound(
        epsilon=0.0, delta=delta, confidence=confidence, guesses=0, right=0, trials=canaries
    )
    for share in shares:
        guesses, right = _guess(ranking, order, share)

        def p_value(epsilon: float, guesses: int = guesses, right: int = right) -> float:
            return one_run_p_value(
                canaries=canaries, guesses=guesses, right=right, epsilon=epsilon, delta=delta
            )

        epsilon = largest_refuted(p_value, error)
        if epsilon > best.epsilon:
            best = Bound(
                epsilon=epsilon,
                delta=delta,
                confidence=confidence,
                guesses=guesses,
                right=right,
                trials=canaries,
            )
    return best


def _guess(ranking: Ranking, order: NDArray[np.int64], share: float) -> tuple[int, int]:
    """Return how many guesses are made, without looking at the truth, and how many are right."""
    canaries = len(order)
    if share >= 1:
        # How many are in is not known: two clouds of scores are parted between them.
        middle = float(np.quantile(ranking.scores, [0.1, 0.9]).mean())
        return canaries, int(((ranking.scores > middle) == ranking.is_positive).sum())
    side = max(int(share * canaries / 2), 1)
    right = int((~ranking.is_positive[order[:side]]).sum())
    return 2 * side, right + int(ranking.is_positive[order[canaries - side :]].sum())


def rates_epsilon(
    *,
    false_positives: int,
    outside: int,
    true_positives: int,
    inside: int,
    delta: float,
    confidence: float = 0.95,
) -> float:
    """Return the ε lower bound from error rates over independent trials (Jagielski et al. 2020).

    (ε, δ)-DP forces TPR ≤ e^ε · FPR + δ, and the same with the roles of in and out exchanged;
    both rates are taken at the unfavourable ends of Clopper–Pearson intervals.
    """
    _check(delta, confidence)
    each = 1 - (1 - confidence) / 2  # two rates; one-sided ends of two-sided intervals
    two_sided = 2 * each - 1
    fpr = clopper_pearson(false_positives, outside, confidence=two_sided)
    tpr = clopper_pearson(true_positives, inside, confidence=two_sided)
    ratios = [(tpr[0] - delta, fpr[1]), (1 - fpr[1] - delta, 1 - tpr[0])]
    return max([0.0, *(math.log(top / low) for top, low in ratios if top > 0 and low > 0)])


def largest_refuted(p_value: Callable[[float], float], error: float) -> float:
    """Return the largest ε whose p-value is at most the error, by bisection; 0 if none is."""
    if p_value(0.0) > error:
        return 0.0
    low, high = 0.0, _LARGEST_EPSILON
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(middle) <= error else (low, middle)
    return low


def _check(delta: float, confidence: float) -> None:
    if not 0 <= delta < 1 or not 0 < confidence < 1:
        raise ConfigError(
            f"wanted 0 ≤ δ < 1 and a confidence between 0 and 1, got {delta} and {confidence}"
        )
