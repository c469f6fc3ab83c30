"""The privacy ledger: every event of a run in order, and the claim that follows from it.

What ε means to the best attacker, and a second ε by code that shares nothing of the composition
with the first, stand last.
"""

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import final

from tacit.dp.accountant import (
    ACCOUNTANTS,
    Accountant,
    choose_accountant,
    common_relation,
    find_accountant,
    reason_without_guarantee,
    supporting,
)
from tacit.dp.check import delta_among
from tacit.dp.event import DiscreteGaussian, Event, Gaussian, Relation, Step, unroll
from tacit.dp.renyi import has_renyi, renyi_epsilon
from tacit.errors import ClaimError, ConfigError
from tacit.extras import install_hint
from tacit.result import Claim

FALSE_POSITIVES = 0.01
"""How often the attacker may be wrong about those whose data was not used."""
AGREEMENT = 0.01
"""How far, relatively, the second ε may lie above the first."""
OWN_RENYI = "Rényi divergences, our own"
_DELTAS = (1e-3, 0.01, 0.05, 0.2)
_FINE = 2.0**12  # cells of the grid per deviation, from which on a discrete Gaussian is smooth
_FAR = 10.0  # deviations beyond which nothing is ever drawn: e^-50
_log = logging.getLogger(__name__)


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


def detection_of(
    epsilon: float, delta: float, *, false_positives: float = FALSE_POSITIVES
) -> float:
    """Bound the true-positive rate of every attacker with a false-positive rate, from (ε, δ).

    Kairouz, Oh and Viswanath (2015): TPR ≤ e^ε FPR + δ, and 1 − FPR ≤ e^ε (1 − TPR) + δ.
    """
    above = math.exp(min(epsilon, 700.0)) * false_positives + delta
    below = 1 - math.exp(-epsilon) * (1 - delta - false_positives)
    return max(false_positives, min(1.0, above, below))


def gaussian_detection(
    steps: Mapping[Step, int], *, false_positives: float = FALSE_POSITIVES
) -> float | None:
    """Compute the same from the whole trade-off curve, where all noise is Gaussian; else None.

    Gaussian steps together are one of μ = √Σ(sensitivity / σ)² (Dong, Roth and Su 2022), against
    which the best test has Φ(Φ⁻¹(FPR) + μ). A sum of discrete Gaussians of thousands of cells is
    one of the whole variance (Kairouz, Liu and Steinke 2021), which differs from the rounding of a
    smooth one by a factor of at most 1 + x²/24σ⁴ at x: that is added.
    """
    from scipy.special import ndtr, ndtri  # heavy: where it is used

    mu2, slack = 0.0, 0.0
    for step, count in steps.items():
        match step:
            case Gaussian():
                mu2 += count / step.multiplier**2
            case DiscreteGaussian() if float(step.sigma2) >= _FINE**2:
                variance = float(step.sigma2) * step.parts
                mu2 += count * step.l2_sensitivity**2 / variance
                slack += count * step.dimension * _FAR**2 / (6 * variance)
            case _:
                return None
    return min(1.0, float(ndtr(ndtri(false_positives) + math.sqrt(mu2))) + slack)


_PARTNERS = {
    "pld": ("fourier",),
    "fourier": ("pld", "rdp"),
    "rdp": (),
    "renyi": ("rdp",),
    "advanced": ("fourier", "rdp"),
    "basic": ("fourier", "rdp"),
}


@dataclass(frozen=True)
class Second:
    """An ε that was computed again, and how."""

    epsilon: float
    accountant: str


def confirm(ledger: Ledger, claim: Claim) -> Second | None:
    """Compute the ε of a claim a second time; None if the claim has no ε or nobody else can.

    Looks at the client that the claim is about: the worst off. What another accountant of
    dp-accounting would confirm is not confirmed without it, and a warning says so.

    Raises:
        ClaimError: the second ε is larger by more than `AGREEMENT`.
    """
    if claim.epsilon is None or claim.delta is None or claim.accountant is None:
        return None
    found = _again(ledger, claim.accountant, claim.delta)
    if found is not None and found.epsilon > claim.epsilon * (1 + AGREEMENT) + 1e-6:
        raise ClaimError(
            f"{claim.accountant} computes ε = {claim.epsilon:.6g} at δ = {claim.delta:g}, "
            f"{found.accountant} finds {found.epsilon:.6g}; at most one of them is right"
        )
    return found


def _again(ledger: Ledger, first: str, delta: float) -> Second | None:
    histories = [ledger.events_of(name) for name in (*ledger.clients, None)]
    steps = [unroll(events) for events in histories]
    able = supporting(event for events in histories for event in events)
    for name in _PARTNERS.get(first, ()):
        if name in able:
            again = epsilon(ledger, delta=delta, accountant=name).epsilon
            return None if again is None else Second(again, find_accountant(name).name)
    if any(not ACCOUNTANTS[name].is_ready for name in _PARTNERS.get(first, ())):
        # A sum of Rényi divergences is larger than a tight ε, and contradicts nothing.
        _log.warning(
            "ε by %s is not computed a second time without dp-accounting; run: %s",
            first,
            install_hint("dp_accounting"),
        )
        return None
    if first == "renyi" or not all(has_renyi(step) for one in steps for step in one):
        return None
    different = {frozenset(one.items()): one for one in steps}.values()
    return Second(max(renyi_epsilon(one, delta) if one else 0.0 for one in different), OWN_RENYI)
