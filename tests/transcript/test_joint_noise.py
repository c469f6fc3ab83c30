"""Noise that is sampled on shares: what it is, and what each party alone can do about it.

The attacker is one of the two that compute. It knows its own coins and its own fine part, may
choose the coins as it likes, and sees all messages. The attacks that would work on a plain sum of
coins, or with fine parts that are too fine, are run on these too: they must find something there.
"""

from fractions import Fraction
from math import exp, pi

import numpy as np
import pytest
import torch

from support.mpc import ALICE, BOB, simulate
from tacit.dp import (
    ADD_REMOVE_RECORD,
    DiscreteGaussian,
    Repeated,
    epsilon,
    event_from_record,
    event_to_record,
)
from tacit.errors import ConfigError
from tacit.ring import Prg
from tacit.training import noise
from tacit.training.noise import (
    COIN_BITS,
    DISTANCE,
    LARGEST,
    coarse_of,
    coins_name,
    cut_in_steps,
    draw_coins,
    draw_noise,
    sample_coarse,
    share_noise,
    thresholds,
)
from tacit.training.privacy import Measures, Privacy, plan_privacy
from transcript.test_transcripts import SAMPLES, assert_carries_nothing

WHOLE = 1 << COIN_BITS
UNIT = 2.0**-16


def gaussian(sigma2, reach):
    """Give the probabilities of a discrete Gaussian from -reach to reach."""
    odds = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * sigma2))
    return odds / odds.sum()


def on_shares(mine, theirs, *, step=5, corrupt=None):
    """Sample with chosen coins, of 2^-16 each."""

    def program(ops):
        return sample_coarse(ops, (ALICE, BOB), tuple(mine.shape), step=step)

    inputs = {
        owner: {coins_name(owner): coins.double() * UNIT}
        for owner, coins in ((ALICE, mine), (BOB, theirs))
    }
    return simulate(program, inputs=inputs, corrupt=corrupt)


def test_thresholds_are_those_of_a_discrete_gaussian_within_what_is_stated():
    edges = np.array([0, *thresholds(), WHOLE], dtype=object)
    drawn = np.array([float(Fraction(int(one), WHOLE)) for one in np.diff(edges)])
    true = gaussian(noise.COARSE, 3 * LARGEST)
    wide = np.zeros_like(true)
    wide[2 * LARGEST : -2 * LARGEST] = drawn
    assert np.abs(wide - true).sum() / 2 < DISTANCE / 2
    assert len(thresholds()) == 64


@pytest.mark.parametrize(("fine", "is_smooth"), [(noise.FINEST, True), (Fraction(1), False)])
def test_a_fine_part_fills_the_gaps_between_steps_and_a_finer_one_would_not(fine, is_smooth):
    """What one who knows its own fine part faces is a discrete Gaussian of the stated variance."""
    step = 6
    a2 = float(fine) * step**2
    s2 = noise.COARSE * step**2 + a2
    reach = 9 * LARGEST
    coarse, small = np.zeros(2 * reach + 1), gaussian(a2, reach)
    coarse[reach - LARGEST * step : reach + LARGEST * step + 1 : step] = gaussian(16, LARGEST)
    found = np.convolve(coarse, small)[reach:-reach]
    off = np.abs(found - gaussian(s2, reach)).sum() / 2
    assert (off < DISTANCE) == is_smooth
    t2 = noise.COARSE * a2 / s2
    assert off < 4 * exp(-2 * pi**2 * t2) + 1e-14


def test_shares_give_what_the_sum_of_coins_stands_for_at_every_edge_and_around_the_turn():
    edges = torch.tensor([0, *thresholds(), WHOLE - 1])
    wanted = torch.cat([edges, (edges - 1) % WHOLE, (edges + 1) % WHOLE]).repeat(3)
    mine = torch.cat(
        [torch.zeros(len(wanted) // 3), torch.full((len(wanted) // 3,), float(WHOLE - 1))]
    ).long()
    mine = torch.cat([mine, draw_coins((len(wanted) - len(mine),), Prg(bytes(16)))])
    theirs = (wanted - mine) % WHOLE
    run = on_shares(mine, theirs)
    units = sum(run.values[name].words for name in (ALICE, BOB))
    assert torch.equal(units, coarse_of(wanted, step=5))
    assert units.min() == -LARGEST * 5
    assert units.max() == LARGEST * 5


@pytest.mark.parametrize("corrupt", [ALICE, BOB])
def test_neither_party_receives_anything_about_the_other_coins(corrupt):
    coins = torch.full((SAMPLES,), 12345678901234)
    assert_carries_nothing(on_shares(coins, coins + 99, corrupt=corrupt), corrupt)


def faced_variance(known, noise, whole=16.0 + 2.5 + 2.5):
    """Return what is left of a unit of variance once a party has taken away its best guess."""
    # Bins of what it knows, and the mean of the noise in each: any guess that its coins allow.
    order = np.argsort(known, kind="stable")
    bins = np.array_split(noise[order], 256)
    return float(np.mean([one.var() for one in bins])) / whole


COINS = {
    "as it should": lambda count: draw_coins((count,), Prg(bytes(16))),
    "all alike": lambda count: torch.full((count,), 1 << 51),
    "only two": lambda count: (torch.arange(count) % 2) * (WHOLE - 1),
    "in order": lambda count: torch.arange(count) * (WHOLE // count),
}


@pytest.mark.parametrize("choice", COINS)
def test_whatever_coins_a_party_brings_it_faces_the_whole_coarse_part(choice):
    """Attack by P0 alone, and by P1 alone, who are alike: guess the noise from one's own coins."""
    count = 1 << 17
    mine, theirs = COINS[choice](count), draw_coins((count,), Prg(bytes([1]) * 16))
    noise = coarse_of(mine + theirs, step=1).double().numpy()
    # Of 2^17 draws the variance is off by 0.4 %, and bins take away 256 of them: 0.2 %.
    assert faced_variance(mine.numpy(), noise, whole=16.0) > 0.97
    # Without the modulus the same guess would have found most of it.
    plain = (mine + theirs) // 2
    told = faced_variance(mine.numpy(), coarse_of(plain, step=1).double().numpy(), whole=16.0)
    assert told < 0.6


def facts(**changes):
    given = {
        "makers": ("p0", "p1", "owner", "dealer"),
        "computing": ("p0", "p1"),
        "roundings": ((1.0, 10),),
        "weights": 20_000,
        "steps": 6,
        "looks": 0,
        "rows": 1000,
        "answers": 1,
        "owners": 3,
        "frac_bits": 16,
        "protocol": "sealed",
    }
    return Measures(**{**given, **changes})


def test_every_party_faces_the_variance_that_the_claim_rests_on_and_less_is_added_in_all():
    joined, parts = (
        plan_privacy(Privacy(epsilon=2.0, delta=1e-4, noise=kind), facts())  # type: ignore[arg-type]
        for kind in ("joint", "parts")
    )
    plan = joined.steps
    assert plan.makers == ("p0", "p1")
    assert all(plan.unknown_to(one) >= plan.wanted for one in ("p0", "p1", "owner", "dealer"))
    assert plan.whole < Fraction(115, 100) * plan.wanted < parts.steps.whole
    # Drawn: what p0 faces, who takes its own part away.
    coins = draw_coins(plan.shape, Prg(bytes(16))) + draw_coins(plan.shape, Prg(bytes([3]) * 16))
    left = coarse_of(coins, step=plan.step).double() + draw_noise(plan, Prg(bytes([4]) * 16)) / UNIT
    # Of 20,000 draws the variance is off by 1 %: six times that happens once in 10^9.
    assert float(left.var()) == pytest.approx(float(plan.wanted), rel=0.06)
    assert joined.claim.assumptions[0].startswith("every party follows the protocol, and no two")
    assert joined.claim.epsilon == pytest.approx(parts.claim.epsilon, rel=1e-3)


def test_a_step_that_is_too_large_leaves_gaps_and_a_plan_never_has_one():
    for wanted in (19, 1000, 12345, 10**9 + 7, 10**13):
        step, each = cut_in_steps(Fraction(wanted))
        assert noise.COARSE * step**2 + each >= wanted
        assert each >= noise.FINEST * step**2
    with pytest.raises(ConfigError, match="too little"):
        cut_in_steps(Fraction(18))


def test_what_the_sampler_is_off_by_is_taken_out_of_delta():
    noise = share_noise(
        ("a", "b"), multiplier=4.0, l2_sensitivity=1.0, frac_bits=16, shape=(1,), is_joint=True
    )
    exact = DiscreteGaussian(
        sigma2=noise.wanted, l2_sensitivity=2.0**16, dimension=1, relation=ADD_REMOVE_RECORD
    )
    found = []
    for distance in (0.0, 1e-8, 1e-7, 1e-4):
        event = DiscreteGaussian(
            sigma2=exact.sigma2,
            l2_sensitivity=exact.l2_sensitivity,
            dimension=1,
            relation=ADD_REMOVE_RECORD,
            distance=distance,
        )
        assert event_from_record(event_to_record(event)) == event
        found.append(epsilon([Repeated(event=event, count=3)], delta=1e-5).epsilon)
    assert found[0] < found[1] < found[2]
    assert found[3] is None  # of δ nothing is left: no guarantee
    # A record from before there was a distance is still read.
    old = {name: one for name, one in event_to_record(exact).items() if name != "distance"}
    assert event_from_record(old) == exact


def test_a_large_model_is_refused_where_the_sampler_is_not_fine_enough():
    with pytest.raises(ConfigError, match="no noise"):
        plan_privacy(Privacy(epsilon=2.0, delta=1e-9, noise="joint"), facts(weights=10**8))
