"""Calibration: the least noise, or the largest local budget, with which a plan meets its target."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tacit.dp.accountant import choose_accountant, find_accountant
from tacit.dp.check import positive, target_delta
from tacit.dp.event import Event
from tacit.errors import ConfigError

Plan = Callable[[float], Iterable[Event]]

PRECISION = 1e-4
"""How far, relatively, the answer may lie on the safe side of the best one."""


@dataclass(frozen=True, kw_only=True)
class BudgetTarget:
    """The (ε, δ) that a run must not exceed, and who computes it: the first that can, if None."""

    epsilon: float
    delta: float
    accountant: str | None = None

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        target_delta(self.delta)
        if self.accountant is not None:
            find_accountant(self.accountant)


def least_noise(plan: Plan, target: BudgetTarget, *, low: float = 0.01, high: float = 1e4) -> float:
    """Find the smallest noise in [low, high] with which a plan meets its target.

    Args:
        plan: maps the noise, e.g. a multiplier, to the events of the whole run; more noise must
            not give a larger ε.
        target: what to meet.
        low: the least noise to consider.
        high: the most.

    Raises:
        ConfigError: even the most noise is not enough; the message says what it reaches.
    """
    return 1 / _largest(lambda inverse: plan(1 / inverse), target, (1 / high, 1 / low), "noise")


def largest_budget(
    plan: Plan, target: BudgetTarget, *, low: float = 1e-4, high: float = 50.0
) -> float:
    """Find the largest local ε in [low, high] with which a plan meets its target.

    Args:
        plan: maps ε0 to the events of the whole run; a larger ε0 must not give a smaller ε.
        target: what to meet.
        low: the least ε0 to consider.
        high: the most.

    Raises:
        ConfigError: even the least ε0 is too much; the message says what it reaches.
    """
    return _largest(plan, target, (low, high), "local ε")


def _largest(plan: Plan, target: BudgetTarget, span: tuple[float, float], what: str) -> float:
    """Search, on a logarithmic scale, for the largest value whose plan meets the target."""
    good, bad = span
    if not 0 < good < bad < math.inf:
        raise ConfigError(f"the range of the {what} must be positive and growing, got {span}")
    accountant = find_accountant(target.accountant or choose_accountant(plan(good)))

    def spends(value: float) -> float:
        return accountant.epsilon(plan(value), delta=target.delta)

    least = spends(good)
    if least > target.epsilon:
        raise ConfigError(
            f"no {what} in the allowed range meets ε = {target.epsilon} at δ = {target.delta}: "
            f"the best this plan reaches is ε = {least:.4g} ({accountant.name}); "
            "plan fewer rounds, steps or looks, noisier looks, more clients, or a larger ε or δ"
        )
    end = bad
    # Doubling keeps away from values with an absurd ε, which are slow to compute.
    while True:
        bad = min(2 * good, end)
        most = spends(bad)
        if most > target.epsilon:
            return _narrow(spends, target.epsilon, (good, least), (bad, most))
        if bad == end:
            return end
        if most < 0.999 * least - 1e-9:
            raise _not_monotone(what, least, most)
        good, least = bad, most


def _narrow(
    spends: Callable[[float], float],
    wanted: float,
    good: tuple[float, float],
    bad: tuple[float, float],
) -> float:
    """Close in on where ε crosses what is wanted, by interpolation that steps a little aside."""
    for _ in range(200):
        if bad[0] <= good[0] * (1 + PRECISION):
            return good[0]
        room = math.log(bad[0] / good[0])
        rise = math.log(bad[1] / max(good[1], 1e-12)) if math.isfinite(bad[1]) else math.inf
        share = math.log(wanted / max(good[1], 1e-12)) / rise if 0 < rise < math.inf else 0.5
        # Aim beside the crossing, on the side of the nearer end, so that both ends come close.
        share += (0.4 if share < 0.5 else -0.4) * min(1.0, PRECISION / room)
        middle = good[0] * math.exp(room * min(max(share, 0.02), 0.98))
        spent = spends(middle)
        if not 0.999 * good[1] - 1e-9 <= spent <= 1.001 * bad[1] + 1e-9:
            raise _not_monotone("noise or budget", good[1], spent)
        if spent <= wanted:
            good = (middle, spent)
        else:
            bad = (middle, spent)
    return good[0]


def _not_monotone(what: str, one: float, other: float) -> ConfigError:
    return ConfigError(
        f"the plan is not monotone in its {what}: ε goes the wrong way, {one:.4g} to {other:.4g}"
    )
