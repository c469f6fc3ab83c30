"""What ε means: the best attacker, by (ε, δ), by the whole curve, and by brute force."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from tacit.dp import (
    ADD_REMOVE_RECORD,
    REPLACE_CLIENT,
    DiscreteGaussian,
    Gaussian,
    Ledger,
    Poisson,
    Pure,
    Repeated,
    Unaccountable,
    delta_among,
    detection_of,
    epsilon,
    gaussian_detection,
    sharpen,
    unroll,
)
from tacit.errors import ConfigError


@pytest.mark.parametrize("eps", [0.0, 0.5, 2.0, 8.0])
def test_randomised_response_is_as_bad_as_its_epsilon_allows(eps):
    # The attacker believes some of the reports; 1 of 1 + e^ε is false.
    false = 1 / (1 + math.exp(eps))
    rates = np.linspace(0, 1, 10001)
    best = np.where(
        rates <= false,
        rates * math.exp(eps),
        1 - false + (rates - false) / (1 - false) * false,
    )
    for fpr in (0.001, 0.01, 0.2):
        wanted = float(np.interp(fpr, rates, best))
        assert detection_of(eps, 0.0, false_positives=fpr) == pytest.approx(wanted, abs=1e-3)


def test_delta_alone_finds_so_many_and_a_huge_epsilon_hides_nobody():
    assert detection_of(0.0, 0.05) == pytest.approx(0.06)
    assert detection_of(900.0, 1e-5) == 1.0


def test_the_curve_of_a_gaussian_is_below_every_single_epsilon_and_touched_by_them():
    event = Gaussian(sigma=2.0, l2_sensitivity=1.0, relation=ADD_REMOVE_RECORD)
    exact = float(norm.cdf(norm.ppf(0.01) + math.sqrt(3) / 2))
    steps = unroll([Repeated(event=event, count=3)])
    assert gaussian_detection(steps) == pytest.approx(exact)
    singles = [
        detection_of(epsilon([Repeated(event=event, count=3)], delta=d).epsilon, d)
        for d in (1e-5, 1e-3, 0.01, 0.02, 0.05)
    ]
    assert exact <= min(singles) <= exact + 0.003


def test_a_claim_is_sharpened_by_its_ledger_and_never_dulled():
    fine = DiscreteGaussian(
        sigma2=Fraction(2**40),
        l2_sensitivity=2.0**20,
        dimension=99,
        relation=REPLACE_CLIENT,
        parts=4,
    )
    sampled = Poisson(
        event=Gaussian(sigma=1.0, l2_sensitivity=1.0, relation=ADD_REMOVE_RECORD),
        rate=0.1,
        is_hidden=True,
    )
    for event in (fine, sampled, Pure(epsilon=1.0, relation=REPLACE_CLIENT, mechanism="any")):
        ledger = Ledger()
        for _ in range(3):
            ledger.record(event)
        claim = epsilon(ledger, delta=1e-6)
        sharp = sharpen(claim, ledger)
        assert 0.01 <= sharp.detection <= claim.detection
        assert replace(sharp, detection=claim.detection) == claim
    assert sharpen(epsilon([fine], delta=1e-6), [fine]).detection == pytest.approx(
        float(norm.cdf(norm.ppf(0.01) + 0.5)), abs=1e-6
    )
    bare = epsilon([Unaccountable(reason="raw", relation=REPLACE_CLIENT)], delta=1e-6)
    assert sharpen(bare, []).detection is None


def test_the_worst_off_client_is_the_one_that_is_found():
    event = Gaussian(sigma=2.0, l2_sensitivity=1.0, relation=REPLACE_CLIENT)
    ledger = Ledger()
    ledger.record(event, clients=["a"])
    ledger.record(Repeated(event=event, count=8), clients=["b"])
    found = sharpen(epsilon(ledger, delta=1e-5), ledger).detection
    assert found == pytest.approx(float(norm.cdf(norm.ppf(0.01) + math.sqrt(2))))


def test_a_delta_of_one_in_n_is_refused_and_one_near_it_is_warned_of():
    event = Gaussian(sigma=2.0, l2_sensitivity=1.0, relation=REPLACE_CLIENT)
    with pytest.raises(ConfigError, match=r"1/n or more for n = 40 clients.*less than 0\.025"):
        epsilon([event], delta=1 / 40, population=40)
    near = epsilon([event], delta=0.01, population=40)
    assert (
        "near 1/n for n = 40 clients: to show one of them whole in 40% of all runs"
        in (near.assumptions[-1])
    )
    assert delta_among(0.1 / 40, 40, "client") is None
    assert epsilon([event], delta=1e-3, population=40).assumptions == (
        epsilon([event], delta=1e-3).assumptions
    )
