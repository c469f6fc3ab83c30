"""Commitments: fix a value now, show it later."""

import hashlib
import hmac
import os

from tacit.errors import InputError

RANDOMISER_BYTES = 32
COMMITMENT_BYTES = 32
_DOMAIN = b"tacit commitment v1\x00"


def commit(message: bytes, *, context: bytes) -> tuple[bytes, bytes]:
    """Commit to a message: return the commitment, and the randomiser that opens it.

    Send the commitment now; send message and randomiser when it is to be opened.

    Args:
        message: the value to fix.
        context: who commits and in which step, so that a commitment cannot be passed off as
            another party's or another step's.

    Guarantee: binding, no other message opens it, if SHA-256 is collision resistant; hiding, it
    shows nothing about the message, not even its length, if SHA-256 is a random oracle.
    Cost: 0 rounds; 32 bytes to commit, 32 bytes and the message to open.
    """
    randomiser = os.urandom(RANDOMISER_BYTES)
    return _hash(message, randomiser, context), randomiser


def verify(commitment: bytes, message: bytes, *, randomiser: bytes, context: bytes) -> bool:
    """Tell whether the commitment was made to this message in this context.

    Guarantee: true for at most one message per commitment, if SHA-256 is collision resistant.
    Cost: 0 rounds, 0 bits.

    Raises:
        InputError: commitment or randomiser have not 32 bytes.
    """
    if len(commitment) != COMMITMENT_BYTES or len(randomiser) != RANDOMISER_BYTES:
        raise InputError(
            f"commitment and randomiser have {COMMITMENT_BYTES} and {RANDOMISER_BYTES} bytes, "
            f"got {len(commitment)} and {len(randomiser)}"
        )
    return hmac.compare_digest(commitment, _hash(message, randomiser, context))


def _hash(message: bytes, randomiser: bytes, context: bytes) -> bytes:
    # Every part but the last has a known length: no two inputs are hashed alike.
    parts = (_DOMAIN, len(context).to_bytes(8, "big"), context, randomiser, message)
    return hashlib.sha256(b"".join(parts)).digest()
