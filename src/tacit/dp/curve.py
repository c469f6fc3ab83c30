"""Privacy curves: how far two neighbours can be told apart, δ as a function of ε.

A curve belongs to a pair (P, Q) of distributions that no output of the mechanism is easier to tell
apart than; such pairs compose. Events that are only known through Rényi or (ε, δ) bounds without a
pair have no curve here.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.dp.event import (
    Approximate,
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    Poisson,
    Pure,
    Response,
    Shuffled,
    Step,
)
from tacit.dp.shuffle import shuffled_delta

Floats = npt.NDArray[np.float64]
Divergence = Callable[[Floats], Floats]

_CHEAP_POINTS = 1 << 20
_DEAR_POINTS = 1024
_MOST_VARIANCE = 10**8  # beyond which the table of a discrete Gaussian is not worth its memory


@dataclass(frozen=True)
class PrivacyCurve:
    """The hockey-stick divergences of a pair, for ε ≥ 0.

    Args:
        forward: H(P ‖ Q), where P has the record and Q has not.
        backward: H(Q ‖ P).
        points: how many evaluations are affordable.
    """

    forward: Divergence
    backward: Divergence
    points: int = _CHEAP_POINTS

    def delta(self, epsilon: float) -> float:
        """Return the δ at one ε ≥ 0: the worse of both directions."""
        at = np.array([epsilon])
        return float(max(self.forward(at)[0], self.backward(at)[0]))

    def mirrored(self) -> "PrivacyCurve":
        """Return the curve with the neighbours exchanged."""
        return PrivacyCurve(self.backward, self.forward, self.points)


def privacy_curve(step: Step) -> PrivacyCurve | None:
    """Return the curve of a step, or None if it has none that composes."""
    match step:
        case Gaussian():
            return _symmetric(lambda e: _gaussian(e, step.multiplier))
        case Laplace(dimension=1):
            return _symmetric(lambda e: -np.expm1(np.minimum(e - step.epsilon, 0) / 2))
        case DiscreteLaplace(dimension=1):
            return _symmetric(lambda e: _discrete_laplace(e, step))
        case Laplace() | DiscreteLaplace() | Pure():
            # How a vector's loss spreads over its entries is not known: take the worst ε-DP pair.
            return _symmetric(lambda e: _response(e, step.epsilon, 2))
        case Response():
            return _symmetric(lambda e: _response(e, step.epsilon, step.levels))
        case Approximate():
            return _symmetric(
                lambda e: step.delta + (1 - step.delta) * _response(e, step.epsilon, 2)
            )
        case DiscreteGaussian(dimension=1, parts=1) if step.sigma2 <= _MOST_VARIANCE:
            return _symmetric(_discrete_gaussian(step))
        case Binomial(dimension=1):
            return _symmetric(_binomial(step), _DEAR_POINTS)
        case Shuffled():
            return _symmetric(lambda e: shuffled_delta(step, e, blocks=200), _DEAR_POINTS)
        case Poisson():
            whole = privacy_curve(step.event)  # type: ignore[arg-type]  # unrolled: a step
            return None if whole is None else _sampled(whole, step.rate)
        case _:
            return None


def epsilon_of_curve(curve: PrivacyCurve, delta: float) -> float:
    """Invert a curve: the smallest ε at which δ suffices, to eight digits; inf if there is none."""
    if curve.delta(0.0) <= delta:
        return 0.0
    high = 1.0
    while curve.delta(high) > delta:
        high *= 2
        if high > 500:
            return math.inf
    low = 0.0
    while high - low > 1e-8 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if curve.delta(middle) <= delta else (middle, high)
    return high


def _symmetric(divergence: Divergence, points: int = _CHEAP_POINTS) -> PrivacyCurve:
    return PrivacyCurve(divergence, divergence, points)


def _gaussian(epsilons: Floats, multiplier: float) -> Floats:
    """Balle and Wang (2018), theorem 8."""
    from scipy.special import log_ndtr  # heavy: where it is used

    shift = 1 / (2 * multiplier)
    near = np.exp(log_ndtr(shift - epsilons * multiplier))
    far = np.exp(epsilons + log_ndtr(-shift - epsilons * multiplier))
    return np.asarray(np.maximum(near - far, 0))


def _response(epsilons: Floats, epsilon: float, levels: int) -> Floats:
    """Only the two values that differ matter: p − e^ε q of them."""
    gap = -np.expm1(np.minimum(epsilons - epsilon, 0))
    return np.asarray(gap / (1 + (levels - 1) * math.exp(-epsilon)))


def _discrete_laplace(epsilons: Floats, event: DiscreteLaplace) -> Floats:
    """Sum P − e^ε Q over the integers x below (k − ε t) / 2, where the loss exceeds ε."""
    t, k = float(event.scale), event.l1_sensitivity
    last = np.ceil((k - epsilons * t) / 2) - 1  # the largest such x
    a = -1 / t
    share = 1 + math.exp(a)
    upper = 1 - np.exp(a * (last + 1)) / share
    lower = np.exp(epsilons + a * (k - last)) / share
    return np.where(last >= 0, np.maximum(upper - lower, 0), 0.0)


def _discrete_gaussian(event: DiscreteGaussian) -> Divergence:
    """Sum P − e^ε Q over the integers x below k/2 − ε σ²/k, where the loss exceeds ε."""
    k, sigma2 = math.ceil(event.l2_sensitivity), float(event.sigma2)
    width = math.ceil(40 * math.sqrt(sigma2)) + 1
    xs = np.arange(-width, width + 1)
    density = np.exp(-(xs**2) / (2 * sigma2))
    below = np.concatenate([[0.0], np.cumsum(density) / density.sum()])  # P(X < x)

    def divergence(epsilons: Floats) -> Floats:
        last = np.ceil(k / 2 - epsilons * sigma2 / k) - 1
        upper = below[np.clip(last + 1 + width, 0, 2 * width + 1).astype(int)]
        lower = below[np.clip(last + 1 - k + width, 0, 2 * width + 1).astype(int)]
        return np.asarray(np.maximum(upper - np.exp(epsilons) * lower, 0))

    return divergence


def _binomial(event: Binomial) -> Divergence:
    """Compare Bin(N, 1/2) with itself moved by the sensitivity; its far end is never hidden."""
    from scipy.special import bdtr  # heavy: where it is used

    n, k = event.trials, math.ceil(event.linf_sensitivity)
    counts = np.arange(n + 1)
    heads = np.diff(bdtr(counts.astype(float), n, 0.5), prepend=0.0)
    p = np.concatenate([heads, np.zeros(k)])
    q = np.concatenate([np.zeros(k), heads])
    return lambda epsilons: np.array(
        [float(np.maximum(p - math.exp(e) * q, 0).sum()) for e in epsilons]
    )


def _sampled(whole: PrivacyCurve, rate: float) -> PrivacyCurve:
    """Replace P by (1 − q)Q + qP, in either direction."""

    def forward(epsilons: Floats) -> Floats:
        return np.asarray(rate * whole.forward(np.log1p(np.expm1(epsilons) / rate)))

    def backward(epsilons: Floats) -> Floats:
        left = -np.expm1(epsilons + math.log1p(-rate))  # 1 − e^ε (1 − q)
        some = left > 0
        inner = np.zeros_like(epsilons)
        inner[some] = epsilons[some] + np.log(rate / left[some])
        values = np.zeros_like(epsilons)
        values[some] = left[some] * whole.backward(np.maximum(inner[some], 0))
        return values

    return PrivacyCurve(forward, backward, whole.points)
