"""Words in fewer bytes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.mpc import narrow
from tacit.mpc.share import Spec

WORDS = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=9)


@pytest.mark.parametrize("size", range(4, 9))
@given(words=WORDS)
def test_the_lowest_bytes_survive_the_journey(size, words):
    sent = torch.tensor(words)
    octets = narrow.cut(sent, size)
    assert (tuple(octets.shape), octets.dtype) == narrow.wire(len(words), size)
    low = (1 << (8 * size)) - 1
    assert [word & low for word in narrow.uncut(octets, size).tolist()] == [w & low for w in words]


@pytest.mark.parametrize("size", range(4, 9))
@given(data=st.data())
def test_the_sum_of_two_cut_halves_is_the_value_if_it_is_small(size, data):
    limit = 1 << (8 * size - 1)
    values = data.draw(st.lists(st.integers(-limit, limit - 1), min_size=1, max_size=9))
    mask = torch.tensor(data.draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=9)))
    mask = mask[: len(values)]
    halves = (torch.tensor(values) - mask, mask)
    left, right = (narrow.uncut(narrow.cut(half, size), size) for half in halves)
    assert narrow.settle(left + right, size).tolist() == values


@given(bound=st.integers(1, 2**62 - 1))
def test_every_value_within_the_bound_fits_the_bytes(bound):
    size = narrow.size_of(Spec(shape=(1,), frac_bits=0, largest=bound))
    assert bound < 1 << (8 * size - 1)
    assert size == 4 or bound >= 1 << (8 * (size - 1) - 1), "one byte less would not do"
