import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import DataError, RangeError
from tacit.ring import decode, encode

FRAC_BITS = st.integers(0, 62)
WORDS = st.integers(-(2**63), 2**63 - 1)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def nearest_even(value: Fraction) -> int:
    return round(value)  # Python rounds a Fraction to the nearest integer, ties to even


@given(FINITE, FRAC_BITS)
def test_encode_rounds_to_the_nearest_word_or_refuses(value, frac_bits):
    exact = Fraction(value) * 2**frac_bits
    if abs(exact) < 2**63:
        assert encode(value, frac_bits=frac_bits).item() == nearest_even(exact)
    else:
        with pytest.raises(RangeError):
            encode(value, frac_bits=frac_bits)


@given(WORDS, FRAC_BITS)
def test_decode_is_the_nearest_double(word, frac_bits):
    decoded = decode(torch.tensor([word]), frac_bits=frac_bits).item()
    assert decoded == word / 2**frac_bits  # Python divides integers with one correct rounding


@given(st.integers(-(2**53), 2**53), FRAC_BITS)
def test_encode_undoes_decode_for_words_that_a_double_holds(word, frac_bits):
    words = torch.tensor([word])
    assert torch.equal(encode(decode(words, frac_bits=frac_bits), frac_bits=frac_bits), words)


@given(WORDS, FRAC_BITS)
def test_integers_are_encoded_without_passing_through_a_float(value, frac_bits):
    if abs(value) < 2 ** (63 - frac_bits):
        assert encode(value, frac_bits=frac_bits).item() == value * 2**frac_bits
    else:
        with pytest.raises(RangeError):
            encode(value, frac_bits=frac_bits)


@pytest.mark.parametrize("frac_bits", [0, 1, 16, 52, 62])
def test_the_edges_of_the_range_are_where_they_are_said_to_be(frac_bits):
    limit = 2.0 ** (63 - frac_bits)
    inside = math.nextafter(limit, 0)
    words = encode(np.array([inside, -inside]), frac_bits=frac_bits)
    assert words.tolist() == [2**63 - 1024, -(2**63) + 1024]
    for outside in (limit, -limit):
        with pytest.raises(RangeError):
            encode(outside, frac_bits=frac_bits)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_float_type_is_taken_as_it_is(dtype):
    values = torch.tensor([0.5, -1.25, 3.0], dtype=dtype, requires_grad=True)
    assert encode(values, frac_bits=8).tolist() == [128, -320, 768]


def test_arrays_are_taken_read_only_and_strided():
    values = np.arange(6, dtype=np.float32)[::-2]
    values.flags.writeable = False
    assert encode(values, frac_bits=1).tolist() == [10, 6, 2]


def test_a_refusal_counts_the_values_and_does_not_show_them():
    values = torch.tensor([1.0, float("nan"), float("inf"), -123456789.0e20])
    with pytest.raises(RangeError, match="3 of 4") as refusal:
        encode(values, frac_bits=16)
    assert "2^47" in str(refusal.value)
    for shown in ("nan", "inf ", "123456", "1.2"):
        assert shown not in str(refusal.value)


def test_shape_and_emptiness_survive():
    assert encode(np.zeros((2, 0, 3)), frac_bits=16).shape == (2, 0, 3)
    assert decode(torch.zeros((4, 1), dtype=torch.int64), frac_bits=16).shape == (4, 1)


@pytest.mark.parametrize("frac_bits", [-1, 63])
def test_impossible_precision_is_refused(frac_bits):
    with pytest.raises(RangeError, match=str(frac_bits)):
        encode(1.0, frac_bits=frac_bits)


def test_wrong_types_are_refused():
    with pytest.raises(DataError, match="complex"):
        encode(torch.tensor([1j]), frac_bits=8)
    with pytest.raises(DataError, match="uint64"):
        encode(np.array([1], dtype=np.uint64), frac_bits=8)
    with pytest.raises(DataError, match="int64"):
        decode(torch.tensor([1.0]), frac_bits=8)
