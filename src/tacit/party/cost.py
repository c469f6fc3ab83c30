"""What a kernel says it will send, and the arithmetic that turns this into a forecast."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from tacit.errors import DisagreementError
from tacit.result import Cost, Phase, Timing, Traffic


@dataclass(frozen=True)
class CostedMessage:
    """A message of so many payload bytes."""

    sender: str
    receiver: str
    payload_bytes: int


Round = tuple[CostedMessage, ...]
"""Messages that are all sent before any of them is waited for."""


def exchange(first: str, second: str, payload_bytes: int) -> Round:
    """Declare that two parties send each other the same amount at once."""
    return (
        CostedMessage(first, second, payload_bytes),
        CostedMessage(second, first, payload_bytes),
    )


class CostTally:
    """Add up declared messages with the same clocks as the meter of a link.

    A message is one deeper than everything its sender has received before; the deepest message
    of a phase is its number of rounds.
    """

    def __init__(self) -> None:
        self._clock: Counter[tuple[Phase, str]] = Counter()
        self._deepest: Counter[Phase] = Counter()
        self._messages: Counter[tuple[str, str, Phase]] = Counter()
        self._bytes: Counter[tuple[str, str, Phase]] = Counter()
        self._flow: list[tuple[Phase, Round]] = []

    @property
    def flow(self) -> tuple[tuple[Phase, Round], ...]:
        """Return every round that was added, in order."""
        return tuple(self._flow)

    def add(self, rounds: Iterable[Round], phase: Phase) -> None:
        """Count rounds that follow each other."""
        for messages in rounds:
            self._flow.append((phase, messages))
            depths = [self._clock[phase, message.sender] + 1 for message in messages]
            for message, depth in zip(messages, depths, strict=True):
                self._count(message, depth, phase)

    def _count(self, message: CostedMessage, depth: int, phase: Phase) -> None:
        clock = (phase, message.receiver)
        self._clock[clock] = max(self._clock[clock], depth)
        self._deepest[phase] = max(self._deepest[phase], depth)
        key = (message.sender, message.receiver, phase)
        self._messages[key] += 1
        self._bytes[key] += message.payload_bytes

    def cost(self) -> Cost:
        """Return the sum so far."""
        traffic = (
            Traffic(
                sender=sender,
                receiver=receiver,
                phase=phase,
                messages=self._messages[sender, receiver, phase],
                payload_bytes=self._bytes[sender, receiver, phase],
            )
            for sender, receiver, phase in sorted(self._messages)
        )
        return Cost(
            traffic=tuple(traffic),
            offline_rounds=self._deepest["offline"],
            online_rounds=self._deepest["online"],
        )


class HasFlow(Protocol):
    """A plan, as far as it says who sends what in which order."""

    @property
    def flow(self) -> tuple[tuple[Phase, Round], ...]:
        """Return every round, with its phase."""
        ...


def cost_in_a_row(plans: Iterable[HasFlow], *, before: Iterable[Round] = ()) -> Cost:
    """Return what runs of these plans cost one after the other.

    Rounds are not simply added: who waits for nobody, such as a dealer, goes on with the next run.

    Args:
        plans: in the order of their runs.
        before: what is sent online before the first of them.
    """
    tally = CostTally()
    tally.add(before, "online")
    for plan in plans:
        for phase, messages in plan.flow:
            tally.add((messages,), phase)
    return tally.cost()


def merge_costs(costs: Mapping[str, Cost]) -> Cost:
    """Join what the parties metered; both ends of a link must have counted the same.

    Args:
        costs: by party, what it sent and what it received.
    """
    links: dict[tuple[str, str, Phase], Traffic] = {}
    for party, cost in costs.items():
        for entry in cost.traffic:
            key = (entry.sender, entry.receiver, entry.phase)
            if links.setdefault(key, entry) != entry:
                raise DisagreementError(
                    party,
                    f"counted {entry.payload_bytes} bytes in {entry.messages} messages from "
                    f"{entry.sender!r} to {entry.receiver!r} ({entry.phase}), the other end "
                    f"{links[key].payload_bytes} in {links[key].messages}",
                )
    return Cost(
        traffic=tuple(links[key] for key in sorted(links)),
        offline_rounds=max((cost.offline_rounds for cost in costs.values()), default=0),
        online_rounds=max((cost.online_rounds for cost in costs.values()), default=0),
    )


def without_setup(cost: Cost) -> Cost:
    """Leave out what was sent before the plan was agreed, which no plan can declare."""
    return replace(cost, traffic=tuple(entry for entry in cost.traffic if entry.phase != "setup"))


def forecast_seconds(cost: Cost, *, rtt_ms: float, mbit_per_s: float) -> Timing:
    """Estimate network seconds: half a round trip per round, plus the busiest direction's bytes.

    Computing is not included; on slow networks it is the smaller part.
    """

    def seconds(phase: Phase, rounds: int) -> float:
        busiest = max((t.payload_bytes for t in cost.traffic if t.phase == phase), default=0)
        return rounds * rtt_ms / 2000 + busiest * 8 / (mbit_per_s * 1e6)

    return Timing(
        rtt_ms=rtt_ms,
        mbit_per_s=mbit_per_s,
        offline_seconds=seconds("offline", cost.offline_rounds),
        online_seconds=seconds("online", cost.online_rounds),
    )
