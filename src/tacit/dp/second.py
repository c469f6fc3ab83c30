"""A second computation of ε, by code that shares none of the composition with the first."""

import logging
from dataclasses import dataclass

from tacit.dp.accountant import ACCOUNTANTS, find_accountant, supporting
from tacit.dp.event import unroll
from tacit.dp.ledger import Ledger, epsilon
from tacit.dp.renyi import has_renyi, renyi_epsilon
from tacit.errors import ClaimError
from tacit.extras import install_hint
from tacit.result import Claim

_log = logging.getLogger(__name__)
AGREEMENT = 0.01
"""How far, relatively, the second ε may lie above the first."""

OWN_RENYI = "Rényi divergences, our own"
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
