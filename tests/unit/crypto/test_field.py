import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.crypto.field import PRIME, draw_elements, multiply, multiply_small_add, reduce
from tacit.errors import InputError

EDGES = [0, 1, 2, 2**29, 2**30, 2**31 - 1, 2**31, 2**32, 2**60, PRIME - 2, PRIME - 1]
elements = st.sampled_from(EDGES) | st.integers(0, PRIME - 1)


def words(values):
    return np.array(values, np.uint64)


@given(st.lists(elements, min_size=1, max_size=20), elements)
def test_products_equal_those_of_python_integers(values, factor):
    expected = [value * factor % PRIME for value in values]
    assert multiply(words(values), factor).tolist() == expected


@given(st.integers(0, 2**64 - 1) | st.sampled_from([PRIME, 2 * PRIME, 8 * PRIME, 2**64 - 1]))
def test_every_word_is_reduced(value):
    assert reduce(words([value])).tolist() == [value % PRIME]


@given(
    elements | st.integers(PRIME, PRIME + 7),
    st.integers(0, 2**28 - 1) | st.just(2**28 - 1),
    elements,
)
def test_the_small_product_is_right_and_can_be_repeated(value, factor, term):
    result = multiply_small_add(words([value]), words([factor]), words([term]))
    assert result[0] <= PRIME + 7
    assert int(result[0]) % PRIME == (value * factor + term) % PRIME


def test_the_word_that_is_no_element_is_drawn_again():
    # All ones is 2^61 - 1 after masking, which would make zero twice as likely.
    answers = iter([b"\xff" * 16, b"\xff" * 8 + bytes(8), b"\x05" + bytes(7)])
    assert draw_elements(2, lambda count: next(answers)).tolist() == [5, 0]


def test_every_bit_of_an_element_is_used():
    drawn = draw_elements(1, lambda count: b"\xfe" + b"\xff" * 7)
    assert drawn.tolist() == [PRIME - 1]


def test_a_source_that_returns_too_little_is_refused():
    with pytest.raises(InputError, match="for 16 bytes, got 15"):
        draw_elements(2, lambda count: bytes(15))
