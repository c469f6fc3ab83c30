"""What every accountant in the table must hold, and the numbers that they must reach."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.dp import (
    ACCOUNTANTS,
    ADD_REMOVE_CLIENT,
    ADD_REMOVE_RECORD,
    REPLACE_CLIENT,
    REPLACE_RECORD,
    Approximate,
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    FixedSample,
    Gaussian,
    Laplace,
    Poisson,
    Pure,
    Repeated,
    Response,
    Shuffled,
    Unaccountable,
    supporting,
)
from tacit.dp.renyi import renyi
from tacit.errors import ConfigError

pytest.importorskip("dp_accounting")


def gaussian(sigma):
    return Gaussian(sigma=sigma, l2_sensitivity=1.0, relation=ADD_REMOVE_RECORD)


def sampled(sigma, rate, *, is_hidden=True):
    return Poisson(event=gaussian(sigma), rate=rate, is_hidden=is_hidden)


EVENTS = {
    "gaussian": gaussian(2.0),
    "sampled": sampled(1.0, 0.05),
    "laplace": Laplace(scale=4.0, l1_sensitivity=1.0, dimension=1, relation=ADD_REMOVE_RECORD),
    "laplace vector": Laplace(
        scale=4.0, l1_sensitivity=1.0, dimension=9, relation=ADD_REMOVE_RECORD
    ),
    "discrete laplace": DiscreteLaplace(
        scale=Fraction(9), l1_sensitivity=2, dimension=1, relation=ADD_REMOVE_RECORD
    ),
    "discrete gaussian": DiscreteGaussian(
        sigma2=Fraction(40), l2_sensitivity=3.0, dimension=1, relation=ADD_REMOVE_RECORD
    ),
    "sum of discrete gaussians": DiscreteGaussian(
        sigma2=Fraction(4), l2_sensitivity=5.0, dimension=100, relation=ADD_REMOVE_CLIENT, parts=20
    ),
    "binomial": Binomial(
        trials=8000,
        dimension=1,
        l1_sensitivity=4.0,
        l2_sensitivity=4.0,
        linf_sensitivity=4.0,
        relation=ADD_REMOVE_CLIENT,
    ),
    "response": Response(epsilon=0.4, levels=5),
    "shuffled": Shuffled(local_epsilon=2.0, clients=2000),
    "pure": Pure(epsilon=0.3, relation=REPLACE_RECORD, mechanism="sparse vector technique"),
    "approximate": Approximate(
        epsilon=0.3, delta=1e-9, relation=REPLACE_RECORD, mechanism="objective perturbation"
    ),
    "fixed sample": FixedSample(
        event=Gaussian(sigma=3.0, l2_sensitivity=1.0, relation=REPLACE_RECORD),
        sample=20,
        population=1000,
        is_hidden=True,
    ),
}
CASES = [(name, what) for what, event in EVENTS.items() for name in supporting([event])]


@pytest.mark.parametrize(("name", "what"), CASES)
def test_more_repetitions_and_a_smaller_delta_cost_more(name, what):
    def spent(count, delta):
        return ACCOUNTANTS[name].epsilon([Repeated(event=EVENTS[what], count=count)], delta=delta)

    one = spent(1, 1e-6)
    assert 0 < one <= spent(1, 1e-8)
    assert one < spent(3, 1e-6)


@pytest.mark.parametrize("what", EVENTS)
def test_every_event_has_an_accountant_and_they_agree_in_order(what):
    events = [Repeated(event=EVENTS[what], count=4)]
    spent = {name: ACCOUNTANTS[name].epsilon(events, delta=1e-6) for name in supporting(events)}
    assert "basic" in spent
    assert spent["advanced"] <= spent["basic"]
    if "pld" in spent:  # the second computation, which shares no code with the library's
        assert spent["fourier"] == pytest.approx(spent["pld"], rel=1e-3)
        assert spent["pld"] <= spent["basic"] * 1.001
    if "rdp" in spent and "pld" in spent:
        assert spent["pld"] <= spent["rdp"] * 1.001


@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_the_order_of_events_and_how_they_are_grouped_do_not_matter(name):
    a, b = EVENTS["gaussian"], EVENTS["laplace"]
    one = ACCOUNTANTS[name].epsilon([a, b, a], delta=1e-6)
    other = ACCOUNTANTS[name].epsilon([b, Repeated(event=a, count=2)], delta=1e-6)
    assert one == pytest.approx(other, rel=1e-9)


@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_a_sample_that_shows_amplifies_nothing(name):
    hidden = ACCOUNTANTS[name].epsilon([sampled(1.0, 0.05)], delta=1e-6)
    shown = ACCOUNTANTS[name].epsilon([sampled(1.0, 0.05, is_hidden=False)], delta=1e-6)
    assert hidden < shown
    assert shown == ACCOUNTANTS[name].epsilon([gaussian(1.0)], delta=1e-6)


@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_one_event_without_a_guarantee_spoils_all(name):
    bad = Unaccountable(reason="raw data was released", relation=ADD_REMOVE_RECORD)
    assert ACCOUNTANTS[name].epsilon([gaussian(1.0), bad], delta=1e-6) == math.inf
    hidden = Poisson(event=bad, rate=0.1, is_hidden=True)
    assert ACCOUNTANTS[name].epsilon([hidden], delta=1e-6) == math.inf


@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_nothing_done_costs_nothing(name):
    assert ACCOUNTANTS[name].epsilon([], delta=1e-6) == 0


@pytest.mark.parametrize("name", ACCOUNTANTS)
@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-9, math.nan, math.inf])
def test_a_delta_that_is_none_is_refused(name, delta):
    with pytest.raises(ConfigError, match="delta must be above 0 and below 1"):
        ACCOUNTANTS[name].epsilon([gaussian(1.0)], delta=delta)


@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_different_relations_are_not_added_up(name):
    other = Gaussian(sigma=1.0, l2_sensitivity=1.0, relation=REPLACE_CLIENT)
    with pytest.raises(ConfigError, match="different neighbouring relations"):
        ACCOUNTANTS[name].epsilon([gaussian(1.0), other], delta=1e-6)


def test_an_event_out_of_reach_is_refused_with_those_who_can():
    with pytest.raises(ConfigError, match=r"cannot account for DiscreteGaussian; those .* rdp"):
        ACCOUNTANTS["pld"].epsilon([EVENTS["sum of discrete gaussians"]], delta=1e-6)


ANCHORS = [
    ("pld", 1.1, 256 / 60_000, 60 * 235, 1e-5, 2.385),
    ("fourier", 1.1, 256 / 60_000, 60 * 235, 1e-5, 2.385),
    ("rdp", 1.1, 256 / 60_000, 60 * 235, 1e-5, 2.600),
    ("pld", 1.0, 0.1, 100, 1e-3, 4.784),
    ("fourier", 1.0, 0.1, 100, 1e-3, 4.784),
    ("rdp", 1.0, 0.1, 100, 1e-3, 5.640),
]


@pytest.mark.parametrize(("name", "sigma", "rate", "steps", "delta", "expected"), ANCHORS)
def test_known_runs_of_dp_sgd_are_reproduced(name, sigma, rate, steps, delta, expected):
    events = [Repeated(event=sampled(sigma, rate), count=steps)]
    assert ACCOUNTANTS[name].epsilon(events, delta=delta) == pytest.approx(expected, abs=1e-3)


def laplace(scale):
    return Laplace(scale=scale, l1_sensitivity=1.0, dimension=1, relation=ADD_REMOVE_RECORD)


def whole_laplace(scale):
    return DiscreteLaplace(
        scale=Fraction(scale), l1_sensitivity=1, dimension=1, relation=ADD_REMOVE_RECORD
    )


# Values that dp-accounting's own tests hold (github.com/google/differential-privacy, its
# pld_privacy_accountant_test and rdp_privacy_accountant_test): events, how often, δ, ε, within.
PUBLISHED = {
    "three gaussians": ([(gaussian(math.sqrt(3)), 3)], 0.126936, 1.0, 1e-3),
    "three sampled gaussians": ([(sampled(0.5, 0.2), 3)], 0.15594, 1.0, 1e-3),
    "two kinds of laplace": ([(laplace(1.0), 3), (laplace(2.0), 2)], 1e-14, 4.0, 1e-5),
    "three sampled laplaces": (
        [(Poisson(event=laplace(0.5), rate=0.2, is_hidden=True), 3)],
        1e-14,
        2.46964,
        1e-3,
    ),
    "two kinds of whole laplace": (
        [(whole_laplace(1), 3), (whole_laplace(2), 2)],
        1e-14,
        4.0,
        1e-5,
    ),
}
EXACT = ("pld", "fourier")


@pytest.mark.parametrize("what", PUBLISHED)
def test_values_that_others_publish_are_reached_and_never_undercut(what):
    told, delta, expected, within = PUBLISHED[what]
    events = [Repeated(event=event, count=count) for event, count in told]
    names = supporting(events)
    assert set(names) & set(EXACT)
    for name in names:
        found = ACCOUNTANTS[name].epsilon(events, delta=delta)
        if name in EXACT:
            assert found == pytest.approx(expected, abs=within), name
        else:
            assert found >= expected - within, name


def test_divergences_that_others_publish_are_ours():
    """Fifty steps of a hundredth of the rows. Between whole orders theirs are bounds from above.

    Ours are the integral there: the first two numbers by mpmath, to all digits shown.
    """
    orders = np.array([1.5, 2.5, 5.0, 50.0, 100.0])
    ours = 50 * renyi(sampled(2.5, 0.01), orders)
    theirs = [6.70579741e-04, 1.08548710e-03, 2.18075656e-03, 2.38460375e-02, 1.67416308e02]
    assert np.allclose(ours[2:], theirs[2:], rtol=1e-6)
    assert np.allclose(ours[:2], [6.50070897e-04, 1.08541806e-03], rtol=1e-6)
    assert (ours <= np.array(theirs) * (1 + 1e-6)).all()


def test_noise_that_others_chose_for_epsilon_one_has_it():
    found = ACCOUNTANTS["rdp"].epsilon([gaussian(4.530877117)], delta=1e-6)
    assert found == pytest.approx(1.0, abs=1e-3)


@settings(max_examples=8)
@given(
    sigma=st.floats(1, 8), rate=st.floats(1e-3, 1), count=st.integers(1, 20),
    exponent=st.floats(-9, -2),
)  # fmt: skip
def test_two_independent_computations_agree_on_sampled_noise(sigma, rate, count, exponent):
    events = [Repeated(event=sampled(sigma, rate), count=count)]
    ours = ACCOUNTANTS["fourier"].epsilon(events, delta=10**exponent)
    theirs = ACCOUNTANTS["pld"].epsilon(events, delta=10**exponent)
    assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-4)
