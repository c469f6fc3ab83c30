import json
import math
from fractions import Fraction

import pytest

from tacit.dp import (
    ADD_REMOVE_CLIENT,
    ADD_REMOVE_RECORD,
    REPLACE_CLIENT,
    Approximate,
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    FixedSample,
    Gaussian,
    Laplace,
    Ledger,
    Poisson,
    Pure,
    Repeated,
    Response,
    Shuffled,
    Unaccountable,
    epsilon,
    event_from_record,
    event_to_record,
    ledger_from_record,
    ledger_to_record,
    unroll,
)
from tacit.errors import ConfigError, DataError

GAUSSIAN = Gaussian(sigma=2.0, l2_sensitivity=1.0, relation=ADD_REMOVE_CLIENT)
EVENTS = [
    GAUSSIAN,
    Laplace(scale=1.0, l1_sensitivity=2.0, dimension=3, relation=ADD_REMOVE_RECORD),
    DiscreteGaussian(
        sigma2=Fraction(22, 7), l2_sensitivity=1.0, dimension=3, relation=REPLACE_CLIENT, parts=4
    ),
    DiscreteLaplace(
        scale=Fraction(1, 3), l1_sensitivity=2, dimension=1, relation=ADD_REMOVE_RECORD
    ),
    Binomial(
        trials=64,
        dimension=2,
        l1_sensitivity=2.0,
        l2_sensitivity=1.5,
        linf_sensitivity=1.0,
        relation=ADD_REMOVE_CLIENT,
    ),
    Response(epsilon=1.0, levels=2),
    Shuffled(local_epsilon=1.0, clients=9, is_binary=True),
    Pure(epsilon=1.0, relation=REPLACE_CLIENT, mechanism="svt"),
    Approximate(epsilon=1.0, delta=1e-7, relation=REPLACE_CLIENT, mechanism="objective"),
    Poisson(event=GAUSSIAN, rate=0.1, is_hidden=True),
    FixedSample(
        event=Gaussian(sigma=1.0, l2_sensitivity=2.0, relation=REPLACE_CLIENT),
        sample=3,
        population=10,
        is_hidden=False,
    ),
    Repeated(event=Poisson(event=GAUSSIAN, rate=0.1, is_hidden=True), count=7),
    Unaccountable(reason="p < 1", relation=REPLACE_CLIENT),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_survives_json(event):
    assert event_from_record(json.loads(json.dumps(event_to_record(event)))) == event


def test_a_ledger_survives_json():
    ledger = Ledger()
    for event in EVENTS:
        ledger.record(event, clients=["b", "a"], note="round 1")
    ledger.record(GAUSSIAN)
    again = ledger_from_record(json.loads(json.dumps(ledger_to_record(ledger))))
    assert again.entries == ledger.entries


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "Magic"},
        {"sigma": "2"},
        {"sigma": True},
        {"sigma": -1.0},
        {"sigma": math.nan},
        {"relation": "add-remove"},
        {"relation": {"neighbours": "all", "unit": "client"}},
        {"extra": 1},
    ],
)
def test_a_record_that_is_no_event_is_refused(change):
    with pytest.raises((DataError, ConfigError)):
        event_from_record({**event_to_record(GAUSSIAN), **change})


@pytest.mark.parametrize("record", [None, {}, [1], [{"event": {}}], "ledger"])
def test_a_record_that_is_no_ledger_is_refused(record):
    with pytest.raises(DataError):
        ledger_from_record(record)


def test_a_claim_carries_everything_it_rests_on():
    claim = epsilon([GAUSSIAN], delta=1e-5, accountant="fourier")
    assert claim.epsilon == pytest.approx(1.994, abs=2e-3)
    assert claim.delta == 1e-5
    assert claim.relation == "adding or removing one client"
    assert claim.accountant == "fourier"


def test_a_client_pays_for_its_own_events_and_for_those_of_all():
    ledger = Ledger()
    ledger.record(GAUSSIAN)
    for _ in range(3):
        ledger.record(GAUSSIAN, clients=["ada"])
    ledger.record(GAUSSIAN, clients=["bob"])

    def spent(client):
        return epsilon(ledger, delta=1e-5, accountant="fourier", client=client).epsilon

    def alone(count):
        event = Repeated(event=GAUSSIAN, count=count)
        return epsilon([event], delta=1e-5, accountant="fourier").epsilon

    assert spent("ada") == alone(4)
    assert spent("bob") == alone(2)
    assert spent("eve") == alone(1)
    assert spent(None) == alone(4), "without a name the claim is the worst client's"


def test_an_event_without_a_guarantee_is_said_to_have_none():
    bad = Unaccountable(reason="values were left as they are", relation=ADD_REMOVE_CLIENT)
    claim = epsilon([GAUSSIAN, bad], delta=1e-5, accountant="fourier")
    assert claim.guarantee == "no guarantee"
    assert claim.epsilon is None
    assert "values were left as they are" in claim.assumptions


def test_a_bound_that_is_infinite_is_no_guarantee():
    few = Binomial(
        trials=64,
        dimension=10,
        l1_sensitivity=1.0,
        l2_sensitivity=1.0,
        linf_sensitivity=1.0,
        relation=ADD_REMOVE_CLIENT,
    )
    assert epsilon([few], delta=1e-5, accountant="basic").guarantee == "no guarantee"


def test_a_single_name_is_not_a_list_of_clients():
    with pytest.raises(ConfigError, match="single string"):
        Ledger().record(GAUSSIAN, clients="ada")


def test_an_unknown_accountant_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="pld, rdp, fourier"):
        epsilon([GAUSSIAN], delta=1e-5, accountant="moments")


def test_steps_under_one_sample_are_one_larger_step():
    inner = Repeated(event=GAUSSIAN, count=4)
    (step,) = unroll([Poisson(event=inner, rate=0.5, is_hidden=True)])
    assert step.event.sigma == pytest.approx(1.0)


def test_a_sample_that_shows_amplifies_nothing_inside_another_one():
    shown = Poisson(event=GAUSSIAN, rate=0.01, is_hidden=False)
    (step,) = unroll([Poisson(event=shown, rate=0.5, is_hidden=True)])
    assert step == Poisson(event=GAUSSIAN, rate=0.5, is_hidden=True)


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf])
def test_noise_that_is_none_is_refused(sigma):
    with pytest.raises(ConfigError, match="sigma must be"):
        Gaussian(sigma=sigma, l2_sensitivity=1.0, relation=ADD_REMOVE_CLIENT)


@pytest.mark.parametrize("value", [0.0, -0.5, math.nan, math.inf, 1e3])
def test_an_epsilon_that_is_none_is_refused(value):
    with pytest.raises(ConfigError, match="epsilon"):
        Pure(epsilon=value, relation=ADD_REMOVE_CLIENT, mechanism="svt")


def test_poisson_sampling_wants_add_remove_and_fixed_samples_want_replace_one():
    with pytest.raises(ConfigError, match="add-remove"):
        Poisson(event=Response(epsilon=1.0, levels=2), rate=0.1, is_hidden=True)
    with pytest.raises(ConfigError, match="replace-one"):
        FixedSample(event=GAUSSIAN, sample=1, population=2, is_hidden=True)
