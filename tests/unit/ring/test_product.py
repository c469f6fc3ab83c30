import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import DataError
from tacit.ring import Factor, Prg, accumulate, matmul, prepare

EXTENT = st.integers(1, 5)
KEY = bytes(range(16))
EDGES = torch.tensor([-(2**63), 2**63 - 1, -1, 0, 1, 2**32, -(2**31)])


def exact(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Multiply two matrices with Python integers and reduce modulo 2^64."""
    columns = list(zip(*right.tolist(), strict=True))
    rows = [
        [sum(a * b for a, b in zip(row, column, strict=True)) for column in columns]
        for row in left.tolist()
    ]
    return torch.tensor([[(v + 2**63) % 2**64 - 2**63 for v in row] for row in rows])


def words(draw: st.DataObject, *shape: int) -> torch.Tensor:
    """Draw words with the edges of the range well represented."""
    prg = Prg(draw.draw(st.binary(min_size=16, max_size=16)))
    edges = EDGES[prg.below(len(EDGES), shape)]
    return torch.where(prg.bits(shape).bool(), edges, prg.words(shape))


@given(st.data(), EXTENT, EXTENT, EXTENT)
def test_matrices_multiply_as_python_integers_do(data, m, k, n):
    left, right = words(data, m, k), words(data, k, n)
    expected = exact(left, right)
    assert torch.equal(matmul(left, right), expected)
    assert torch.equal(matmul(left, prepare(right)), expected)
    assert torch.equal(matmul(left.t().contiguous().t(), right), expected)
    assert torch.equal(matmul(left, right.t().contiguous().t()), expected)


@pytest.mark.parametrize("m", [1, 3, 40, 70])
@pytest.mark.parametrize("n", [1, 3, 40, 70])
@pytest.mark.parametrize("left_is_transposed", [False, True])
@pytest.mark.parametrize("right_is_transposed", [False, True])
def test_every_layout_of_thin_and_thick_matrices_is_exact(
    m, n, left_is_transposed, right_is_transposed
):
    prg = Prg(KEY)
    left = prg.words((9, m)).t() if left_is_transposed else prg.words((m, 9))
    right = prg.words((n, 9)).t() if right_is_transposed else prg.words((9, n))
    product = matmul(left, right)
    assert product.is_contiguous() or min(m, n) > 1
    assert torch.equal(product, exact(left, right))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3,), (3,)),
        ((3,), (3, 2)),
        ((2, 3), (3,)),
        ((4, 2, 3), (3,)),
        ((4, 2, 3), (3, 5)),
        ((2, 3), (4, 3, 5)),
        ((4, 2, 3), (4, 3, 5)),
        ((4, 1, 2, 3), (6, 3, 5)),
        ((2, 70, 3), (2, 3, 70)),
        ((0, 3), (3, 2)),
        ((2, 0), (0, 3)),
        ((0, 2, 3), (0, 3, 2)),
    ],
)
def test_vectors_and_batches_follow_torch(left, right):
    prg = Prg(KEY)
    a, b = prg.words(left), prg.words(right)
    expected = torch.matmul(a, b)
    product = matmul(a, b)
    assert product.shape == expected.shape
    assert torch.equal(product, expected)


def test_a_prepared_factor_takes_vectors_and_batches():
    prg = Prg(KEY)
    right = prg.words((3, 5))
    for shape in ((3,), (2, 3), (4, 2, 3)):
        left = prg.words(shape)
        assert torch.equal(matmul(left, prepare(right)), torch.matmul(left, right))


def test_a_product_is_added_to_what_is_there():
    prg = Prg(KEY)
    left, right, out = prg.words((2, 5)), prg.words((5, 3)), prg.words((2, 3))
    assert torch.equal(accumulate(out, left, prepare(right)), out + left @ right)
    with pytest.raises(DataError, match="cannot multiply"):
        accumulate(out, left[:, :4], prepare(right))


def test_a_factor_does_not_show_its_entries():
    factor = prepare(torch.full((2, 3), 424242))
    assert isinstance(factor, Factor)
    assert "424242" not in repr(factor)
    assert "(2, 3)" in repr(factor)


def test_floats_are_refused():
    with pytest.raises(DataError, match="float32"):
        matmul(torch.zeros(2, 2), torch.zeros(2, 2))


@pytest.mark.parametrize(("left", "right"), [((2, 3), (2, 3)), ((3,), (2,)), ((), (2,))])
def test_shapes_that_do_not_fit_are_refused(left, right):
    prg = Prg(KEY)
    with pytest.raises(DataError, match="cannot multiply shapes"):
        matmul(prg.words(left), prg.words(right))


def test_a_factor_that_does_not_fit_is_refused():
    with pytest.raises(DataError, match=r"\(2, 3\)"):
        matmul(
            torch.zeros((1, 4), dtype=torch.int64), prepare(torch.zeros(2, 3, dtype=torch.int64))
        )
    with pytest.raises(DataError, match="matrix"):
        prepare(torch.zeros(3, dtype=torch.int64))
