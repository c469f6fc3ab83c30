"""What a kernel says it will send, what that forecasts, and the views of all parties as one."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from tacit.errors import DisagreementError
from tacit.result import Cost, Leak, Phase, Result, Timing, Traffic


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


def cost_in_a_row(
    flows: Iterable[Iterable[tuple[Phase, Round]]], *, before: Iterable[Round] = ()
) -> Cost:
    """Return what runs of plans cost one after the other, by their flows.

    Rounds are not simply added: who waits for nobody, such as a dealer, goes on with the next run.

    Args:
        flows: every round of a plan with its phase, plans in the order of their runs.
        before: what is sent online before the first of them.
    """
    tally = CostTally()
    tally.add(before, "online")
    for flow in flows:
        for phase, messages in flow:
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


R = TypeVar("R")


def merge_results(results: tuple[Result, ...]) -> Result:
    """Join the views of all parties of one run into one result."""
    first = results[0]
    for other in results[1:]:
        if other.forecast != first.forecast:
            raise DisagreementError(other.parties[0].name, "reports another plan than the others")
    metered = merge_costs({one.parties[0].name: one.metered for one in results})
    return replace(
        first,
        parties=tuple(party for one in results for party in one.parties),
        metered=metered,
        leakage=_union([one.leakage for one in results]),
        claims=_once(one.claims for one in results),
        utility=_once(one.utility for one in results),
        curves=_once(one.curves for one in results),
        pictures=_once(one.pictures for one in results),
        sheets=_once(one.sheets for one in results),
        notes=_once(one.notes for one in results),
    )


def _once(views: Iterable[tuple[R, ...]]) -> tuple[R, ...]:
    """Join what the parties say, and keep what several of them say once."""
    return tuple(dict.fromkeys(item for view in views for item in view))


def _union(ledgers: list[tuple[Leak, ...]]) -> tuple[Leak, ...]:
    """Keep each entry once: the parties to a revelation all write it into their own ledger."""
    seen: dict[tuple[str, str, str, str], Leak] = {}
    for leak in (leak for ledger in ledgers for leak in ledger):
        key = (leak.to, leak.what, leak.why, leak.kind)
        if key not in seen or seen[key].elements < leak.elements:
            seen[key] = leak
    return tuple(seen.values())
