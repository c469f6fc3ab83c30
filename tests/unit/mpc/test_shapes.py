import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import InputError
from tacit.mpc import shapes

sizes = st.lists(st.integers(1, 3), max_size=4).map(tuple)


def agrees(ours, theirs):
    """Both give the same shape, or both refuse."""
    try:
        wanted = tuple(theirs().shape)
    except (RuntimeError, IndexError):
        with pytest.raises(InputError):
            ours()
        return
    assert ours() == wanted


@given(x=sizes, y=sizes)
def test_broadcasting_is_that_of_torch(x, y):
    agrees(lambda: shapes.broadcast(x, y), lambda: torch.zeros(x) + torch.zeros(y))


@given(x=sizes, y=sizes)
def test_products_of_matrices_are_those_of_torch(x, y):
    if min(len(x), len(y)) < 2:  # torch also takes vectors; we ask for matrices
        with pytest.raises(InputError):
            shapes.matmul(x, y)
        return
    agrees(lambda: shapes.matmul(x, y), lambda: torch.zeros(x) @ torch.zeros(y))


@given(x=sizes, dim=st.integers(-5, 4))
def test_sums_are_those_of_torch(x, dim):
    if x == ():
        return
    agrees(lambda: shapes.reduce(x, dim), lambda: torch.zeros(x).sum(dim=dim))


@given(x=sizes, first=st.integers(-5, 4), second=st.integers(-5, 4))
def test_transposes_are_those_of_torch(x, first, second):
    if x == ():
        return
    agrees(
        lambda: shapes.transpose(x, first, second),
        lambda: torch.zeros(x).transpose(first, second),
    )


@given(x=sizes, wanted=st.lists(st.sampled_from([-1, 1, 2, 3, 6]), max_size=4).map(tuple))
def test_reshapes_are_those_of_torch(x, wanted):
    agrees(lambda: shapes.reshape(x, wanted), lambda: torch.zeros(x).reshape(wanted))
