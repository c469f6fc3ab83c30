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
def test_the_sum_of_two_cut_shares_is_the_value_if_it_is_small(size, data):
    limit = 1 << (8 * size - 1)
    values = data.draw(st.lists(st.integers(-limit, limit - 1), min_size=1, max_size=9))
    mask = torch.tensor(data.draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=9)))
    mask = mask[: len(values)]
    shares = (torch.tensor(values) - mask, mask)
    left, right = (narrow.uncut(narrow.cut(share, size), size) for share in shares)
    assert narrow.sign_extend(left + right, size).tolist() == values


@given(bound=st.integers(1, 2**62 - 1))
def test_every_value_within_the_bound_fits_the_bytes(bound):
    size = narrow.size_of(Spec(shape=(1,), frac_bits=0, largest=bound))
    assert bound < 1 << (8 * size - 1)
    assert size == 4 or bound >= 1 << (8 * (size - 1) - 1), "one byte less would not do"


@given(words=WORDS, count=st.integers(1, 64))
def test_the_lowest_bits_survive_the_journey_in_as_few_bytes_as_they_fill(words, count):
    sent = torch.tensor(words)
    octets = narrow.cut_bits(sent, count)
    assert len(octets) == -(-len(words) * count // 8)
    low = (1 << count) - 1
    received = narrow.uncut_bits(octets, sent.shape, count).tolist()
    assert [word & (2**64 - 1) for word in received] == [word & low for word in words]


def test_words_that_are_half_full_are_sent_as_they_are():
    assert [narrow.bits_size(10, count) for count in (1, 7, 32, 33, 64, 640)] == [
        2,
        9,
        40,
        80,
        80,
        80,
    ]


def test_seven_bytes_travel_as_eight():
    assert [narrow.size_for(bits) for bits in (1, 8, 9, 40, 48, 49, 56, 57, 64)] == [
        *(1, 1, 2, 5, 6),
        *(8, 8, 8, 8),
    ]
