"""The library's accountants are an extra; the room works without it."""

import math
import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from support.federated import change_spec, make_spec
from tacit.dp import (
    ADD_REMOVE_RECORD,
    REPLACE_RECORD,
    Approximate,
    Binomial,
    BudgetTarget,
    DiscreteGaussian,
    DpSgd,
    FixedSample,
    Gaussian,
    Laplace,
    Ledger,
    Poisson,
    Pure,
    Repeated,
    Response,
    Shuffled,
    confirm,
    epsilon,
    exact_gaussian_event,
    least_noise,
    train_dp_sgd,
)
from tacit.dp.library import is_installed
from tacit.dp.renyi import renyi
from tacit.errors import ConfigError
from tacit.federated import Privacy, calibrate
from tacit.ring import Prg

RECORD = {"relation": ADD_REMOVE_RECORD}
NOISE = Gaussian(sigma=2.0, l2_sensitivity=1.0, **RECORD)
STEPS = {
    "gaussian": NOISE,
    "sampled": Poisson(event=NOISE, rate=0.1, is_hidden=True),
    "laplace vector": Laplace(scale=4.0, l1_sensitivity=1.0, dimension=9, **RECORD),
    "discrete vectors, summed": DiscreteGaussian(
        sigma2=Fraction(400), l2_sensitivity=20.0, dimension=50, parts=30, **RECORD
    ),
    "discrete vector, sampled": Poisson(
        event=exact_gaussian_event(50, sigma=2.0, l2_sensitivity=1.0, **RECORD),
        rate=0.1,
        is_hidden=True,
    ),
    "binomial vector": Binomial(
        trials=80_000, dimension=9, l1_sensitivity=4.0, l2_sensitivity=4.0, linf_sensitivity=4.0,
        **RECORD,
    ),
    "response": Response(epsilon=0.4, levels=5),
    "shuffled": Shuffled(local_epsilon=2.0, clients=2000),
    "pure": Pure(epsilon=0.3, mechanism="any", **RECORD),
    "approximate": Approximate(epsilon=0.3, delta=1e-9, mechanism="any", **RECORD),
    "fixed sample": FixedSample(
        event=replace(NOISE, relation=REPLACE_RECORD), sample=20, population=1000, is_hidden=True
    ),
}  # fmt: skip


@pytest.fixture
def no_library(monkeypatch):
    """Hide the library as if it had not been installed."""
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    assert not is_installed()


@pytest.mark.parametrize("what", STEPS)
def test_without_the_extra_our_own_accountants_serve_every_mechanism(no_library, what):
    events = [Repeated(event=STEPS[what], count=3)]
    claim = epsilon(events, delta=1e-5)
    assert claim.epsilon is not None
    assert claim.accountant not in ("pld", "rdp")
    assert (
        least_noise(lambda _: events, BudgetTarget(epsilon=100.0, delta=1e-5), low=1, high=2) == 1
    )


@pytest.mark.parametrize("name", ["pld", "rdp"])
@pytest.mark.parametrize("what", STEPS)
def test_without_the_extra_the_error_names_a_way_out_that_works(no_library, name, what):
    with pytest.raises(ConfigError, match="not installed") as caught:
        epsilon([STEPS[what]], delta=1e-5, accountant=name)
    (named,) = re.findall(r"use the accountant '(\w+)'", str(caught.value))
    assert epsilon([STEPS[what]], delta=1e-5, accountant=named).epsilon is not None
    assert "pip install 'tacit-ml[dp]'" in str(caught.value)


def test_without_the_extra_a_federated_policy_makes_its_promise(no_library):
    wish = Privacy(kind="central", clip=1.0, epsilon=5.0, delta=1e-4)
    spec = make_spec(clients=50, minimum=40, rounds=10, aggregator="masked", privacy=wish)
    made = calibrate(spec, 100)
    assert made.claim.accountant == "renyi"
    assert 4.9 < made.claim.epsilon <= 5.0
    wish = replace(wish, kind="local", mechanism="laplace")
    local = calibrate(replace(change_spec(spec, aggregator="plain"), privacy=wish), 100)
    assert local.claim.accountant == "renyi"


def test_without_the_extra_training_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opacus", None)
    settings = DpSgd(steps=1, sample_rate=1.0, clip=1.0, multiplier=1.0)
    with pytest.raises(ConfigError, match=r"pip install 'tacit-ml\[dp\]'"):
        train_dp_sgd(
            torch.nn.Linear(2, 2),
            torch.ones(3, 2),
            torch.ones(3).long(),
            settings,
            prg=Prg(bytes(16)),
        )


def test_whole_moments_of_sampled_discrete_noise_are_those_of_a_sum_over_the_integers():
    """Brute force over the integers, both directions, for a grid as coarse as one cell."""
    sigma2, shift, rate = 3.0, 2, 0.2
    xs = np.arange(-200, 201)
    q, p = (-((xs - at) ** 2) / (2 * sigma2) for at in (0, shift))
    q, p = q - logsumexp(q), p - logsumexp(p)
    mixed = np.logaddexp(math.log(1 - rate) + q, math.log(rate) + p)
    noise = DiscreteGaussian(sigma2=Fraction(3), l2_sensitivity=2.0, dimension=1, **RECORD)
    orders = np.array([2.0, 2.5, 3.0, 7.0, 7.3])
    ours = renyi(Poisson(event=noise, rate=rate, is_hidden=True), orders)
    for order, found in zip(orders, ours, strict=True):
        ahead = logsumexp(order * mixed + (1 - order) * q) / (order - 1)
        behind = logsumexp(order * q + (1 - order) * mixed) / (order - 1)
        assert max(ahead, behind) <= found + 1e-9
        if order % 1 == 0:
            assert found == pytest.approx(ahead, rel=1e-6)


def test_the_library_is_not_loaded_before_it_is_asked():
    program = "import sys, tacit.dp; print('dp_accounting' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=240
    )
    assert done.stdout.strip() == "False"


def test_fractional_orders_come_from_our_integral_and_agree_at_whole_ones():
    library = pytest.importorskip("dp_accounting")
    orders = np.array([2.0, 3.0, 5.0, 17.0])
    accountant = library.rdp.RdpAccountant(orders)
    accountant.compose(library.PoissonSampledDpEvent(0.02, library.GaussianDpEvent(0.9)))
    noise = Gaussian(sigma=0.9, l2_sensitivity=1.0, relation=ADD_REMOVE_RECORD)
    ours = renyi(Poisson(event=noise, rate=0.02, is_hidden=True), orders)
    assert ours == pytest.approx(accountant.rdp, rel=1e-8)


def test_without_the_extra_a_second_computation_says_what_to_install(no_library, caplog):
    ledger = Ledger()
    ledger.record(Repeated(event=STEPS["gaussian"], count=3))
    claim = epsilon(ledger, delta=1e-5)
    assert claim.accountant == "fourier"
    assert confirm(ledger, claim) is None
    assert "pip install 'tacit-ml[dp]'" in caplog.text
