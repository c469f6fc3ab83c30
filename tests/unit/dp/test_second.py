"""The second computation of ε: it agrees for every kind of event, and contradicts what is false."""

from dataclasses import replace
from fractions import Fraction

import pytest

from tacit.dp import (
    REPLACE_CLIENT,
    DiscreteGaussian,
    Gaussian,
    Ledger,
    Pure,
    Shuffled,
    Unaccountable,
    confirm,
    epsilon,
)
from tacit.errors import ClaimError

pytest.importorskip("dp_accounting", reason="pip install 'tacit-ml[dp]'")

EVENTS = {
    "gaussian": Gaussian(sigma=2.0, l2_sensitivity=1.0, relation=REPLACE_CLIENT),
    "discrete": DiscreteGaussian(
        sigma2=Fraction(100), l2_sensitivity=20.0, dimension=50, relation=REPLACE_CLIENT, parts=30
    ),
    "shuffled": Shuffled(local_epsilon=1.0, clients=200),
    "pure": Pure(epsilon=0.3, relation=REPLACE_CLIENT, mechanism="any"),
}


def ledger_of(*events, count=5):
    ledger = Ledger()
    for event in events:
        for _ in range(count):
            ledger.record(event)
    return ledger


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("gaussian", "pld", "fourier"),
        ("gaussian", "fourier", "pld"),
        ("gaussian", "rdp", "Rényi divergences, our own"),
        ("discrete", "rdp", "Rényi divergences, our own"),
        ("shuffled", "pld", "fourier"),
        ("pure", "pld", "fourier"),
    ],
)
def test_two_computations_agree(name, first, second):
    ledger = ledger_of(EVENTS[name])
    claim = epsilon(ledger, delta=1e-5, accountant=first)
    found = confirm(ledger, claim)
    assert found.accountant == second
    assert found.epsilon == pytest.approx(claim.epsilon, rel=1e-3)


def test_the_worst_off_client_is_the_one_that_counts():
    ledger = Ledger()
    for _ in range(3):
        ledger.record(EVENTS["discrete"], clients=["a", "b"])
    ledger.record(EVENTS["discrete"], clients=["b"])
    claim = epsilon(ledger, delta=1e-5, accountant="rdp")
    assert confirm(ledger, claim).epsilon == pytest.approx(claim.epsilon, rel=1e-3)


def test_a_claim_below_the_truth_is_contradicted():
    ledger = ledger_of(EVENTS["discrete"])
    claim = epsilon(ledger, delta=1e-5, accountant="rdp")
    with pytest.raises(ClaimError, match="at most one of them is right"):
        confirm(ledger, replace(claim, epsilon=0.9 * claim.epsilon))


def test_no_guarantee_is_not_confirmed():
    ledger = ledger_of(Unaccountable(reason="raw", relation=REPLACE_CLIENT))
    claim = epsilon(ledger, delta=1e-5, accountant="basic")
    assert claim.epsilon is None
    assert confirm(ledger, claim) is None
