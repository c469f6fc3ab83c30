import pytest

from tacit.errors import DataError
from tacit.verify import load_ensemble
from tacit.verify.models.ubjson import read_ubjson


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"\x00\x01\x02")
    with pytest.raises(DataError, match="neither an XGBoost model"):
        load_ensemble(tmp_path / "model.bin")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="cannot read"):
        load_ensemble(tmp_path / "none.json")


def test_ubjson_values_are_read():
    assert read_ubjson(b"{i\x01aI\x01\x00i\x01b[$d#i\x02\x3f\x80\x00\x00\x40\x00\x00\x00}")[
        "b"
    ].tolist() == [1.0, 2.0]
    assert read_ubjson(b"[Ti\x05SU\x02hiZ]") == [True, 5, "hi", None]


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[$d#L\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"{i\x01a?}",
        b"[" * 500,
        b"[#l\x7f\xff\xff\xff",
    ],
)
def test_broken_ubjson_is_refused(data):
    with pytest.raises(DataError):
        read_ubjson(data)
