"""The ε of one step on its own, and what elementary composition makes of many."""

import math
from collections.abc import Mapping

from tacit.dp.check import target_delta
from tacit.dp.curve import epsilon_of_curve, privacy_curve
from tacit.dp.event import Binomial, DiscreteGaussian, FixedSample, Poisson, Step
from tacit.dp.renyi import epsilon_of_renyi, renyi


def alone_epsilon(step: Step, delta: float) -> float:
    """Compute ε of a single step at δ, by the tightest bound there is for it; inf if none."""
    target_delta(delta)
    curve = privacy_curve(step)
    if curve is not None:
        return epsilon_of_curve(curve, delta)
    match step:
        case DiscreteGaussian():
            divergences = renyi(step)
            return math.inf if divergences is None else epsilon_of_renyi(divergences, delta)
        case Binomial():
            return binomial_epsilon(step, delta)
        case Poisson():
            return _amplified(step.event, step.rate, delta)  # type: ignore[arg-type]  # unrolled
        case FixedSample():
            return _amplified(step.event, step.sample / step.population, delta)
        case _:
            return math.inf


def basic_epsilon(steps: Mapping[Step, int], delta: float) -> float:
    """Add up the ε of all steps, with δ shared equally among them."""
    share = target_delta(delta) / sum(steps.values())
    return sum(count * alone_epsilon(step, share) for step, count in steps.items())


def advanced_epsilon(steps: Mapping[Step, int], delta: float) -> float:
    """Compose by Kairouz, Oh and Viswanath (2015), theorem 3.5; never above `basic`."""
    share = target_delta(delta) / 2 / sum(steps.values())
    singles = [(alone_epsilon(step, share), count) for step, count in steps.items()]
    if any(math.isinf(epsilon) for epsilon, _ in singles):
        return math.inf
    squares = sum(count * epsilon**2 for epsilon, count in singles)
    drift = sum(count * epsilon * math.tanh(epsilon / 2) for epsilon, count in singles)
    advanced = drift + math.sqrt(2 * squares * math.log(2 / delta))
    return min(advanced, basic_epsilon(steps, delta))


def binomial_epsilon(event: Binomial, delta: float) -> float:
    """Evaluate theorem 1 of Agarwal et al., "cpSGD" (2018), for fair coins and unit steps.

    The theorem asks for enough coins; with fewer it says nothing and this is inf.
    """
    d, n = event.dimension, event.trials
    variance = n / 4
    if variance < max(23 * math.log(10 * d / delta), 2 * event.linf_sensitivity):
        return math.inf
    b, c, e = 1 / 3, 1.75 * math.sqrt(2), 2 / 3
    log1 = math.log(1.25 / delta)
    first = event.l2_sensitivity * math.sqrt(2 * log1 / variance)
    second = event.l2_sensitivity * c * math.sqrt(math.log(10 / delta)) + event.l1_sensitivity * b
    third = event.linf_sensitivity * (
        2 / 3 * log1 + e * math.log(20 * d / delta) * math.log(10 / delta)
    )
    return first + (second + third) / (variance * (1 - delta / 10))


def _amplified(whole: Step, rate: float, delta: float) -> float:
    """Balle, Barthe and Gaboardi (2018): ε' = log(1 + q (e^ε − 1)) at δ' = q δ."""
    if delta / rate >= 1:
        return 0.0
    epsilon = alone_epsilon(whole, delta / rate)
    if epsilon > 500:
        return math.inf
    return math.log1p(rate * math.expm1(epsilon))
