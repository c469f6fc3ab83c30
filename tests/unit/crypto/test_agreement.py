import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.crypto import KeyPair, agree, derive, make_key_pair
from tacit.errors import InputError

# RFC 7748, section 5.2: scalar, u-coordinate, result.
PUBLISHED = [
    (
        "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
        "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
        "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
    ),
    (
        "0900000000000000000000000000000000000000000000000000000000000000",
        "0900000000000000000000000000000000000000000000000000000000000000",
        "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079",
    ),
]
PRIME = 2**255 - 19
ORDER_8 = [
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
]


def test_both_sides_agree_and_a_third_does_not():
    alice, bob, eve = make_key_pair(), make_key_pair(), make_key_pair()
    assert agree(alice, bob.public) == agree(bob, alice.public)
    assert agree(alice, bob.public) != agree(eve, bob.public)


@pytest.mark.parametrize(("scalar", "point", "result"), PUBLISHED)
def test_the_published_examples_come_out(scalar, point, result):
    private = X25519PrivateKey.from_private_bytes(bytes.fromhex(scalar))
    pair = KeyPair(private.public_key().public_bytes_raw(), private)
    assert agree(pair, bytes.fromhex(point)).hex() == result


@pytest.mark.parametrize("point", [0, 1, *ORDER_8, PRIME - 1, PRIME, PRIME + 1])
def test_points_of_small_order_are_refused(point):
    with pytest.raises(InputError, match="small order"):
        agree(make_key_pair(), point.to_bytes(32, "little"))


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_public_key_of_another_length_is_refused(length):
    with pytest.raises(InputError, match=f"32 bytes, got {length}"):
        agree(make_key_pair(), bytes(length))


def test_the_private_key_is_not_shown():
    pair = make_key_pair()
    assert pair.private.private_bytes_raw().hex() not in repr(pair)
    assert "private" not in repr(pair)


def test_the_published_key_comes_out():
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
