"""Numbers and subsets come out of the bits as they went in."""

from itertools import combinations
from math import comb

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import DataError
from tacit.split.packing import (
    bits_below,
    pack_numbers,
    pack_subsets,
    packed_bytes,
    subset_bits,
    unpack_numbers,
    unpack_subsets,
)


@given(bits=st.integers(1, 62), data=st.data())
def test_numbers_survive(bits, data):
    numbers = data.draw(st.lists(st.integers(0, 2**bits - 1), max_size=20))
    packed = pack_numbers(torch.tensor(numbers, dtype=torch.int64), bits)
    assert packed.numel() == packed_bytes(len(numbers), bits)
    assert unpack_numbers(packed, len(numbers), bits).tolist() == numbers


@pytest.mark.parametrize(("count", "bits"), [(1, 0), (2, 1), (3, 2), (128, 7), (129, 8), (300, 9)])
def test_bits_are_the_logarithm_rounded_up(count, bits):
    assert bits_below(count) == bits


def test_every_subset_has_its_own_rank_and_comes_back():
    subsets = torch.tensor(list(combinations(range(7), 3)))
    packed = pack_subsets(subsets, 7)
    assert torch.equal(unpack_subsets(packed, len(subsets), 7, 3), subsets)
    ranks = unpack_numbers(packed, len(subsets), subset_bits(7, 3)).tolist()
    assert sorted(ranks) == list(range(comb(7, 3)))


@given(width=st.integers(1, 400), data=st.data())
def test_subsets_survive_also_where_ranks_pass_64_bits(width, data):
    k = data.draw(st.integers(1, min(width, 40)))
    row = sorted(data.draw(st.sets(st.integers(0, width - 1), min_size=k, max_size=k)))
    packed = pack_subsets(torch.tensor([row, row]), width)
    assert packed.numel() == packed_bytes(2, subset_bits(width, k))
    assert unpack_subsets(packed, 2, width, k).tolist() == [row, row]


def test_a_rank_beyond_the_last_subset_is_refused():
    with pytest.raises(DataError, match="beyond the last"):
        unpack_subsets(torch.tensor([255], dtype=torch.uint8), 1, 7, 3)
    with pytest.raises(DataError, match="wanted 1 packed bytes"):
        unpack_numbers(torch.empty(0, dtype=torch.uint8), 2, 3)
