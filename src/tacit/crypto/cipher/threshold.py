"""Paillier keys in shares: so many holders together decrypt, fewer learn nothing.

Damgård and Jurik's way (2001), with the exponent shared over the integers (Rabin 1998), so that
any primes will do. Whoever made the key must forget it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tacit.crypto.cipher.contract import KEY_ID_BYTES, Ciphertext, Numbers, Randomness
from tacit.crypto.cipher.numbers import draw_below, library
from tacit.crypto.cipher.paillier import PaillierPublicKey, PaillierSecretKey
from tacit.errors import DataError, InputError

MOST_HOLDERS = 64
_HIDING_BITS = 128


@dataclass(frozen=True, kw_only=True, eq=False)
class KeyShare:
    """One holder's share of a secret key.

    Guarantee: fewer than ``threshold`` shares say nothing about the key, to 2^-128, if whoever
        made them forgot it; what a holder gives for a ciphertext says nothing beyond its
        plaintext. Holders are assumed to follow the protocol: a wrong part makes a wrong sum, and
        nobody is told whose part it was.
    Cost: about 60 ms for every ciphertext at 3072 bits; as many bytes as the ciphertext has.
    """

    public: PaillierPublicKey
    point: int
    threshold: int
    holders: int
    exponent: int = field(repr=False)

    def decrypt_part(self, sealed: Ciphertext) -> bytes:
        """Return my part of the decryption of a ciphertext."""
        lib, public = library(), self.public
        public._check(sealed, "sum", "rows", "result", "released")
        exponent = math.factorial(self.holders) * self.exponent
        sizes = public.part_bytes(sealed.layout)
        found = (
            int(lib.powmod(part, exponent, public.square)).to_bytes(length, "big")
            for part, length in zip(sealed.parts, sizes, strict=True)
        )
        return public.key_id + b"".join(found)


def share_key(
    key: PaillierSecretKey, *, threshold: int, holders: int, randomness: Randomness
) -> tuple[KeyShare, ...]:
    """Share a secret key so that any ``threshold`` of the holders can decrypt together.

    Guarantee: see `KeyShare`. Cost: 0 rounds; a share has about twice the bits of the key.

    Raises:
        InputError: the key is no Paillier key, or the numbers are out of range.
    """
    if not isinstance(key, PaillierSecretKey):
        raise InputError("keys of paillier can be shared, those of bfv cannot")
    if not 2 <= threshold <= holders <= MOST_HOLDERS:
        raise InputError(
            f"wanted 2 <= threshold <= holders <= {MOST_HOLDERS}, got {threshold} and {holders}"
        )
    public, order = key.public, key.order
    n, steps = int(public.n), math.factorial(holders)
    secret = order * pow(order, -1, n)  # 0 modulo the order of what hides, 1 modulo n
    # A polynomial that moves the secret, and not the shares of fewer holders, has coefficients of
    # at most holders! · 2^threshold times the secret: those that are 128 bits longer hide it.
    reach = (n * n * steps * threshold) << (threshold + _HIDING_BITS)
    terms = [steps * secret, *(draw_below(reach, randomness) for _ in range(threshold - 1))]
    return tuple(
        KeyShare(
            public=public,
            point=point,
            threshold=threshold,
            holders=holders,
            exponent=sum(term * point**power for power, term in enumerate(terms)),
        )
        for point in range(1, holders + 1)
    )


def combine(
    public: PaillierPublicKey,
    sealed: Ciphertext,
    parts: Mapping[int, bytes],
    *,
    threshold: int,
    holders: int,
) -> Numbers:
    """Put the holders' parts of a decryption together, by the points of their shares.

    Guarantee: the plaintext, if all parts are as they should be; nothing is checked but that they
        fit each other to give a plaintext.
    Cost: 0 rounds; short powers for every ciphertext and holder.

    Raises:
        DataError: too few parts, or parts that do not fit together.
    """
    lib, steps = library(), math.factorial(holders)
    public._check(sealed, "sum", "rows", "result", "released")
    points = sorted(parts)[:threshold]
    if len(points) < threshold or not all(1 <= point <= holders for point in points):
        raise DataError(f"wanted parts of {threshold} of {holders} holders, got {len(points)}")
    columns = [read_part(public, parts[point], sealed) for point in points]
    weights = [_weight(points, point, steps) for point in points]
    undo = lib.invert(steps**3, public.n)
    words = []
    for row in zip(*columns, strict=True):
        total = lib.mpz(1)
        for part, weight in zip(row, weights, strict=True):
            base = part if weight >= 0 else lib.invert(part, public.square)
            total = total * lib.powmod(base, abs(weight), public.square) % public.square
        if total % public.n != 1:
            raise DataError("the holders' parts do not fit together: one is wrong or of another")
        words.append((total - 1) // public.n * undo % public.n)
    return public.unpacked(words, sealed.layout)


def _weight(points: Sequence[int], point: int, steps: int) -> int:
    """Return Lagrange's weight at 0 times holders!, a whole number."""
    above = below = 1
    for other in points:
        if other != point:
            above, below = above * -other, below * (point - other)
    return steps * above // below


def read_part(public: PaillierPublicKey, data: bytes, sealed: Ciphertext) -> list[Any]:
    """Read one holder's part of a decryption.

    Raises:
        DataError: it is of another key or ciphertext, or no number of this key.
    """
    lib, sizes = library(), public.part_bytes(sealed.layout)
    if len(data) != KEY_ID_BYTES + sum(sizes) or data[:KEY_ID_BYTES] != public.key_id:
        raise DataError("got a part of a decryption of another key or ciphertext")
    size, body = sizes[0], data[KEY_ID_BYTES:]
    found = [
        lib.mpz(int.from_bytes(body[at : at + size], "big")) for at in range(0, len(body), size)
    ]
    if not all(0 < one < public.square and lib.gcd(one, public.n) == 1 for one in found):
        raise DataError("got a part of a decryption that is no number of this key")
    return found
