"""What counting proves of a mechanism: an ε that is spent at least, noise that is not there.

The first is from guesses. For the second: an event says which noise was added, and where an audit
can see that noise, it need not wait for a record to betray itself; it counts how many draws lie
beyond one and a half claimed deviations, a binomial number if the claim is true.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import binom

from tacit.audit.estimators import Ranking, clopper_pearson
from tacit.audit.findings import Power
from tacit.errors import ConfigError

_LARGEST_EPSILON = 60.0
SHARES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares of the canaries that are guessed about; the surest are guessed first."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """An ε that is spent at least, with the confidence and at the δ that were asked for.

    Attributes:
        epsilon: 0 if nothing was proved.
        guesses: how many of the canaries were guessed about.
        right: how many of those guesses were right.
        trials: how many canaries or rounds there were.
    """

    epsilon: float
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
    best = Bound(epsilon=0.0, guesses=0, right=0, trials=canaries)
    for share in shares:
        guesses, right = _guess(ranking, order, share)

        def p_value(epsilon: float, guesses: int = guesses, right: int = right) -> float:
            return one_run_p_value(
                canaries=canaries, guesses=guesses, right=right, epsilon=epsilon, delta=delta
            )

        epsilon = largest_refuted(p_value, error)
        if epsilon > best.epsilon:
            best = Bound(epsilon=epsilon, guesses=guesses, right=right, trials=canaries)
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


CONFIDENCE = 1 - 1e-6
"""Of an honest mechanism, one audit in a million says that it is none."""

CAUGHT = 0.95
"""With which probability the shortfall that is named beside a verdict would have been caught."""

_BAR = 1.5  # deviations; counting beyond it tells shortfalls apart best
_MOST = 8.0  # the largest factor that is looked for

Tail = Callable[[float], float]
"""How likely a draw lies further out than so many deviations."""


@dataclass(frozen=True, kw_only=True)
class NoiseTrial:
    """What counting draws says about noise.

    Attributes:
        trials: how many draws were looked at.
        at_most: the noise is at most so many times what is claimed, at the confidence.
        needed: what it must be for the claim to hold: 1, or more where more was to be hidden.
        confidence: how sure.
        power: what would have been caught.
    """

    trials: int
    at_most: float
    needed: float
    confidence: float
    power: Power

    @property
    def is_contradicted(self) -> bool:
        """Tell whether there is less noise than the claim needs."""
        return self.at_most < self.needed

    @property
    def excess(self) -> float:
        """By what factor, at least, signal over noise is above what is claimed."""
        return self.needed / max(self.at_most, 1e-6)


def gaussian_tail(deviations: float) -> float:
    """Of a normal number."""
    return 2 * float(ndtr(-deviations))


def laplace_tail(deviations: float) -> float:
    """Of a Laplace number, whose deviation is √2 of its scale."""
    return math.exp(-math.sqrt(2) * deviations)


def try_noise(
    noise: NDArray[np.float64],
    *,
    deviation: float,
    tail: Tail = gaussian_tail,
    confidence: float = CONFIDENCE,
    needed: float = 1.0,
) -> NoiseTrial:
    """Hold draws of noise against the deviation and the shape that are claimed.

    Args:
        noise: independent draws.
        deviation: the standard deviation that is claimed.
        tail: the claimed shape.
        confidence: of the bound.
        needed: how many times the claimed noise it would take to hide what there is to hide.

    Guarantee: noise as claimed is contradicted with a probability of at most 1 − confidence, where
    no more was to be hidden than is claimed.
    """
    beyond = int((np.abs(noise) > _BAR * deviation).sum())
    return try_count(
        beyond, len(noise), lambda f: tail(_BAR / f), confidence=confidence, needed=needed
    )


def try_count(
    hits: int,
    trials: int,
    chance: Callable[[float], float],
    *,
    confidence: float = CONFIDENCE,
    needed: float = 1.0,
) -> NoiseTrial:
    """Hold a count against a chance that grows with the noise; `chance(1)` is what is claimed."""
    if trials < 20:
        raise ConfigError(f"wanted 20 trials or more, got {trials}")
    error = 1 - confidence
    # The largest count that contradicts: at most so many, with a chance of at most the error.
    limit = int(binom.ppf(error, trials, chance(needed)))
    while limit >= 0 and binom.cdf(limit, trials, chance(needed)) > error:
        limit -= 1
    return NoiseTrial(
        trials=trials,
        at_most=_largest(lambda f: float(binom.cdf(hits, trials, chance(f))) > error),
        needed=needed,
        confidence=confidence,
        power=_power(lambda f: float(binom.cdf(limit, trials, chance(f)))),
    )


def _power(caught: Callable[[float], float]) -> Power:
    """Return the smallest shortfall that is caught often enough, or how often missing noise is."""
    none = caught(1e-6)
    if none < CAUGHT:
        return Power(factor=0.0, probability=none)
    return Power(factor=_largest(lambda f: caught(f) >= CAUGHT), probability=CAUGHT)


def _largest(holds: Callable[[float], bool]) -> float:
    """Return, from below, the largest factor at which something holds that holds for small ones."""
    low, high = 1e-6, _MOST
    if holds(high):
        return high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
