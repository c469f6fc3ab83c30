"""Key agreement, from public keys to a shared secret; derivation, from it to keys for purposes."""

from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tacit.errors import InputError

PUBLIC_KEY_BYTES = 32
LONGEST_BYTES = 255 * 32  # RFC 5869, section 2.3


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


def derive(secret: bytes, *, context: bytes, length: int = 32, salt: bytes = b"") -> bytes:
    """Derive a key for one purpose with HKDF-SHA256 (RFC 5869).

    Args:
        secret: what the key comes from; at least 16 bytes, which need not be uniform.
        context: names the purpose and the parties. Two purposes must never share a context.
        length: bytes wanted.
        salt: public and, where possible, random; may be left out.

    Guarantee: keys of different contexts look uniform and independent to everyone who does not
    know ``secret``, if it holds enough entropy and HMAC-SHA256 is a pseudorandom function.
    Cost: 0 rounds, 0 bits.

    Raises:
        InputError: the secret is too short, the context empty, or the length out of range.
    """
    if len(secret) < 16:
        raise InputError(f"wanted a secret of at least 16 bytes, got {len(secret)} bytes")
    if not context:
        raise InputError("wanted a context that names what the key is for, got an empty one")
    if not 1 <= length <= LONGEST_BYTES:
        raise InputError(f"wanted a length of 1 to {LONGEST_BYTES} bytes, got {length}")
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=context).derive(secret)
