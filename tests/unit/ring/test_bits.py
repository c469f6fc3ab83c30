import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import DataError
from tacit.ring import (
    Prg,
    from_planes,
    less_unsigned,
    pack_bits,
    parity,
    popcount,
    shift_right,
    to_planes,
    unpack_bits,
)

WORD = st.integers(-(2**63), 2**63 - 1)
MODULUS = 2**64


@given(st.lists(st.booleans(), max_size=70))
def test_packed_bits_are_the_binary_digits_of_the_bytes(bits):
    packed = pack_bits(torch.tensor(bits, dtype=torch.bool))
    expected = sum(bit << i for i, bit in enumerate(bits))
    assert bytes(packed.tolist()) == expected.to_bytes(-(-len(bits) // 8), "little")
    assert unpack_bits(packed, len(bits)).tolist() == [int(bit) for bit in bits]


def test_packing_takes_any_shape_and_uint8():
    bits = Prg(bytes(16)).bits((3, 5, 7))
    assert torch.equal(unpack_bits(pack_bits(bits), 105).view(3, 5, 7), bits)


def test_more_bits_than_were_packed_are_refused():
    with pytest.raises(DataError, match="16 bits, not 17"):
        unpack_bits(torch.zeros(2, dtype=torch.uint8), 17)


@given(st.lists(WORD, max_size=140))
def test_a_plane_holds_one_bit_of_every_word(words):
    planes = to_planes(torch.tensor(words, dtype=torch.int64))
    assert planes.shape == (64, -(-len(words) // 64))
    for b in (0, 1, 7, 8, 31, 62, 63):
        expected = sum((word >> b & 1) << i for i, word in enumerate(words))
        found = sum((w % MODULUS) << (64 * i) for i, w in enumerate(planes[b].tolist()))
        assert found == expected


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1000, 3 * 2**16 + 5])
def test_planes_give_the_words_back(count):
    words = Prg(bytes(16)).words(count)
    assert torch.equal(from_planes(to_planes(words), count), words)


def test_planes_of_the_wrong_shape_are_refused():
    with pytest.raises(DataError, match=r"\(64, 2\)"):
        from_planes(torch.zeros((64, 1), dtype=torch.int64), 65)


@given(WORD, st.integers(0, 63))
def test_shift_right_fills_with_zeros(word, count):
    shifted = shift_right(torch.tensor([word]), count).item()
    assert shifted % MODULUS == (word % MODULUS) >> count


@given(WORD, WORD)
def test_unsigned_order_is_the_order_modulo_2_to_the_64(left, right):
    found = less_unsigned(torch.tensor([left]), torch.tensor([right])).item()
    assert found == (left % MODULUS < right % MODULUS)


@given(WORD)
def test_popcount_and_parity_agree_with_python(word):
    ones = (word % MODULUS).bit_count()
    assert popcount(torch.tensor([word])).item() == ones
    assert parity(torch.tensor([word])).item() == ones % 2
