import warnings

import pytest
import torch

from tacit.errors import DataError
from tacit.ring import WIRE_DTYPES, from_bytes, to_bytes, wire_dtype

DTYPES = {
    "u8": torch.uint8,
    "i32": torch.int32,
    "i64": torch.int64,
    "f32": torch.float32,
    "f64": torch.float64,
}


def test_the_table_of_types_is_complete():
    assert sorted(WIRE_DTYPES) == sorted(DTYPES)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0,), (2, 0, 3)])
def test_a_tensor_survives_the_wire(name, shape):
    tensor = torch.arange(1, 1 + max(1, torch.Size(shape).numel())).to(DTYPES[name])
    tensor = tensor[: torch.Size(shape).numel()].view(shape)
    sent = bytes(to_bytes(tensor))
    assert wire_dtype(tensor) == name
    assert len(sent) == tensor.nbytes
    for received in (sent, bytearray(sent), memoryview(sent)):
        assert torch.equal(from_bytes(received, name, shape), tensor)


def test_the_bytes_are_little_endian_and_row_major():
    tensor = torch.tensor([[1, -2], [3, 4]])
    expected = b"".join(v.to_bytes(8, "little", signed=True) for v in (1, -2, 3, 4))
    assert bytes(to_bytes(tensor)) == expected


def test_a_contiguous_tensor_is_not_copied():
    tensor = torch.zeros(4, dtype=torch.int64)
    view = to_bytes(tensor)
    tensor[0] = 7
    assert view[0] == 7


def test_received_memory_is_not_copied():
    data = bytearray(32)
    tensor = from_bytes(data, "i64", (4,))
    data[8] = 9
    assert tensor.tolist() == [0, 9, 0, 0]


def test_a_strided_tensor_is_sent_in_row_major_order():
    tensor = torch.arange(6).view(2, 3).t()
    assert torch.equal(from_bytes(to_bytes(tensor), "i64", (3, 2)), tensor)


def test_read_only_memory_gives_no_warning_and_is_kept_alive():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = from_bytes(bytes(range(200)) * 100, "u8", (20000,))
    bytearray(20000)  # would reuse the memory if nothing held it
    assert tensor[:200].tolist() == list(range(200))


def test_a_wrong_length_is_refused_with_both_lengths():
    with pytest.raises(DataError, match="takes 16 bytes, got 15 bytes"):
        from_bytes(bytes(15), "i64", (2,))


def test_unknown_types_and_negative_shapes_are_refused():
    with pytest.raises(DataError, match="'i16'"):
        from_bytes(bytes(2), "i16", (1,))
    with pytest.raises(DataError, match="negative"):
        from_bytes(bytes(8), "i64", (-1, -1))
    with pytest.raises(DataError, match="bool"):
        to_bytes(torch.zeros(2, dtype=torch.bool))
