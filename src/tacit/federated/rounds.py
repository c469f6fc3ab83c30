"""A federated run: rounds of training and aggregation, each written into the privacy ledger."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.data.metrics import ACCURACY
from tacit.dp import Ledger, epsilon
from tacit.federated.config import RoundConfig, round_config
from tacit.federated.contract import HELPER, Aggregate, Meter, RunOver, VoidRound
from tacit.federated.spec import FederatedSpec
from tacit.result import Claim, Metric


@dataclass(frozen=True, kw_only=True)
class RoundReport:
    """What one round did. ``claim`` is about all rounds so far, ``metrics`` about the new model.

    ``bytes_up`` and ``bytes_down`` are those of a client, from and to the server; a shuffler's or
    an authority's are counted apart.
    """

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
    metrics: tuple[Metric, ...] = ()
    helper_up: int = 0
    helper_down: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """A finished run."""

    weights: NDArray[np.float32]
    rounds: tuple[RoundReport, ...]
    ledger: Ledger
    clients_cpu_s: float | None = None
    """Processor seconds of the clients, where they share the server's process."""


class Carrier(Protocol):
    """Carries one round's messages between the server and whoever the clients are."""

    def carry(self, weights: Tensor, config: RoundConfig, meter: Meter) -> Aggregate:
        """Run a round on these weights; VoidRound if it gives no result."""
        ...


OnRound = Callable[[RoundReport], None]
Judge = Callable[[Tensor], tuple[Metric, ...]]


def run_rounds(
    carrier: Carrier,
    weights: Tensor,
    spec: FederatedSpec,
    *,
    judge: Judge,
    on_round: OnRound,
    rounds: int | None = None,
    config: RoundConfig | None = None,
) -> Outcome:
    """Train round by round; a void round changes nothing and still counts against the budget.

    A client that misses a report ends the run after its round.

    Args:
        carrier: reaches the clients.
        weights: of the first model.
        spec: what all sides hold to.
        judge: measures a model.
        on_round: is shown every round as it ends.
        rounds: how many are run; as many as the spec plans, if not given.
        config: of every round; derived from the spec, if not given.
    """
    config = config or round_config(spec, weights.numel())
    ledger, reports = Ledger(), list[RoundReport]()
    if config.mechanism.first is not None:
        ledger.record(config.mechanism.first, note="before the first round")
    velocity = torch.zeros_like(weights)
    names = [f"client {index}" for index in range(config.federated.clients)]
    for number in range(1, (rounds or spec.federated.rounds) + 1):
        begun, meter = time.perf_counter(), Meter()
        survivors: tuple[int, ...] = ()
        void, is_over = None, False
        try:
            found = carrier.carry(weights, config, meter)
            survivors = found.survivors
            velocity = spec.train.momentum * velocity + torch.from_numpy(found.mean).to(weights)
            weights = weights + spec.train.server_rate * velocity
        except VoidRound as error:
            void, is_over = str(error), isinstance(error, RunOver)
        claim = count_round(ledger, config, meter, names)
        metrics = judge(weights)
        report = RoundReport(
            number=number,
            accuracy=next((one.value for one in metrics if one.name == ACCURACY), None),
            claim=claim,
            survivors=survivors,
            dropped=tuple(sorted(set(range(config.federated.clients)) - set(survivors))),
            refused=tuple(str(error) for error in meter.refused),
            void=void,
            bytes_up=per_client(meter.up, config),
            bytes_down=per_client(meter.down, config),
            seconds=time.perf_counter() - begun,
            metrics=metrics,
            helper_up=meter.up.get(HELPER, 0),
            helper_down=meter.down.get(HELPER, 0),
        )
        reports.append(report)
        on_round(report)
        if is_over or _is_stale(reports, spec.train.patience):
            break
    return Outcome(weights=weights.cpu().numpy(), rounds=tuple(reports), ledger=ledger)


def count_round(ledger: Ledger, config: RoundConfig, meter: Meter, names: Sequence[str]) -> Claim:
    """Write down what a round did to the clients of these names; return the claim about all so far.

    A client is counted under its name, whatever its place in the round was.
    """
    _record(ledger, config, meter, names)
    return _claim(ledger, config)


def _record(ledger: Ledger, config: RoundConfig, meter: Meter, names: Sequence[str]) -> None:
    """Write down what the round did, also if it was void: something may have been seen."""
    mechanism = config.mechanism
    if mechanism.event is None:
        return
    if mechanism.privacy.kind == "record":
        # One ledger per client: what it says itself, or else what one that answered must have done.
        for index in sorted({*meter.up, *meter.spent}):
            for event in meter.spent.get(index, (mechanism.event,)):
                ledger.record(event, clients=[names[index]])
        return
    if mechanism.privacy.kind in ("local", "local-adaptive"):
        senders = [names[index] for index in sorted(meter.up) if index != HELPER]
        ledger.record(mechanism.event, clients=senders)
    else:
        ledger.record(mechanism.event)


def _claim(ledger: Ledger, config: RoundConfig) -> Claim:
    """Compute the claim about all rounds so far, as the mechanism does about all to come."""
    planned = config.mechanism.claim
    if planned.delta is None or planned.accountant is None:
        return planned
    event = config.mechanism.event
    is_about_clients = event is not None and event.relation.unit == "client"
    found = epsilon(
        ledger,
        delta=planned.delta,
        accountant=planned.accountant,
        subject=planned.subject,
        population=config.federated.clients if is_about_clients else config.spec.privacy.records,
    )
    return replace(found, assumptions=(*config.mechanism.assumptions, *found.assumptions))


def per_client(moved: dict[int, int], config: RoundConfig) -> float:
    """Return the mean over the clients; what a helper moved is not theirs."""
    return sum(size for index, size in moved.items() if index != HELPER) / config.federated.clients


def _is_stale(reports: list[RoundReport], patience: int) -> bool:
    if patience == 0 or len(reports) <= patience:
        return False
    scores = [-1.0 if one.accuracy is None else one.accuracy for one in reports]
    return max(scores[-patience:]) <= max(scores[:-patience])
