"""Key derivation: from one secret, independent keys for named purposes."""

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tacit.errors import InputError

LONGEST_BYTES = 255 * 32  # RFC 5869, section 2.3


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
