"""Piecewise polynomials in the clear, and how large they can be."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import InputError
from tacit.mpc.functions.pieces import largest_on, pieces_of

numbers = st.floats(-4, 4).map(lambda x: round(x, 3))


@given(coefficients=st.lists(numbers, min_size=1, max_size=5), ends=st.tuples(numbers, numbers))
def test_no_value_on_an_interval_is_larger_than_said(coefficients, ends):
    low, high = sorted(ends)
    values = np.polynomial.Polynomial(coefficients)(np.linspace(low, high, 201))
    assert np.abs(values).max() <= largest_on(tuple(coefficients), low, high) * (1 + 1e-9) + 1e-9


def test_a_breakpoint_belongs_to_the_piece_above_it():
    pieces = pieces_of((0.0, 1.0), ((-1.0,), (0.0, 1.0), (5.0,)))
    x = torch.tensor([-0.5, 0.0, 0.5, 1.0, 9.0], dtype=torch.float64)
    assert pieces.plain(x).tolist() == [-1.0, 0.0, 0.5, 5.0, 5.0]


def test_pieces_that_no_argument_reaches_do_not_count():
    pieces = pieces_of((0.0, 10.0), ((0.0,), (0.0, 1.0), (0.0, 1000.0)))
    assert pieces.largest(4.0) == 4.0


@pytest.mark.parametrize(
    ("breaks", "polynomials", "words"),
    [
        ((), ((1.0,),), "breakpoint"),
        ((0.0,), ((1.0,),), "one polynomial more"),
        ((1.0, 1.0), ((1.0,),) * 3, "increase"),
        ((0.0,), ((1.0,), (float("nan"),)), "finite"),
        ((0.0,), ((1.0,), ()), "one at least"),
    ],
)
def test_pieces_that_make_no_sense_are_refused(breaks, polynomials, words):
    with pytest.raises(InputError, match=words):
        pieces_of(breaks, polynomials)
