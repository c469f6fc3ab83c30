import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from tacit.ring import Prg
from tacit.ring.sampling import Wide, below_wide, square

KEY = bytes(range(16))
FALSE_ALARM = 1e-6  # of each statistical test, had the key been drawn at random

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
