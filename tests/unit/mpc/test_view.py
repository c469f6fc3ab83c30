"""What is computed on values in the clear, and how it finds its way back from a random order."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import InputError
from tacit.mpc.functions.curves import ELEMENTWISE
from tacit.mpc.functions.pieces import Pieces
from tacit.mpc.permuted.view import ROWWISE, EachRow, EachValue, RowLayout, take
from tacit.mpc.share import Spec
from tacit.ring import Prg

FRAC_BITS = 16
KEY = bytes(range(16))


def spec(*shape, frac_bits=FRAC_BITS, bound=64.0):
    return Spec.of(shape=shape, frac_bits=frac_bits, bound=bound)


@pytest.mark.parametrize("name", ["abs", "relu", "step"])
@pytest.mark.parametrize("extra", [0, 1, 12])
@given(data=st.data())
def test_functions_of_the_sign_are_exact_on_words(name, extra, data):
    """Beyond 2^53 a double would have rounded."""
    limit = (1 << 61) - 1
    words = data.draw(st.lists(st.integers(-limit, limit), min_size=1, max_size=8))
    x = Spec(shape=(len(words),), frac_bits=FRAC_BITS + extra, largest=limit)
    got = EachValue(name, FRAC_BITS).evaluate(torch.tensor(words), x).tolist()
    for word, result in zip(words, got, strict=True):
        if name == "step":
            assert result == (word >= 0) << FRAC_BITS
        else:
            exact = abs(word) if name == "abs" else max(word, 0)
            assert abs((result << extra) - exact) * 2 <= 1 << extra


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_no_value_of_a_function_exceeds_the_stated_bound(name):
    x = spec(2001)
    words = torch.linspace(-64, 64, 2001, dtype=torch.float64).mul(2**FRAC_BITS).round().long()
    view = EachValue(name, FRAC_BITS)
    assert int(view.evaluate(words, x).abs().max()) <= view.out(x).largest


@pytest.mark.parametrize("name", ROWWISE)
@pytest.mark.parametrize("length", [1, 2, 50])
def test_no_value_of_a_function_of_rows_exceeds_the_stated_bound(name, length):
    x = spec(200, length)
    generator = torch.Generator().manual_seed(length)
    values = torch.rand(200, length, generator=generator, dtype=torch.float64) * 128 - 64
    values[0], values[1], values[2] = 64.0, -64.0, -64.0
    values[2, 0] = 64.0  # the most extreme row there is
    view = EachRow(name, -1, FRAC_BITS, 1e-9)
    words = values.mul(2**FRAC_BITS).round().long().view(-1)
    assert int(view.evaluate(words, x).abs().max()) <= view.out(x).largest


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("name", ["softmax", "maximum"])
def test_rows_are_spread_and_gathered_along_any_dimension(name, dim):
    x, view = spec(2, 3, 4), EachRow(name, dim, FRAC_BITS, 0.0)
    words = torch.arange(24).view(2, 3, 4) << FRAC_BITS
    assert view.layout(x) == RowLayout(24 // (2, 3, 4)[dim], (2, 3, 4)[dim])
    result = view.gather(view.evaluate(view.spread(words), x), x)
    values = torch.arange(24, dtype=torch.float64).view(2, 3, 4)
    plain = values.softmax(dim) if name == "softmax" else values.amax(dim)
    assert tuple(result.shape) == view.out(x).shape == tuple(plain.shape)
    assert torch.allclose(result.double() / 2**FRAC_BITS, plain, atol=2.0**-FRAC_BITS)


def test_a_piecewise_polynomial_is_seen_as_one():
    pieces = Pieces((0.0,), ((1.0,), (0.0, 2.0)))
    view = EachValue(pieces, FRAC_BITS)
    words = torch.tensor([-3, 0, 3]) << FRAC_BITS
    assert view.label == "the inputs of a piecewise polynomial, in random order"
    assert (view.evaluate(words, spec(3)) >> FRAC_BITS).tolist() == [1, 0, 6]


@pytest.mark.parametrize(("shape", "dim"), [((3,), 1), ((3, 4), -3), ((), 0)])
def test_a_dimension_that_is_not_there_is_refused(shape, dim):
    with pytest.raises(InputError):
        EachRow("softmax", dim, FRAC_BITS, 0.0).layout(spec(*shape))


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (9, 1), (1, 9), (4, 6), (0, 3)])
def test_the_way_back_undoes_the_order(rows, columns):
    layout = RowLayout(rows, columns)
    order = layout.draw(Prg(KEY))
    words = torch.arange(layout.elements) * 3
    back = layout.way_back(order, columns=columns, follows=True)
    assert torch.equal(take(take(words, order), back), words)


def test_a_result_per_row_finds_its_row():
    layout = RowLayout(6, 4)
    order = layout.draw(Prg(KEY))
    words = torch.arange(24)
    sums = take(words, order).view(6, 4).sum(1)
    back = layout.way_back(order, columns=1, follows=False)
    assert torch.equal(take(sums, back), words.view(6, 4).sum(1))


def test_results_that_belong_to_a_row_alone_keep_their_places_in_it():
    layout = RowLayout(5, 4)
    order = layout.draw(Prg(KEY))
    words = torch.arange(20)
    ranked = take(words, order).view(5, 4).sort(-1, descending=True).values
    back = layout.way_back(order, columns=4, follows=False)
    assert torch.equal(take(ranked.view(-1), back), words.view(5, 4).flip(-1).reshape(-1))
