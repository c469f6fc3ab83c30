"""The tests of transcripts rest on this: what is not uniform is called so, and what is, is not."""

import pytest
import torch

from support.crypto import complaints
from tacit.ring import Prg

FEW = 256
"""As many words as the shortest messages have that transcripts are judged by."""


def drawn(count, seed=1):
    return Prg(bytes([seed]) * 16).words((count, 1))


def bit_of(number):
    return torch.tensor(1) << number


@pytest.mark.parametrize("bit", [0, 31, 62, 63])
def test_one_bit_that_is_the_same_in_a_few_hundred_words_is_noticed(bit):
    """The bound on the balance of bits was once so generous that no bit could reach it."""
    words = drawn(FEW)
    assert complaints(words) == []
    assert "a bit is not balanced" in complaints(words & ~bit_of(bit))
    assert "a bit is not balanced" in complaints(words | bit_of(bit))


def test_a_bit_that_is_set_three_times_in_four_is_noticed():
    words = drawn(4 * FEW)
    assert complaints(words) == []
    assert "a bit is not balanced" in complaints(words | (drawn(4 * FEW, seed=2) & 1))


def test_words_that_are_uniform_are_never_called_otherwise():
    assert not any(complaints(drawn(count, seed)) for count in (1, 7, 64, 300) for seed in range(9))
