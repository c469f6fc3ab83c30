"""Secret keys and shares of them as bytes, for files that their holders keep."""

import struct
from collections.abc import Sequence

from tacit.crypto.cipher.bfv import BfvSecretKey
from tacit.crypto.cipher.contract import Scheme, SecretKey
from tacit.crypto.cipher.numbers import library
from tacit.crypto.cipher.paillier import PaillierPublicKey, PaillierSecretKey, load_paillier
from tacit.crypto.cipher.threshold import MOST_HOLDERS, KeyShare
from tacit.errors import DataError

_LENGTH = struct.Struct("<I")
_SHARE = struct.Struct("<HHH")


def dump_secret(key: SecretKey) -> bytes:
    """Write a secret key.

    Guarantee: none: whoever reads it decrypts. Cost: about 6 kB for paillier, 0.9 MB for bfv.
    """
    if not isinstance(key, PaillierSecretKey | BfvSecretKey):
        raise DataError(f"wanted a secret key of paillier or bfv, got {type(key).__name__}")
    return b"".join(_LENGTH.pack(len(one)) + one for one in key.fields())


def load_secret(scheme: Scheme, data: bytes) -> SecretKey:
    """Read what `dump_secret` wrote, or refuse it.

    Raises:
        DataError: it is no secret key of this cipher.
    """
    if scheme == "bfv":
        sums, weighed, own_sums, own_weighed = _fields(data, 4)
        return BfvSecretKey((sums, weighed, own_sums, own_weighed))
    public, *numbers = _fields(data, 5)
    p, q, *roots = (int.from_bytes(one, "big") for one in numbers)
    known, lib = load_paillier(public), library()
    is_prime = p > 2 and q > 2 and lib.is_prime(p) and lib.is_prime(q)
    are_roots = 1 < roots[0] < p and 1 < roots[1] < q
    if p * q != known.n or not is_prime or not are_roots:
        raise DataError("got bytes that are no secret key of paillier")
    return PaillierSecretKey(known, (p, q), (roots[0], roots[1]))


def dump_share(share: KeyShare) -> bytes:
    """Write one holder's share of a key, with the public key.

    Guarantee: none: it is for this holder alone. Cost: about 5 kB.
    """
    head = _SHARE.pack(share.point, share.threshold, share.holders)
    exponent = share.exponent.to_bytes((share.exponent.bit_length() + 7) // 8, "big")
    fields = head, share.public.to_bytes(), exponent
    return b"".join(_LENGTH.pack(len(one)) + one for one in fields)


def load_share(data: bytes, known: PaillierPublicKey | None = None) -> KeyShare:
    """Read what `dump_share` wrote, or refuse it.

    Args:
        data: the bytes.
        known: the public key, if it was read before: what makes it fast is then kept.

    Raises:
        DataError: it is no share of a key.
    """
    head, public, exponent = _fields(data, 3)
    if len(head) != _SHARE.size or len(exponent) > 2 * len(public):
        raise DataError("got bytes that are no share of a paillier key")
    point, threshold, holders = _SHARE.unpack(head)
    if not 1 <= point <= holders <= MOST_HOLDERS or not 2 <= threshold <= holders:
        raise DataError("got a share of a paillier key whose numbers do not go together")
    if known is None or known.to_bytes() != public:
        known = load_paillier(public)
    return KeyShare(
        public=known,
        point=point,
        threshold=threshold,
        holders=holders,
        exponent=int.from_bytes(exponent, "big"),
    )


def _fields(data: bytes, count: int) -> Sequence[bytes]:
    found, at = [], 0
    for _ in range(count):
        if at + _LENGTH.size > len(data):
            break
        size = _LENGTH.unpack_from(data, at)[0]
        at += _LENGTH.size
        found.append(data[at : at + size])
        at += size
    if len(found) != count or at != len(data):
        raise DataError(f"got {len(data)} bytes, which are no secret key or share")
    return found
