"""The accountants, one table at the end: each turns counted steps and δ into ε, always from above.

Before it stand the ε of one step on its own, and what elementary composition makes of many.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tacit.dp.check import target_delta
from tacit.dp.curve import epsilon_of_curve, privacy_curve
from tacit.dp.event import (
    Binomial,
    DiscreteGaussian,
    Event,
    FixedSample,
    Poisson,
    Relation,
    Step,
    Unaccountable,
    unroll,
)
from tacit.dp.fourier import fourier_epsilon
from tacit.dp.library import has_rdp, is_installed, pld_epsilon, rdp_epsilon
from tacit.dp.renyi import epsilon_of_renyi, has_renyi, renyi, renyi_epsilon
from tacit.errors import ConfigError


@dataclass(frozen=True)
class Accountant:
    """One way of computing ε from what was done.

    Args:
        name: as reports and job files spell it.
        basis: the theory in a few words.
        compute: counted steps and δ to ε, an upper bound.
        can: whether a step is in its reach.
        is_extra: it needs dp-accounting, which the extra ``dp`` installs.
    """

    name: str
    basis: str
    compute: Callable[[Mapping[Step, int], float], float]
    can: Callable[[Step], bool]
    is_extra: bool = False

    @property
    def is_ready(self) -> bool:
        """Say whether what it needs is installed."""
        return not self.is_extra or is_installed()

    def epsilon(self, events: Iterable[Event], *, delta: float) -> float:
        """Compute ε of all events together; inf where one of them has no guarantee."""
        target_delta(delta)
        steps = unroll(events)
        common_relation(steps)
        if not steps:
            return 0.0
        if any(reason_without_guarantee(step) for step in steps):
            return math.inf
        self._refuse_unknown(steps)
        lost = sum(count * _distance(step) for step, count in steps.items())
        if not lost:
            return self.compute(steps, delta)
        # Two distributions that are each within `lost` of (ε, δ)-close ones are (ε, δ + (1 + e^ε) ·
        # lost)-close. ε at half of δ is an upper bound of the one that is looked for.
        most = self.compute(steps, delta / 2)
        share = (1 + math.exp(min(most, 200.0))) * lost
        return self.compute(steps, delta - share) if share <= delta / 2 else math.inf

    def _refuse_unknown(self, steps: Iterable[Step]) -> None:
        if not self.is_ready:
            raise ConfigError(
                f"the accountant {self.name!r} needs dp-accounting, which is not installed; use "
                f"the accountant {choose_accountant(steps)!r}, or run: pip install 'tacit-ml[dp]'"
            )
        unknown = sorted({type(step).__name__ for step in steps if not self.can(step)})
        if unknown:
            raise ConfigError(
                f"the accountant {self.name!r} cannot account for {', '.join(unknown)}; "
                f"those that can: {', '.join(supporting(steps)) or 'none'}"
            )


def supporting(events: Iterable[Event]) -> tuple[str, ...]:
    """Name the accountants that can account for all of the events and are installed, best first."""
    steps = unroll(events)
    return tuple(
        name
        for name, known in ACCOUNTANTS.items()
        if known.is_ready and all(known.can(step) for step in steps)
    )


def choose_accountant(events: Iterable[Event]) -> str:
    """Name the first accountant of the table that can account for all of the events."""
    return next(iter(supporting(events)), "basic")


def find_accountant(name: str) -> Accountant:
    """Look an accountant up, or say which ones exist."""
    if name not in ACCOUNTANTS:
        raise ConfigError(f"the accountant is one of {', '.join(ACCOUNTANTS)}, got {name!r}")
    return ACCOUNTANTS[name]


def common_relation(steps: Iterable[Event]) -> Relation | None:
    """Return the one neighbouring relation of all steps, or refuse a mixture."""
    relations = {step.relation for step in steps}
    if len(relations) > 1:
        named = " and ".join(sorted(map(str, relations)))
        raise ConfigError(
            f"ε cannot be added up over different neighbouring relations, got {named}; "
            "keep one ledger for each"
        )
    return next(iter(relations), None)


def reason_without_guarantee(step: Event) -> str | None:
    """Return why a step has no guarantee, or None if it has one."""
    if isinstance(step, Unaccountable):
        return step.reason
    return reason_without_guarantee(step.event) if isinstance(step, Poisson) else None


def _distance(step: Event) -> float:
    """Return how far the noise of a step is from what its event says."""
    if isinstance(step, Poisson):
        return _distance(step.event)
    return step.distance if isinstance(step, DiscreteGaussian) else 0.0


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


def _has_curve(step: Step) -> bool:
    return privacy_curve(step) is not None


def _has_bound(step: Step) -> bool:
    return not isinstance(step, Unaccountable)


ACCOUNTANTS = {
    known.name: known
    for known in (
        Accountant(
            "pld", "privacy loss distributions, dp-accounting", pld_epsilon, _has_curve, True
        ),
        Accountant("rdp", "Rényi divergences, dp-accounting", rdp_epsilon, has_rdp, True),
        Accountant("fourier", "privacy loss distributions, our own", fourier_epsilon, _has_curve),
        Accountant("renyi", "Rényi divergences, our own", renyi_epsilon, has_renyi),
        Accountant("advanced", "Kairouz, Oh and Viswanath 2015", advanced_epsilon, _has_bound),
        Accountant("basic", "sum of the parts", basic_epsilon, _has_bound),
    )
}
