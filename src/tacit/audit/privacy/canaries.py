"""Canaries: records made to be found, put into a private training by the toss of a coin.

Two games. In the first the training function itself is on trial: a linear model in which every
canary owns a column of weights, so that nothing but the mechanism's noise hides it. In the second
canaries go among the rows of a real training, and whoever holds the model asks for their loss.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor, nn

from tacit.audit.estimators import Ranking, Scores
from tacit.audit.findings import Power
from tacit.audit.membership.attacks import loss, to_scores
from tacit.audit.membership.views import SeenScores
from tacit.audit.privacy.bounds import (
    CONFIDENCE,
    Bound,
    NoiseTrial,
    one_run_epsilon,
    rates_epsilon,
    try_noise,
)
from tacit.audit.target import Classifier
from tacit.audit.views import seeded
from tacit.dp import DpSgd, Event, epsilon
from tacit.errors import ConfigError
from tacit.ring import Prg

_BASE_COLUMNS = 4
_BASE_ROWS = 20
_STEP = 1e-6
"""A learning rate at which canaries stay as unlearned as they were: ε does not depend on it."""
_LOUD = 100.0
"""How much longer than the clip a canary's gradient is before it is clipped."""
_FACTORS = (0.75, 0.5, 0.25, 0.1, 0.0)
_SIMULATED = 59


class PrivateTraining(Protocol):
    """What is on trial: trains a module in place, privately if it keeps its word."""

    def __call__(
        self, model: nn.Module, x: Tensor, labels: Tensor, settings: DpSgd, *, prg: Prg
    ) -> object:
        """Train on these rows as the settings say."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenChange:
    """Someone who holds the model before and after: (columns,) change along each canary's own."""

    changes: Tensor


def projection(seen: SeenChange, *, generator: torch.Generator) -> Scores:
    """Score by the change along the canary's gradient."""
    return to_scores(seen.changes)


def audit_training(
    train: PrivateTraining,
    settings: DpSgd,
    *,
    delta: float,
    prg: Prg,
    canaries: int = 400,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[Bound, Ranking]:
    """Put a training function on trial, with all canaries in one run.

    Guarantee: if `train` is (ε, δ)-DP for adding or removing a record, the bound exceeds ε with a
    probability of at most 1 − confidence.
    Cost: one training of a linear model with two weights per canary.
    """
    if canaries < 2:
        raise ConfigError(f"wanted 2 canaries or more, got {canaries}")
    coins = torch.empty(canaries).uniform_(generator=seeded(seed)) < 0.5
    changes = run_on_trial(train, settings, coins, prg=prg, seed=seed)
    scores = projection(SeenChange(changes=changes), generator=seeded(seed))
    ranking = Ranking(scores, coins.numpy())
    return one_run_epsilon(ranking, delta=delta, confidence=confidence), ranking


def one_run_power(
    settings: DpSgd,
    *,
    claimed: float,
    delta: float,
    canaries: int = 400,
    confidence: float = 0.95,
    seed: int = 0,
) -> Power:
    """Simulate `audit_training` with less noise than is claimed: what would it have caught?

    A factor counts as caught if all of 59 simulated audits contradict the claim, which a chance
    below 95 % does in one case of twenty.
    """
    generator, share = seeded(seed), 0.0
    for factor in _FACTORS:
        caught = 0
        for _ in range(_SIMULATED):
            ranking = _simulated(settings, factor, canaries, generator)
            found = one_run_epsilon(ranking, delta=delta, confidence=confidence)
            if found.epsilon <= claimed and factor > 0:
                break
            caught += found.epsilon > claimed
        if caught == _SIMULATED:
            return Power(factor=factor, probability=0.95)
        share = caught / _SIMULATED
    return Power(factor=0.0, probability=share)


def _simulated(
    settings: DpSgd, factor: float, canaries: int, generator: torch.Generator
) -> Ranking:
    """Draw what `audit_training` would see if noise were so many times what is claimed."""
    coins = torch.empty(canaries).uniform_(generator=generator) < 0.5
    steps = torch.full((canaries,), float(settings.steps))
    hits = torch.binomial(steps, torch.full_like(steps, settings.sample_rate), generator=generator)
    noise = torch.empty(canaries, dtype=torch.float64).normal_(generator=generator)
    spread = factor * settings.multiplier * settings.steps**0.5
    return Ranking((hits * coins + spread * noise).numpy(), coins.numpy())


def run_on_trial(
    train: PrivateTraining, settings: DpSgd, coins: Tensor, *, prg: Prg, seed: int
) -> Tensor:
    """Train the linear model with the chosen canaries; return the change along every one.

    Changes are in units of what one record may add in a step.
    """
    count = len(coins)
    x = torch.zeros(_BASE_ROWS + count, _BASE_COLUMNS + count)
    x[:_BASE_ROWS, :_BASE_COLUMNS].normal_(generator=seeded(seed + 1))
    canary = torch.arange(count)
    x[_BASE_ROWS + canary, _BASE_COLUMNS + canary] = _LOUD * settings.clip
    labels = torch.ones(len(x), dtype=torch.long)
    labels[: _BASE_ROWS // 2] = 0
    held = torch.cat([torch.ones(_BASE_ROWS, dtype=torch.bool), coins])
    model = nn.Linear(x.shape[1], 2, bias=False)
    nn.init.zeros_(model.weight)
    quiet = replace(settings, rate=_STEP * settings.sample_rate * int(held.sum()), momentum=0.0)
    train(model, x[held], labels[held], quiet, prg=prg)
    change = model.weight.detach().double()[:, _BASE_COLUMNS:]
    # The gradient of an unlearned canary points along (½, −½) in its column.
    return (change[1] - change[0]) / (2**0.5 * _STEP * settings.clip)


def audit_with_canaries(
    train: Callable[[Tensor, Tensor], Classifier],
    x: Tensor,
    labels: Tensor,
    *,
    classes: int,
    delta: float,
    canaries: int = 200,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[Bound, Ranking]:
    """Train once with canaries among the rows, and bound ε from how well they are found.

    A canary is a row of noise with the spread of the data and a label drawn at random: nothing
    but memory can tell its label. The bound is that of an attacker with the trained model alone,
    so it is far below the ε of a mechanism that shows every step.

    Guarantee: as for `audit_training`.
    """
    rows, guesses = make_canaries(x, classes=classes, count=canaries, seed=seed)
    coins = torch.empty(canaries).uniform_(generator=seeded(seed + 7)) < 0.5
    target = train(torch.cat([x, rows[coins]]), torch.cat([labels, guesses[coins]]))
    seen = SeenScores(log_probs=target.log_probs(rows), labels=guesses)
    ranking = Ranking(loss(seen, generator=seeded(seed)), coins.numpy())
    return one_run_epsilon(ranking, delta=delta, confidence=confidence), ranking


def make_canaries(x: Tensor, *, classes: int, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return rows of noise shaped and spread like the data, and labels drawn at random."""
    if count < 2:
        raise ConfigError(f"wanted 2 canaries or more, got {count}")
    generator = seeded(seed)
    noise = torch.empty(count, *x.shape[1:]).normal_(generator=generator)
    rows = x.mean(0) + noise * float(np.maximum(x.std().item(), 1e-6))
    rolls = torch.empty(count).uniform_(generator=generator)
    return rows, (rolls * classes).long().clamp(max=classes - 1)


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
