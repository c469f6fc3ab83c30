"""Canaries: records made to be found, put into a private training by the toss of a coin.

Two games. In the first the training function itself is on trial: a linear model in which every
canary owns a column of weights, so that nothing but the mechanism's noise hides it. In the second
canaries go among the rows of a real training, and whoever holds the model asks for their loss.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from tacit.audit.findings import Power
from tacit.audit.membership.attacks import to_scores, true_log_probs
from tacit.audit.privacy.bounds import Bound, one_run_epsilon
from tacit.audit.ranking import Ranking, Scores
from tacit.audit.target import Classifier
from tacit.audit.views import seeded
from tacit.dp import DpSgd
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


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenCanaries:
    """Someone who may ask the model: (canaries, classes) log-probabilities, and their labels."""

    log_probs: Tensor
    labels: Tensor


def projection(seen: SeenChange, *, generator: torch.Generator) -> Scores:
    """Score by the change along the canary's gradient."""
    return to_scores(seen.changes)


def canary_loss(seen: SeenCanaries, *, generator: torch.Generator) -> Scores:
    """Score by the log-probability of the canary's label."""
    return to_scores(true_log_probs(seen.log_probs, seen.labels))


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
    seen = SeenCanaries(log_probs=target.log_probs(rows), labels=guesses)
    ranking = Ranking(canary_loss(seen, generator=seeded(seed)), coins.numpy())
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
