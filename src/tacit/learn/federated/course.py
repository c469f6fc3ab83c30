"""A federated run: rounds of training and aggregation, each written into the privacy ledger."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.dp import Ledger, epsilon
from tacit.errors import ConfigError
from tacit.learn.federated.contract import Aggregate, Meter
from tacit.learn.federated.packing import RunOver, VoidRound
from tacit.learn.federated.shuffled import SHUFFLER
from tacit.learn.federated.terms import Terms
from tacit.result import Claim


@dataclass(frozen=True, kw_only=True)
class Course:
    """How the run goes on from round to round.

    Attributes:
        rounds: how many; privacy is planned for all of them.
        server_rate: how much of the mean update the model takes.
        momentum: of the server.
        drop_rate: simulated: the share of clients that fall silent somewhere in a round.
        patience: stop after so many rounds without a better accuracy; 0 never stops early.
    """

    rounds: int
    server_rate: float = 1.0
    momentum: float = 0.0
    drop_rate: float = 0.0
    patience: int = 0

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.patience < 0:
            raise ConfigError(f"rounds must be 1 or more, got {self.rounds}")
        if not self.server_rate > 0 or not 0 <= self.momentum < 1 or not 0 <= self.drop_rate < 1:
            raise ConfigError(
                "wanted server_rate above 0, momentum and drop_rate from 0 to below 1, got "
                f"{self.server_rate}, {self.momentum} and {self.drop_rate}"
            )


@dataclass(frozen=True, kw_only=True)
class RoundReport:
    """What one round did. ``claim`` is about all rounds so far."""

    number: int
    accuracy: float | None
    claim: Claim
    survivors: tuple[int, ...]
    dropped: tuple[int, ...]
    refused: tuple[str, ...]
    void: str | None
    bytes_up: float
    bytes_down: float
    seconds: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """A finished run."""

    weights: NDArray[np.float32]
    rounds: tuple[RoundReport, ...]
    ledger: Ledger


class Carrier(Protocol):
    """Carries one round's messages between the server and whoever the clients are."""

    def carry(self, weights: Tensor, terms: Terms, meter: Meter) -> Aggregate:
        """Run a round on these weights; VoidRound if it gives no result."""
        ...


OnRound = Callable[[RoundReport], None]
Judge = Callable[[Tensor], float | None]


def run_course(
    carrier: Carrier,
    weights: Tensor,
    terms: Terms,
    course: Course,
    *,
    judge: Judge,
    on_round: OnRound,
) -> Outcome:
    """Train round by round; a void round changes nothing and still counts against the budget.

    A client that misses a report ends the run after its round.
    """
    ledger, reports = Ledger(), list[RoundReport]()
    if terms.promise.first is not None:
        ledger.record(terms.promise.first, note="before the first round")
    velocity = torch.zeros_like(weights)
    for number in range(1, course.rounds + 1):
        begun, meter = time.perf_counter(), Meter()
        survivors: tuple[int, ...] = ()
        void, is_over = None, False
        try:
            found = carrier.carry(weights, terms, meter)
            survivors = found.survivors
            velocity = course.momentum * velocity + torch.from_numpy(found.mean).to(weights)
            weights = weights + course.server_rate * velocity
        except VoidRound as error:
            void, is_over = str(error), isinstance(error, RunOver)
        _record(ledger, terms, meter)
        report = RoundReport(
            number=number,
            accuracy=judge(weights),
            claim=_claim(ledger, terms),
            survivors=survivors,
            dropped=tuple(sorted(set(range(terms.clients)) - set(survivors))),
            refused=tuple(str(error) for error in meter.refused),
            void=void,
            bytes_up=_per_client(meter.up, terms),
            bytes_down=_per_client(meter.down, terms),
            seconds=time.perf_counter() - begun,
        )
        reports.append(report)
        on_round(report)
        if is_over or _is_stale(reports, course.patience):
            break
    return Outcome(weights=weights.cpu().numpy(), rounds=tuple(reports), ledger=ledger)


def _record(ledger: Ledger, terms: Terms, meter: Meter) -> None:
    """Write down what the round did, also if it was void: something may have been seen."""
    promise = terms.promise
    if promise.event is None:
        return
    if promise.kind in ("local", "local-adaptive"):
        senders = [f"client {index}" for index in sorted(meter.up) if index != SHUFFLER]
        ledger.record(promise.event, clients=senders)
    else:
        ledger.record(promise.event)


def _claim(ledger: Ledger, terms: Terms) -> Claim:
    """Compute the claim about all rounds so far, as the promise does about all to come."""
    planned = terms.promise.claim
    if planned.delta is None or planned.accountant is None:
        return planned
    event = terms.promise.event
    is_about_clients = event is not None and event.relation.unit == "client"
    found = epsilon(
        ledger,
        delta=planned.delta,
        accountant=planned.accountant,
        subject=planned.subject,
        population=terms.clients if is_about_clients else None,
    )
    return replace(found, assumptions=(*terms.promise.assumptions, *found.assumptions))


def _per_client(moved: dict[int, int], terms: Terms) -> float:
    return sum(size for index, size in moved.items() if index != SHUFFLER) / terms.clients


def _is_stale(reports: list[RoundReport], patience: int) -> bool:
    if patience == 0 or len(reports) <= patience:
        return False
    scores = [-1.0 if one.accuracy is None else one.accuracy for one in reports]
    return max(scores[-patience:]) <= max(scores[:-patience])
