"""Rows that are out of range are counted, and in few rounds."""

import pytest
import torch

from support.mpc import ALICE, BOB, simulate
from tacit.mpc.functions.attention import RangeWatch


def counted(means, *, is_counted=True, width=16):
    """Normalise rows of these mean squares, of which one is the largest that is right."""

    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(len(means), width), bound=16.0)
        x = ops.mul(x, ops.input("one", owner=BOB, shape=(1, 1), bound=1.0))
        watch = RangeWatch()
        y = ops.norm_within(x, eps=1e-9, largest_mean=1.0, centred=False, watch=watch)
        counts = ops.out_of_range(watch) if is_counted else None
        ops.open(y, to=(ALICE,), what="y", why="test")
        return ops.open(counts, to=(ALICE,), what="counts", why="test") if is_counted else None

    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(width // 2)
    x = torch.stack([mean**0.5 * signs for mean in means])
    inputs = {ALICE: {"x": x}, BOB: {"one": torch.ones(1, 1, dtype=torch.float64)}}
    run = simulate(program, inputs=inputs)
    assert run.metered == run.plan.cost
    return run


@pytest.mark.parametrize(
    ("means", "wrong"),
    [((0.5, 0.75, 2.0**-8), 0), ((0.5, 0.0, 0.75), 1), ((0.0, 0.0, 2.0**-26), 3)],
)
def test_rows_that_are_too_short_are_counted_and_no_others(means, wrong):
    assert counted(means).values[ALICE].tolist() == [wrong, 0.0]


@pytest.mark.parametrize("mean", [1.5, 4.0, 200.0])
def test_a_row_that_is_too_long_is_counted(mean):
    """It may have wrapped around, and then count as too short as well."""
    assert counted((0.5, mean)).values[ALICE][0] in (1.0, 2.0)


@pytest.mark.parametrize("width", [16, 24, 32, 60, 64, 126])
def test_a_row_counts_from_the_largest_length_on_whatever_its_width(width):
    run = counted((0.5, 0.85, 2.0**-8), width=width)
    assert run.values[ALICE].tolist() == [0.0, 0.0]
    assert counted((0.5, 1.15), width=width).values[ALICE][0] in (1.0, 2.0)


def test_counting_takes_three_rounds_and_the_count_is_opened_beside_the_rest():
    with_count, without = (
        counted((0.5, 0.75), is_counted=one).plan.cost.online_rounds for one in (True, False)
    )
    assert with_count - without == 3
