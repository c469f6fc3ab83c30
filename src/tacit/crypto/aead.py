"""Authenticated encryption: what is sealed can neither be read nor changed without the key."""

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tacit.errors import InputError

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
OVERHEAD_BYTES = NONCE_BYTES + TAG_BYTES
LONGEST_BYTES = 2**31 - 1 - TAG_BYTES  # what the library takes in one call


def seal(key: bytes, plaintext: bytes, *, associated: bytes) -> bytes:
    """Encrypt with AES-256-GCM under a fresh random nonce, which leads the result.

    Args:
        key: 32 bytes, e.g. from `derive`; for one purpose only.
        plaintext: what to hide.
        associated: what the message is bound to but does not hide, e.g. sender, receiver and step.
            Replay and reordering are noticed only if this tells the messages apart.

    Guarantee: without the key nobody learns more than the length, nor makes a message that opens.
    Seal at most 2^32 messages with one key, so that a nonce repeats with probability below 2^-32
    (NIST SP 800-38D, section 8.3). Whoever knows two keys can make one message that opens under
    both: this is no commitment to the key.
    Cost: 0 rounds; 28 bytes more than the plaintext.

    Raises:
        InputError: the key has not 32 bytes, or the message is too long.
    """
    cipher = _cipher(key)
    if len(plaintext) > LONGEST_BYTES:
        raise InputError(f"wanted at most {LONGEST_BYTES} bytes to seal, got {len(plaintext)}")
    nonce = os.urandom(NONCE_BYTES)
    return nonce + cipher.encrypt(nonce, plaintext, associated)


def unseal(key: bytes, sealed: bytes, *, associated: bytes) -> bytes:
    """Decrypt what `seal` made, and check that nothing of it was changed.

    Guarantee: what is returned was sealed, with these associated data, by a holder of the key.
    Cost: 0 rounds, 0 bits.

    Raises:
        InputError: another key, other associated data, or a changed message; which of the three
            cannot be told apart.
    """
    cipher = _cipher(key)
    if len(sealed) < OVERHEAD_BYTES:
        raise InputError(f"a sealed message has at least {OVERHEAD_BYTES} bytes, got {len(sealed)}")
    try:
        return cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], associated)
    except InvalidTag as error:
        raise InputError(
            f"the sealed message of {len(sealed)} bytes does not open: it was made with another "
            "key or other associated data, or it was changed on the way"
        ) from error


def _cipher(key: bytes) -> AESGCM:
    if len(key) != KEY_BYTES:
        raise InputError(f"wanted a key of {KEY_BYTES} bytes, got {len(key)} bytes")
    return AESGCM(key)
