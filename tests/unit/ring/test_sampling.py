import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from tacit.errors import RangeError
from tacit.ring import Prg, discrete_gaussian, discrete_laplace
from tacit.ring.sampling import Wide, below_wide, square

KEY = bytes(range(16))
SAMPLES = 200_000
FALSE_ALARM = 1e-6  # of each goodness-of-fit test, had the key been drawn at random


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(5, 2), Fraction(20)])
def test_laplace_samples_fit_the_exact_distribution(scale):
    samples = discrete_laplace(Prg(KEY), SAMPLES, scale=scale)
    check_fit(samples, lambda y: math.exp(-abs(y) / scale), reach=math.ceil(40 * scale) + 2)


@pytest.mark.parametrize(
    "sigma2", [Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(7, 3), Fraction(100)]
)
def test_gaussian_samples_fit_the_exact_distribution(sigma2):
    samples = discrete_gaussian(Prg(KEY), SAMPLES, sigma2=sigma2)
    reach = math.ceil(12 * math.sqrt(sigma2)) + 2
    check_fit(samples, lambda y: math.exp(-y * y / (2 * sigma2)), reach=reach)


def test_gaussian_of_large_variance_needs_two_limbs_and_still_fits():
    # Binned by a tenth of σ: within a bin the density is flat to 0.5 %, and the bins are summed.
    sigma2 = Fraction(2**40)
    samples = discrete_gaussian(Prg(KEY), SAMPLES, sigma2=sigma2)
    width = 2**20 // 10

    def bin_weight(index: int) -> float:
        low, high = index * width - 0.5, (index + 1) * width - 0.5
        return math.erf(high / 2**20.5) - math.erf(low / 2**20.5)

    check_fit(samples // width, bin_weight, reach=120)


def test_shape_and_type_are_kept():
    assert discrete_gaussian(Prg(KEY), (3, 5), sigma2=Fraction(4)).shape == (3, 5)
    assert discrete_laplace(Prg(KEY), (0, 2), scale=Fraction(4)).shape == (0, 2)
    assert discrete_laplace(Prg(KEY), 7, scale=Fraction(4)).dtype == torch.int64


def test_the_same_key_draws_the_same_noise():
    first = discrete_gaussian(Prg(KEY), 1000, sigma2=Fraction(9))
    assert torch.equal(first, discrete_gaussian(Prg(KEY), 1000, sigma2=Fraction(9)))


@pytest.mark.parametrize("sigma2", [Fraction(0), Fraction(-1), Fraction(2**51), Fraction(0.1)])
def test_a_variance_outside_exact_arithmetic_is_refused(sigma2):
    with pytest.raises(RangeError, match=str(sigma2)):
        discrete_gaussian(Prg(KEY), 1, sigma2=sigma2)


@pytest.mark.parametrize("scale", [Fraction(0), Fraction(-1), Fraction(2**41), Fraction(0.1)])
def test_a_scale_outside_exact_arithmetic_is_refused(scale):
    with pytest.raises(RangeError, match=str(scale)):
        discrete_laplace(Prg(KEY), 1, scale=scale)


def check_fit(samples, weight, *, reach):
    """Test counts against weights by chi-square; rare values at both ends are counted together."""
    support = range(-reach, reach + 1)
    weights = [weight(y) for y in support]
    total = sum(weights)
    counts = torch.bincount((samples + reach).clamp(0, 2 * reach), minlength=len(weights)).tolist()
    statistic, cells, rare_count, rare_expected = 0.0, 0, 0, 0.0
    for count, mass in zip(counts, weights, strict=True):
        expected = samples.numel() * mass / total
        if expected < 20:
            rare_count, rare_expected = rare_count + count, rare_expected + expected
            continue
        statistic += (count - expected) ** 2 / expected
        cells += 1
    if rare_expected >= 5:
        statistic += (rare_count - rare_expected) ** 2 / rare_expected
        cells += 1
    assert statistic < chi2.isf(FALSE_ALARM, cells - 1)


LARGE = st.integers(0, 2**119)


def wide(value: int) -> Wide:
    return Wide(torch.tensor([value >> 60]), torch.tensor([value % 2**60]))


def number(value: Wide) -> int:
    return (value.high.item() << 60) + value.low.item()


@given(LARGE, LARGE)
def test_wide_integers_compare_and_subtract_as_python_integers(left, right):
    left, right = max(left, right), min(left, right)
    assert number(wide(left).minus(right)) == left - right
    assert wide(right).is_below(wide(left)).item() == (right < left)
    assert wide(left).is_below_integer(right).item() == (left < right)


@given(st.integers(-(2**60) + 1, 2**60 - 1))
def test_wide_squares_are_exact(value):
    assert number(square(torch.tensor([value]))) == value * value


@pytest.mark.parametrize("bound", [1, 3, 2**60, 2**60 + 1, 3 * 2**61, 2**100 + 1])
def test_wide_draws_are_uniform_below_their_bound(bound):
    drawn = below_wide(Prg(KEY), bound, 12_000)
    values = [(h << 60) + w for h, w in zip(drawn.high.tolist(), drawn.low.tolist(), strict=True)]
    assert all(0 <= value < bound for value in values)
    bins = min(bound, 6)
    counts = [0] * bins
    for value in values:
        counts[value * bins // bound] += 1
    expected = len(values) / bins
    statistic = sum((count - expected) ** 2 for count in counts) / expected
    assert bins == 1 or statistic < chi2.isf(FALSE_ALARM, bins - 1)
