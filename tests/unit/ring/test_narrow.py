import pytest
import torch

from tacit.errors import RangeError
from tacit.ring import (
    PANEL_BYTES,
    Prg,
    encode,
    encode_narrow,
    matmul,
    multiply_panels,
    narrow,
    narrowed,
    panel_rows,
    prepare,
)

EDGES = {torch.int8: 2**7, torch.int16: 2**15, torch.int32: 2**31, torch.int64: 2**62}


@pytest.mark.parametrize("dtype", EDGES)
def test_the_narrowest_integers_that_hold_all_are_chosen_and_nothing_changes(dtype):
    edge = EDGES[dtype]
    words = torch.tensor([[-edge, 0], [edge - 1, 3]])
    assert narrowed(words).dtype == dtype
    assert torch.equal(narrowed(words).long(), words)
    if dtype != torch.int8:
        assert narrowed(torch.tensor([edge // 2])).dtype == dtype or edge // 2 < 2**62


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32])
@pytest.mark.parametrize("rows", [1, 4, 5, 70])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_products_with_narrow_words_are_those_of_wide_ones(monkeypatch, dtype, rows, is_transposed):
    monkeypatch.setattr(narrow, "PANEL_BYTES", 8 * 21 * 4)
    prg = Prg(b"n" * 16)
    right = prg.words((19, 21)).to(dtype)
    right = right.t().contiguous().t() if is_transposed else right
    left = prg.words((rows, 19))
    wanted = torch.mm(left, right.long())
    assert torch.equal(matmul(left, right), wanted)
    assert torch.equal(matmul(left, prepare(right)), wanted)
    assert torch.equal(matmul(left.view(rows, 1, 19), right), wanted.view(rows, 1, 21))


def test_narrow_batches_and_vectors_are_widened():
    prg = Prg(b"n" * 16)
    left, right = prg.words((2, 3, 4)), prg.words((2, 4, 5)).to(torch.int32)
    assert torch.equal(matmul(left, right), matmul(left, right.long()))
    assert torch.equal(matmul(left, right[0, :, 0]), matmul(left, right[0, :, 0].long()))


def test_a_matrix_may_come_in_panels_drawn_as_one():
    shape = (1000, 700)
    left, whole = Prg(b"l" * 16).words((3, 1000)), Prg(b"r" * 16).words(shape)
    prg, sizes = Prg(b"r" * 16), panel_rows(shape)
    assert len(sizes) == -(-8 * 700_000 // (PANEL_BYTES // (8 * 700) * 8 * 700))
    panels = (prg.words((rows, 700)) for rows in sizes)
    assert torch.equal(multiply_panels(left, panels, 700), torch.mm(left, whole))


@pytest.mark.parametrize("largest", [0.3, 0.7, 2.0**14 + 0.5, 2.0**17 + 0.5])
def test_reals_that_come_in_panels_are_encoded_as_all_at_once(largest):
    values = torch.linspace(-1, 1, 35, dtype=torch.float64).view(7, 5) ** 3 * largest
    found = encode_narrow(values.split(2), (7, 5), frac_bits=16)
    wanted = encode(values, frac_bits=16)
    assert torch.equal(found.long(), wanted)
    assert found.dtype == narrowed(wanted).dtype


def test_what_is_no_number_is_refused():
    with pytest.raises(RangeError, match="finite"):
        encode_narrow([torch.tensor([[float("nan")]])], (1, 1), frac_bits=16)
