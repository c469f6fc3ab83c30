"""Checked products: the right one passes, and nothing else does, whatever the error."""

import pytest
import torch

from tacit.errors import DataError
from tacit.ring import FixedCheck, Prg, is_product, matmul

KEY = bytes(range(16))


def factors(prg, m=6, k=5, n=7):
    return prg.words((m, k)), prg.words((k, n))


def errors(prg):
    """Yield errors of every size and shape that could slip through."""
    for power in range(64):
        value = torch.tensor(1, dtype=torch.int64) << power
        single = torch.zeros(6, 7, dtype=torch.int64)
        single[2, 3] = value
        row = torch.zeros(6, 7, dtype=torch.int64)
        row[4] = value
        pair = torch.zeros(6, 7, dtype=torch.int64)
        pair[1, 2], pair[1, 5] = value, -value
        rank_one = (prg.words((6, 1)) | 1) * (value * prg.bits((1, 7)).to(torch.int64))
        rank_one[0, 0] = value
        yield from (single, -single, row, pair, rank_one)


def test_a_right_product_is_accepted_in_every_shape():
    prg = Prg(KEY)
    for left, right in (
        factors(prg),
        (prg.words((3, 2, 4)), prg.words((4, 5))),
        (prg.words((3, 2, 4)), prg.words((3, 4, 5))),
        (prg.words((1, 1)), prg.words((1, 1))),
    ):
        assert is_product(left, right, matmul(left, right), prg=prg)


def test_no_planted_error_passes():
    prg = Prg(KEY)
    left, right = factors(prg)
    true = matmul(left, right)
    fixed_left = prg.words((6, 5))
    fixed_true = matmul(fixed_left, right)
    for _ in range(4):
        for error in errors(prg):
            # 2,560 lies; one passes with a probability of 3e-9 in all.
            assert not is_product(left, right, true + error, prg=prg)
            check = FixedCheck(right, prg=prg)
            assert check.accepts(fixed_left, fixed_true)
            assert not check.accepts(fixed_left, fixed_true + error)


@pytest.mark.parametrize("draw", ["words", "bits"])
def test_one_column_misses_every_second_error_of_the_highest_bit(draw):
    prg = Prg(KEY)
    missed = 0
    for _ in range(2000):
        column = getattr(prg, draw)((7, 1)).to(torch.int64)
        error = torch.zeros(1, 7, dtype=torch.int64)
        error[0, 3] = torch.iinfo(torch.int64).min
        missed += int(bool((matmul(error, column) == 0).all()))
    assert 850 < missed < 1150  # half; 6.7 deviations: 1e-11


def test_a_check_that_has_failed_refuses_everything():
    prg = Prg(KEY)
    left, right = factors(prg)
    true = matmul(left, right)
    check = FixedCheck(right, prg=prg)
    assert check.accepts(left, true)
    assert not check.accepts(left, true + 1)
    assert not check.accepts(left, true)
    assert "columns=40" in repr(check)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda true: true[:-1],
        lambda true: true.to(torch.int32),
        lambda true: true.double(),
        lambda true: true.T,
        lambda true: true[None],
    ],
)
def test_what_has_another_shape_or_type_is_no_product(spoil):
    prg = Prg(KEY)
    left, right = factors(prg)
    claimed = spoil(matmul(left, right))
    assert not is_product(left, right, claimed, prg=prg)
    assert not FixedCheck(right, prg=prg).accepts(left, claimed)


def test_nonsense_is_refused():
    prg = Prg(KEY)
    left, right = factors(prg)
    with pytest.raises(DataError, match="at least 1"):
        is_product(left, right, matmul(left, right), prg=prg, soundness_bits=0)
    with pytest.raises(DataError, match="a matrix"):
        FixedCheck(prg.words((2, 3, 4)), prg=prg)
