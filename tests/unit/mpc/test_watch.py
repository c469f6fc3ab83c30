"""Rows that are out of range are counted, and in few rounds."""

import pytest

from support.mpc import ALICE
from support.operations import watched_rows


@pytest.mark.parametrize(
    ("means", "wrong"),
    [((0.5, 0.75, 2.0**-8), 0), ((0.5, 0.0, 0.75), 1), ((0.0, 0.0, 2.0**-26), 3)],
)
def test_rows_that_are_too_short_are_counted_and_no_others(means, wrong):
    assert watched_rows(means).values[ALICE][1].tolist() == [wrong, 0.0]


@pytest.mark.parametrize("mean", [1.5, 4.0, 200.0])
def test_a_row_that_is_too_long_is_counted(mean):
    """It may have wrapped around, and then count as too short as well."""
    assert watched_rows((0.5, mean)).values[ALICE][1][0] in (1.0, 2.0)


@pytest.mark.parametrize("width", [16, 24, 32, 60, 64, 126])
def test_a_row_counts_from_the_largest_length_on_whatever_its_width(width):
    run = watched_rows((0.5, 0.85, 2.0**-8), width=width)
    assert run.values[ALICE][1].tolist() == [0.0, 0.0]
    assert watched_rows((0.5, 1.15), width=width).values[ALICE][1][0] in (1.0, 2.0)


def test_counting_takes_three_rounds_and_the_count_is_opened_beside_the_rest():
    with_count, without = (
        watched_rows((0.5, 0.75), is_counted=one).plan.cost.online_rounds for one in (True, False)
    )
    assert with_count - without == 3
