"""The privacy ledger: every event of a run in order, and the claim that follows from it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import final

from tacit.dp.accountant import (
    Accountant,
    choose_accountant,
    common_relation,
    find_accountant,
    reason_without_guarantee,
)
from tacit.dp.check import delta_among
from tacit.dp.detection import detection_of, gaussian_detection
from tacit.dp.event import Event, Gaussian, Relation, unroll
from tacit.errors import ConfigError
from tacit.result import Claim

_DELTAS = (1e-3, 0.01, 0.05, 0.2)


@dataclass(frozen=True)
class Entry:
    """One event, and the clients whose data it concerns; None means everyone's."""

    event: Event
    clients: frozenset[str] | None = None
    note: str = ""


@final
class Ledger:
    """An append-only list of what was done to whose data.

    Events of a central mechanism concern everyone; a client's own noise concerns that client, and
    different clients' budgets do not add up: each has its own data.
    """

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries = list(entries)

    def record(self, event: Event, *, clients: Iterable[str] | None = None, note: str = "") -> None:
        """Write an event down; without `clients` it concerns the data of all."""
        if isinstance(clients, str):
            raise ConfigError(f"clients is a list of names, got the single string {clients!r}")
        self._entries.append(Entry(event, None if clients is None else frozenset(clients), note))

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries in the order in which they were written."""
        return tuple(self._entries)

    @property
    def clients(self) -> tuple[str, ...]:
        """Every client that an entry names, sorted."""
        return tuple(sorted(set().union(*(entry.clients or () for entry in self._entries))))

    def events_of(self, client: str | None) -> tuple[Event, ...]:
        """Return the events that concern a client; for None those that concern everyone."""
        return tuple(
            entry.event
            for entry in self._entries
            if entry.clients is None or (client is not None and client in entry.clients)
        )

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Ledger({len(self._entries)} events)"


def epsilon(
    ledger: Ledger | Iterable[Event],
    *,
    delta: float,
    accountant: str | None = None,
    client: str | None = None,
    subject: str = "",
    population: int | None = None,
) -> Claim:
    """Compute the claim that follows from a ledger, for one client or for the worst-off.

    Args:
        ledger: what was done; a plain list of events concerns everyone.
        delta: δ of the claim, above 0 and below 1.
        accountant: a name in `ACCOUNTANTS`; the first that can, if not given.
        client: whose claim; None takes the client that has lost most.
        subject: what the claim is about; by default the unit of the relation.
        population: how many records or clients there are; a δ of 1/n or more is refused, and one
            near it is warned of among the assumptions.

    Guarantee: the ε of the claim is an upper bound if every event happened as recorded, with fresh
    randomness; it is None and the guarantee "no guarantee" if an event has no finite ε.
    """
    if not isinstance(ledger, Ledger):
        ledger = Ledger(Entry(event) for event in ledger)
    known = find_accountant(
        accountant or choose_accountant(entry.event for entry in ledger.entries)
    )
    everyone = [client] if client is not None else [*ledger.clients, None]
    # Clients to whom the same was done, in whatever order, are computed once.
    histories = {
        frozenset(unroll(events).items()): events
        for events in (ledger.events_of(name) for name in everyone)
    }
    spent, worst = max(
        ((known.epsilon(events, delta=delta), events) for events in histories.values()),
        key=lambda found: found[0],
    )
    claim = _claim(worst, known, spent, delta, subject)
    if population is None:
        return claim
    unit = "record" if not worst else worst[0].relation.unit.split()[-1]
    warning = delta_among(delta, population, unit)
    return replace(claim, assumptions=(*claim.assumptions, warning)) if warning else claim


def sharpen(claim: Claim, ledger: Ledger | Iterable[Event]) -> Claim:
    """Lower what a claim says of the best attacker by the whole curve of what was done.

    One (ε, δ) allows mechanisms that are worse than the one at hand. Of Gaussian noise the whole
    trade-off curve is known; else the claims that follow from the same ledger at other δ bound the
    attacker too, and the least of all bounds holds.

    Guarantee: an upper bound, as far as the accountant's ε are.
    Cost: four more computations of ε, where the noise is not Gaussian.
    """
    if claim.detection is None:
        return claim
    if not isinstance(ledger, Ledger):
        ledger = Ledger(Entry(event) for event in ledger)
    everyone = [unroll(ledger.events_of(name)) for name in (*ledger.clients, None)]
    found: list[float | None] = [gaussian_detection(steps) for steps in everyone]
    if None not in found:
        found = [max(one for one in found if one is not None)]
    else:
        found = [
            epsilon(ledger, delta=delta, accountant=claim.accountant).detection for delta in _DELTAS
        ]
    return replace(claim, detection=min(one for one in (claim.detection, *found) if one))


def _subject(relation: Relation | None) -> str:
    whole = "record" if relation is None else relation.unit
    part, _, owner = whole.rpartition(" of a ")
    return f"what a policy marks of each {owner}" if part else f"each {owner}'s data"


def _is_continuous(step: Event) -> bool:
    inner = getattr(step, "event", step)
    return isinstance(inner, Gaussian)


def _claim(
    events: tuple[Event, ...], known: Accountant, spent: float, delta: float, subject: str
) -> Claim:
    steps = unroll(events)
    relation = common_relation(steps)
    reasons = sorted({why for step in steps if (why := reason_without_guarantee(step))})
    if not reasons and math.isinf(spent):
        reasons = [f"{known.name} finds no finite ε at this δ"]
    assumptions = [f"{known.name}: {known.basis}", "noise is drawn as recorded and kept secret"]
    if any(_is_continuous(step) for step in steps):
        # Small per number, but a training draws very many numbers: it is not in δ.
        assumptions.append("Gaussian noise in floating point is as good as exact noise")
    about = subject or _subject(relation)
    if reasons:
        return Claim(
            subject=about,
            guarantee="no guarantee",
            assumptions=(*assumptions, *reasons),
            delta=delta,
            relation=None if relation is None else str(relation),
            accountant=known.name,
        )
    return Claim(
        subject=about,
        guarantee="(ε, δ)-differential privacy",
        assumptions=tuple(assumptions),
        epsilon=spent,
        delta=delta,
        relation=None if relation is None else str(relation),
        accountant=known.name,
        detection=detection_of(spent, delta),
    )
