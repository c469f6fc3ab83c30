"""Rényi divergences of single steps, from their formulas, at a list of orders.

Used for what the library lacks, and as a second opinion on what it has.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from tacit.dp.check import target_delta
from tacit.dp.curve import PrivacyCurve, privacy_curve
from tacit.dp.event import (
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
from tacit.dp.fourier import discretise
from tacit.errors import ConfigError

Floats = npt.NDArray[np.float64]

ORDERS: Floats = np.concatenate(
    [1 + np.arange(1, 100) / 10.0, np.arange(11, 64), [128.0, 256.0, 512.0, 1024.0]]
)


def renyi(step: Step, orders: Floats = ORDERS) -> Floats | None:
    """Bound the Rényi divergence of a step at each order above 1, or return None."""
    match step:
        case Gaussian():
            return orders / (2 * step.multiplier**2)
        case DiscreteGaussian():
            return orders * step.rho + _rounding_of_sums(step) * (2 * orders - 1) / (orders - 1)
        case Pure() | Laplace() | DiscreteLaplace():
            return _response(step.epsilon, 2, orders)
        case Response():
            return _response(step.epsilon, step.levels, orders)
        case Shuffled():
            curve = privacy_curve(step)
            return None if curve is None else _bounded_losses(curve, step.local_epsilon, orders)
        case Poisson(event=Gaussian() as whole):
            sigma = whole.multiplier
            return np.array([_sampled_gaussian(step.rate, sigma, order) for order in orders])
        case Poisson(event=DiscreteGaussian() as whole):
            # Each of both densities is off by the factor that `_rounding_of_sums` bounds.
            off = _rounding_of_sums(whole) * (2 * orders - 1) / (orders - 1)
            return _sampled_discrete(step.rate, whole, orders) + off
        case Poisson():
            return _sampled(step, orders)
        case _:
            return None


def has_renyi(step: Step) -> bool:
    """Say whether `renyi` knows a step."""
    if isinstance(step, Poisson):
        return has_renyi(step.event)  # type: ignore[arg-type]  # unrolled: a step
    known = (Gaussian, DiscreteGaussian, Pure, Laplace, DiscreteLaplace, Response, Shuffled)
    return isinstance(step, known)


def renyi_epsilon(steps: Mapping[Step, int], delta: float) -> float:
    """Compute ε by adding up Rényi divergences, without any library.

    Guarantee: an upper bound, up to floating point.
    """
    target_delta(delta)
    total = np.zeros_like(ORDERS)
    for step, count in steps.items():
        found = renyi(step)
        if found is None:
            raise ConfigError(f"renyi cannot account for {type(step).__name__}; use basic")
        total += count * found
    return epsilon_of_renyi(total, delta)


def epsilon_of_renyi(divergences: Floats, delta: float, orders: Floats = ORDERS) -> float:
    """Convert Rényi divergences to ε at δ (Canonne, Kamath and Steinke 2020, proposition 12)."""
    gains = (np.log(delta) + np.log(orders)) / (orders - 1)
    bounds = divergences + np.log1p(-1 / orders) - gains
    return max(0.0, float(np.min(bounds)))


def _response(epsilon: float, levels: int, orders: Floats) -> Floats:
    from scipy.special import logsumexp  # heavy: where it is used

    log_q = -np.logaddexp(epsilon, math.log(levels - 1))
    log_p = epsilon + log_q
    terms = [orders * log_p + (1 - orders) * log_q, orders * log_q + (1 - orders) * log_p]
    if levels > 2:
        terms.append(np.full_like(orders, math.log(levels - 2) + log_q))
    return np.asarray(logsumexp(terms, axis=0) / (orders - 1))


def _rounding_of_sums(step: DiscreteGaussian) -> float:
    """Bound how far a sum of discrete Gaussians is from one, in max divergence of all entries.

    Kairouz, Liu and Steinke (2021): τ = 10 Σ_k exp(−2π² σ² k / (k + 1)) for one entry, k < parts.
    ∫P'^α Q'^(1−α) ≤ e^((2α − 1)dτ) ∫P^α Q^(1−α) turns it into the term added above.
    """
    k = np.arange(1, min(step.parts, 1000))
    decay = 2 * math.pi**2 * float(step.sigma2)
    tau = 10 * float(np.sum(np.exp(-decay * k / (k + 1))))
    tau += 10 * max(0, step.parts - 1000) * math.exp(-decay * 0.999)
    return step.dimension * tau


def _bounded_losses(curve: PrivacyCurve, bound: float, orders: Floats) -> Floats:
    """Take moments of the discretised loss; what lies beyond the grid counts as the largest loss.

    On [reach, bound] δ lies below its chord in e^ε, which is the curve of a mass at the bound.
    """
    losses = discretise(curve, interval=1e-4)
    reach = losses.interval * float(losses.grid[-1])
    room = -math.expm1(min(0.0, reach - bound))
    beyond = math.log(losses.infinite / room) if losses.infinite > 0 and room > 0 else -math.inf
    largest = beyond + (orders - 1) * bound
    inside = np.array([losses.log_moment(order - 1) for order in orders])
    return np.asarray(np.logaddexp(inside, largest) / (orders - 1))


def _by_whole_orders(at: Callable[[int], float], orders: Floats) -> Floats:
    """Evaluate log moments at whole orders and interpolate: they are convex in the order."""
    neighbours = {math.floor(a) for a in orders} | {math.ceil(a) for a in orders}
    whole = {n: at(n) for n in neighbours}
    low = np.array([whole[math.floor(a)] for a in orders])
    high = np.array([whole[math.ceil(a)] for a in orders])
    part = orders - np.floor(orders)
    return np.asarray(((1 - part) * low + part * high) / (orders - 1))


def _sampled_gaussian(rate: float, sigma: float, order: float) -> float:
    """Integrate E_Q[(P/Q)^order] for P = (1 − q)Q + qN(1, σ²), Q = N(0, σ²).

    The trapezoidal rule converges exponentially here: the integrand is smooth and dies off on
    both sides. This direction is the larger one (Mironov, Talwar and Zhang 2019, theorem 5).
    """
    from scipy.special import logsumexp  # heavy: where it is used

    x = np.linspace(-40 * sigma, order + 40 * sigma, 4001)
    ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * x - 1) / (2 * sigma**2))
    step = (x[1] - x[0]) / (sigma * math.sqrt(2 * math.pi))
    log_moment = float(logsumexp(order * ratio - x**2 / (2 * sigma**2))) + math.log(step)
    return max(0.0, log_moment) / (order - 1)


def _sampled_discrete(rate: float, whole: DiscreteGaussian, orders: Floats) -> Floats:
    """Take the sampled Gaussian's moments at whole orders, where the discrete one has the same.

    E_Q[(P/Q)^k] of a discrete Gaussian moved by a vector of integers is exp(k(k − 1)Δ²/2σ²), as on
    the real line: k times an integer is one. x ↦ Δ − x exchanges P and Q, so that the direction
    taken here is the larger one (Mironov, Talwar and Zhang 2019, theorem 5).
    """
    sigma = math.sqrt(float(whole.sigma2) * whole.parts) / whole.l2_sensitivity

    def log_moment(order: int) -> float:
        return 0.0 if order < 2 else (order - 1) * _sampled_gaussian(rate, sigma, float(order))

    return _by_whole_orders(log_moment, orders)


def _sampled(step: Poisson, orders: Floats) -> Floats | None:
    """Bound any sampled step by the divergences of the whole (Zhu and Wang 2019, theorem 6)."""
    from scipy.special import gammaln, logsumexp  # heavy: where it is used

    most = math.ceil(float(orders[-1]))
    whole = renyi(step.event, np.arange(2.0, most + 1))  # type: ignore[arg-type]  # unrolled
    if whole is None:
        return None

    def log_moment(order: int) -> float:
        if order < 2:
            return 0.0
        k = np.arange(2, order + 1)
        # The weight of k hits in `order` draws, and what k hits do.
        choose = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
        weights = choose + k * math.log(step.rate) + (order - k) * math.log1p(-step.rate)
        terms = weights + (k - 1) * whole[: order - 1]
        terms[1:] += math.log(3)
        first = (order - 1) * math.log1p(-step.rate) + math.log1p((order - 1) * step.rate)
        return float(np.logaddexp(first, logsumexp(terms)))

    return _by_whole_orders(log_moment, orders)
