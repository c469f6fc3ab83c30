"""Key agreement: two parties that see each other's public keys come to share a secret."""

from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from tacit.errors import InputError

PUBLIC_KEY_BYTES = 32


@dataclass(frozen=True)
class KeyPair:
    """An X25519 key pair; only ``public`` may be shown to anyone."""

    public: bytes
    private: X25519PrivateKey = field(repr=False)


def make_key_pair() -> KeyPair:
    """Draw a fresh X25519 key pair from the operating system's entropy."""
    private = X25519PrivateKey.generate()
    return KeyPair(public=private.public_key().public_bytes_raw(), private=private)


def agree(mine: KeyPair, their_public: bytes) -> bytes:
    """Compute the secret shared with the holder of ``their_public`` (RFC 7748).

    The result is a point on a curve and not uniform: put it through `derive` before use. It proves
    nothing about who the other side is.

    Guarantee: a third party that sees both public keys learns nothing about the secret, if
    computational Diffie–Hellman is hard on Curve25519. Points of small order, which would make the
    secret known to all, are refused.
    Cost: 0 rounds, 0 bits; one scalar multiplication.

    Raises:
        InputError: not 32 bytes, or a point of small order.
    """
    if len(their_public) != PUBLIC_KEY_BYTES:
        raise InputError(
            f"an X25519 public key has {PUBLIC_KEY_BYTES} bytes, got {len(their_public)}"
        )
    try:
        return mine.private.exchange(X25519PublicKey.from_public_bytes(their_public))
    except ValueError as error:
        # The library's answer to an all-zero result, RFC 7748 section 6.1.
        raise InputError(
            "the public key is a point of small order, so the secret would be known to all; "
            "wanted one made by make_key_pair"
        ) from error
