"""Audit round by round: every round is a trial of its own, against the accountant's whole curve."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from scipy.stats import norm
from torch import Tensor

from tacit.audit.privacy.bounds import rates_epsilon
from tacit.audit.privacy.canaries import PrivateTraining, run_on_trial
from tacit.audit.views import seeded
from tacit.dp import Event, epsilon
from tacit.errors import ConfigError
from tacit.learn.noise import DpSgd
from tacit.ring import Prg

_SHARES = (1.0, 0.5, 0.1)
"""Where claimed and measured ε are compared, as shares of the δ at which ε is 0. A round's curve
binds at every δ, and few trials see most of it where δ is large."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """Claimed and measured ε of one round at one δ."""

    delta: float
    claimed: float
    measured: float


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """What the trials say about one round; the points hold together at the confidence."""

    points: tuple[Point, ...]
    rounds: int
    confidence: float

    @property
    def worst(self) -> Point:
        """Return the point at which the measurement is furthest above the claim."""
        return max(self.points, key=lambda point: point.measured - point.claimed)

    @property
    def is_contradicted(self) -> bool:
        """Tell whether a point lies above the claim."""
        return self.worst.measured > self.worst.claimed


def audit_rounds(
    train: PrivateTraining,
    settings: DpSgd,
    *,
    prg: Prg,
    rounds: int = 400,
    confidence: float = 0.95,
    accountant: str = "pld",
    seed: int = 0,
) -> Rounds:
    """Run many single rounds, each with one canary by the toss of a coin, and count the errors.

    Noise is fresh in every round, so that the trials are independent and Clopper–Pearson holds.
    The guess is "in" where the change along the canary exceeds a threshold: half a record's share,
    or, to catch what is rare and loud, more than the noise could add. Both are fixed beforehand,
    and the error is divided among all comparisons.

    Guarantee: if every round is as private as `settings.event` says, a contradiction is found
    with a probability of at most 1 − confidence.
    Cost: `rounds` steps of a linear model with a dozen weights.
    """
    single = replace(settings, steps=1)
    apart = _total_variation(settings)
    return audit_releases(
        lambda coin: float(
            run_on_trial(train, single, torch.tensor([coin]), prg=prg, seed=seed)[0]
        ),
        single.event,
        deltas=tuple(share * apart for share in _SHARES),
        thresholds=(0.5, 1 + 3 * settings.multiplier),
        rounds=rounds,
        confidence=confidence,
        accountant=accountant,
        seed=seed,
    )


def audit_releases(
    release: Callable[[bool], float],
    event: Event,
    *,
    deltas: Sequence[float],
    thresholds: Sequence[float],
    rounds: int,
    confidence: float,
    accountant: str = "pld",
    seed: int = 0,
) -> Rounds:
    """Put any single release on trial, against what an accountant says about its event.

    Args:
        release: runs once, with the canary in or out, and returns a score; noise must be fresh.
        event: what one release claims to be.
        deltas: where claimed and measured ε are compared.
        thresholds: scores above which the canary is called in, fixed beforehand.
        rounds: how many trials.
        confidence: of all comparisons together.
        accountant: a name in `tacit.dp.ACCOUNTANTS`.
        seed: of the coins.

    Guarantee: as for `audit_rounds`.
    """
    if rounds < 20:
        raise ConfigError(f"wanted 20 rounds or more, got {rounds}")
    coins = torch.empty(rounds).uniform_(generator=seeded(seed)) < 0.5
    scores = torch.tensor([release(bool(coin)) for coin in coins], dtype=torch.float64)
    each = 1 - (1 - confidence) / (len(deltas) * len(thresholds))
    points = []
    for delta in deltas:
        claim = epsilon([event], delta=delta, accountant=accountant).epsilon
        measured = [
            _measure(scores > threshold, coins, delta=delta, confidence=each)
            for threshold in thresholds
        ]
        claimed = float("inf") if claim is None else claim
        points.append(Point(delta=delta, claimed=claimed, measured=max(measured)))
    return Rounds(points=tuple(points), rounds=rounds, confidence=confidence)


def _measure(guesses: Tensor, coins: Tensor, *, delta: float, confidence: float) -> float:
    return rates_epsilon(
        false_positives=int((guesses & ~coins).sum()),
        outside=int((~coins).sum()),
        true_positives=int((guesses & coins).sum()),
        inside=int(coins.sum()),
        delta=delta,
        confidence=confidence,
    )


def _total_variation(settings: DpSgd) -> float:
    """Return the δ at which one round's ε is 0; it only places the points of comparison."""
    apart = 2 * float(norm.cdf(0.5 / settings.multiplier)) - 1
    return min(settings.rate * apart, 0.999)
