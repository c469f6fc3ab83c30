"""Audit round by round: many trials of one round, against the accountant's whole curve."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from scipy.stats import norm
from torch import Tensor

from tacit.audit.findings import Power
from tacit.audit.privacy.bounds import rates_epsilon
from tacit.audit.privacy.canaries import PrivateTraining, run_on_trial
from tacit.audit.privacy.noise import CONFIDENCE, NoiseTrial, try_noise
from tacit.audit.views import seeded
from tacit.dp import DpSgd, Event, epsilon
from tacit.errors import ConfigError
from tacit.ring import Prg

_SHARES = (1.0, 0.5, 0.1)
"""Where claimed and measured ε are compared, as shares of the δ at which ε is 0. A round's curve
binds at every δ, and few trials see most of it where δ is large."""

_LEAST_NOISE = 0.1  # of what is claimed: what even less would spend is not computed
_LARGEST = 60.0  # the largest ε that is told
_COLUMNS = 2000  # canaries of one round; beyond it the columns take too much memory


@dataclass(frozen=True, kw_only=True)
class Point:
    """Claimed and measured ε of one round at one δ."""

    delta: float
    claimed: float
    measured: float


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """What the trials say about one round; points and noise hold together at the confidence.

    ``noise`` is the trial of the noise by itself, where it could be seen.
    """

    points: tuple[Point, ...]
    rounds: int
    confidence: float
    noise: NoiseTrial | None = None

    @property
    def worst(self) -> Point:
        """Return where the measurement is furthest above the claim, or largest if it is nowhere."""
        return max(
            self.points, key=lambda one: (max(one.measured - one.claimed, 0.0), one.measured)
        )

    @property
    def is_contradicted(self) -> bool:
        """Tell whether a point lies above the claim, or less noise was seen than it needs."""
        is_short = self.noise is not None and self.noise.is_contradicted
        return is_short or self.worst.measured > self.worst.claimed

    @property
    def power(self) -> Power | None:
        """Return which shortfall of noise would have been caught, if that is known."""
        return None if self.noise is None else self.noise.power

    @property
    def note(self) -> str:
        """Say how much noise there can be, if that is less than the claim needs."""
        if self.noise is None or not self.noise.is_contradicted:
            return ""
        return (
            f"its noise is at most {self.noise.at_most:.3g} of what is claimed, "
            f"{self.noise.needed:.3g} is needed"
        )


def audit_rounds(
    train: PrivateTraining,
    settings: DpSgd,
    *,
    prg: Prg,
    rounds: int = 4000,
    confidence: float = CONFIDENCE,
    accountant: str | None = None,
    seed: int = 0,
) -> Rounds:
    """Try one round with a canary by the toss of a coin, very often, and count the errors.

    Up to 2,000 canaries share a round, each with a column of weights of its own: coins, batch and
    noise are independent from column to column if the round is what its event says, so that every
    column is a trial. The guess is "in" where the change along the canary exceeds a threshold: half
    a record's share, or, to catch what is rare and loud, more than the noise could add. Where a
    canary is out, its column is noise alone and is held against the noise that is claimed. Half of
    the error is for either, and all thresholds are fixed beforehand.

    Guarantee: if every round is as `settings.event` says, a contradiction is found with a
    probability of at most 1 − confidence.
    Cost: a step of a linear model with two weights per trial.
    """
    _check(rounds, least=100)
    single = replace(settings, steps=1)
    coins = torch.empty(rounds).uniform_(generator=seeded(seed)) < 0.5
    batches = torch.split(coins, _COLUMNS)
    scores = torch.cat([run_on_trial(train, single, one, prg=prg, seed=seed) for one in batches])
    half, apart = (1 + confidence) / 2, _total_variation(settings)
    points = _compare(
        scores,
        coins,
        single.event,
        deltas=tuple(share * apart for share in _SHARES),
        thresholds=(0.5, 1 + 3 * settings.multiplier),
        confidence=half,
        accountant=accountant,
    )
    noise = try_noise(scores[~coins].numpy(), deviation=settings.multiplier, confidence=half)
    # There is no more noise than this: what the accountant says of it is spent at least.
    less = replace(single, multiplier=settings.multiplier * max(noise.at_most, _LEAST_NOISE))
    spent = epsilon([less.event], delta=points[-1].delta, accountant=accountant).epsilon
    return Rounds(
        points=(*points, replace(points[-1], measured=_LARGEST if spent is None else spent)),
        rounds=rounds,
        confidence=confidence,
        noise=noise,
    )


def audit_releases(
    release: Callable[[bool], float],
    event: Event,
    *,
    deltas: Sequence[float],
    thresholds: Sequence[float],
    rounds: int,
    confidence: float,
    accountant: str | None = None,
    seed: int = 0,
) -> Rounds:
    """Put any single release on trial, against what an accountant says about its event.

    Nothing is assumed about the mechanism but that noise is fresh in every trial.

    Args:
        release: runs once, with the canary in or out, and returns a score; noise must be fresh.
        event: what one release claims to be.
        deltas: where claimed and measured ε are compared.
        thresholds: scores above which the canary is called in, fixed beforehand.
        rounds: how many trials.
        confidence: of all comparisons together.
        accountant: a name in `tacit.dp.ACCOUNTANTS`; the first that can, if not given.
        seed: of the coins.

    Guarantee: if every release is as private as its event, a contradiction is found with a
    probability of at most 1 − confidence.
    """
    _check(rounds, least=20)
    coins = torch.empty(rounds).uniform_(generator=seeded(seed)) < 0.5
    scores = torch.tensor([release(bool(coin)) for coin in coins], dtype=torch.float64)
    points = _compare(
        scores,
        coins,
        event,
        deltas=deltas,
        thresholds=thresholds,
        confidence=confidence,
        accountant=accountant,
    )
    return Rounds(points=points, rounds=rounds, confidence=confidence)


def _check(rounds: int, *, least: int) -> None:
    if rounds < least:
        raise ConfigError(f"wanted {least} rounds or more, got {rounds}")


def _compare(
    scores: Tensor,
    coins: Tensor,
    event: Event,
    *,
    deltas: Sequence[float],
    thresholds: Sequence[float],
    confidence: float,
    accountant: str | None,
) -> tuple[Point, ...]:
    """Bound ε from below at every δ; the error is divided among all comparisons."""
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
    return tuple(points)


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
    return min(settings.sample_rate * apart, 0.999)
