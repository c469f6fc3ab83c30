import pytest

from tacit.crypto import derive
from tacit.errors import InputError


def test_the_published_example_comes_out():
    # RFC 5869, appendix A.1.
    key = derive(
        bytes([0x0B] * 22), context=bytes(range(0xF0, 0xFA)), length=42, salt=bytes(range(13))
    )
    assert key.hex() == (
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    )


def test_other_contexts_give_other_keys():
    secret = bytes(32)
    assert derive(secret, context=b"a") != derive(secret, context=b"b")
    assert derive(secret, context=b"a") != derive(secret, context=b"a", salt=b"s")


@pytest.mark.parametrize(
    ("secret", "context", "length", "reason"),
    [
        (bytes(15), b"a", 32, "at least 16 bytes, got 15"),
        (bytes(32), b"", 32, "empty"),
        (bytes(32), b"a", 0, "got 0"),
        (bytes(32), b"a", 255 * 32 + 1, "got 8161"),
    ],
)
def test_what_cannot_be_safe_is_refused(secret, context, length, reason):
    with pytest.raises(InputError, match=reason):
        derive(secret, context=context, length=length)
