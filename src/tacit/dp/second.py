"""A second computation of ε, by code that shares none of the composition with the first."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tacit.dp.accountant import find_accountant, supporting
from tacit.dp.event import Step, unroll
from tacit.dp.ledger import Ledger, epsilon
from tacit.dp.library import is_installed
from tacit.dp.renyi import ORDERS, epsilon_of_renyi, renyi
from tacit.errors import ClaimError
from tacit.result import Claim

AGREEMENT = 0.01
"""How far, relatively, the second ε may lie above the first."""

OWN_RENYI = "Rényi divergences, our own"
_PARTNERS = {
    "pld": ("fourier",),
    "fourier": ("pld", "rdp"),
    "rdp": (),
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

    Looks at the client that the claim is about: the worst off.

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
        if name in able and (is_installed() or name == "fourier"):
            again = epsilon(ledger, delta=delta, accountant=name).epsilon
            return None if again is None else Second(again, find_accountant(name).name)
    different = {frozenset(one.items()): one for one in steps}.values()
    bounds = [_by_renyi(one, delta) for one in different]
    if any(bound is None for bound in bounds):
        return None
    return Second(max(bound for bound in bounds if bound is not None), OWN_RENYI)


def _by_renyi(steps: Mapping[Step, int], delta: float) -> float | None:
    total = np.zeros_like(ORDERS)
    for step, count in steps.items():
        found = renyi(step)
        if found is None:
            return None
        total += count * found
    return epsilon_of_renyi(total, delta) if math.fsum(steps.values()) else 0.0
