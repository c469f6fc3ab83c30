"""Brakerski, Fan and Vercauteren's cipher on SEAL, with numbers in coefficients (Cheetah's way).

Numbers lie in the coefficients of polynomials, not in slots: a product of polynomials is a row of
inner products, exact modulo a power of two, without rotations and their keys.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tacit.crypto.cipher.contract import (
    KEY_ID_BYTES,
    CipherLayout,
    Ciphertext,
    Numbers,
    PublicKey,
    Randomness,
    Residues,
    SecretKey,
    check_fresh,
)
from tacit.crypto.cipher.saved import Words
from tacit.crypto.cipher.seal import OwnKeys, Ring, SealKeys, centred
from tacit.errors import ConfigError, DataError, RangeError

BLOCK = 256
"""Rows in one polynomial that can be weighed: fewer means larger inputs and smaller results."""
MOST_TERMS = 1 << 13
"""Ciphertexts that may be added up before their noise could reach a number."""
_SUMS = Ring(degree=4096, plain_bits=40, primes=1, special_bits=49)
_WEIGHED = Ring(degree=8192, plain_bits=48, primes=3, special_bits=38)
_GROUP = _WEIGHED.degree // BLOCK


class BfvPublicKey(PublicKey):
    """Public keys of two rings: a small one for sums, a larger one for weighing.

    Guarantee: whoever has not the secret key learns nothing but layouts, if ring-LWE is hard at
        128 bits with SEAL's error distribution (degrees 4096 and 8192, as the Homomorphic
        Encryption Standard lists them); SEAL draws its own randomness from the operating system.
        A `released` result tells the key owner its numbers and nothing of the matrix that weighed
        them, to 2^-43 for each polynomial: noise is flooded, coefficients without a number are
        random. One that is not released tells the key owner something of the weights. Ciphertexts
        are not authenticated.
    Cost: 8 bytes for each number of a sum (16 if others than the key owner encrypt); 0.2 MB for
        256 rows that can be weighed (0.4), 0.13 MB for 32 released results. 0 rounds.
    """

    scheme = "bfv"

    def __init__(self, sums: bytes, weighed: bytes) -> None:
        self._data = sums, weighed
        self._sums, self._weighed_keys = SealKeys(_SUMS, sums), SealKeys(_WEIGHED, weighed)
        self._ready: WeakKeyDictionary[Ciphertext, list[Any]] = WeakKeyDictionary()
        self.key_id = hashlib.sha256(b"tacit bfv 1\0" + self.to_bytes()).digest()[:KEY_ID_BYTES]

    def to_bytes(self) -> bytes:
        """Return both keys."""
        return b"".join(self._data)

    def part_bytes(self, layout: CipherLayout) -> tuple[int, ...]:
        """Return the same length for every part."""
        count, size = bfv_parts(layout)
        return (size,) * count

    def encrypt(self, numbers: Numbers, layout: CipherLayout, randomness: Randomness) -> Ciphertext:
        """Encrypt with the public key; ``randomness`` is not drawn from, SEAL has its own."""
        check_fresh(numbers, layout, is_owner=False)
        parts = tuple(map(self._keys(layout).encrypt, plain_of(numbers, layout)))
        return self._made(layout, parts)

    def weigh(self, matrix: Numbers, sealed: Ciphertext) -> Ciphertext:
        """Multiply polynomials; one product gives up to 32 outputs over 256 rows."""
        layout = self._weighed(matrix, sealed)
        return self._multiplied(_weights_of(matrix), layout, sealed)

    def gather(self, places: Numbers, outputs: int, sealed: Ciphertext) -> Ciphertext:
        """Multiply polynomials of zeros and ones."""
        layout = self._gathered(places, outputs, sealed)
        return self._multiplied(_places_of(places), layout, sealed)

    def _multiplied(
        self, factors: Iterator[tuple[int, int, Words]], layout: CipherLayout, sealed: Ciphertext
    ) -> Ciphertext:
        """Add up the products of blocks with the polynomials of their weights."""
        keys, blocks = self._weighed_keys, -(-sealed.layout.rows // BLOCK)
        if sealed not in self._ready:  # the same rows are weighed many times
            self._ready[sealed] = [keys.to_ntt(part) for part in sealed.parts]
        ready = self._ready[sealed]
        columns = [ready[at : at + blocks] for at in range(0, len(ready), blocks)]
        groups = -(-layout.rows // _GROUP)
        totals: list[list[Any]] = [[None] * groups for _ in columns]
        for group, block, plain in factors:
            factor = keys.prepare(plain)
            for column, parts in zip(totals, columns, strict=True):
                column[group] = keys.multiply_add(column[group], parts[block], factor)
        found = (
            keys.zero() if total is None else keys.from_ntt(total)
            for column in totals
            for total in column
        )
        return self._made(layout, tuple(found))

    def scale(self, sealed: Ciphertext, factors: Numbers) -> Ciphertext:
        """Refuse: coefficients cannot be multiplied one by one."""
        raise ConfigError("bfv does not multiply row by row; take the cipher paillier for that")

    def take(self, sealed: Ciphertext, rows: Numbers) -> Ciphertext:
        """Refuse: rows lie in one polynomial."""
        raise ConfigError("bfv does not take rows apart; take the cipher paillier for that")

    def release(self, sealed: Ciphertext, randomness: Randomness) -> Ciphertext:
        """Flood the noise, draw coefficients without a number, and send one prime of three."""
        return self._hidden(sealed, randomness, is_masked=False)[0]

    def mask(self, sealed: Ciphertext, randomness: Randomness) -> tuple[Ciphertext, Residues]:
        """Draw all coefficients, those of numbers too: the mask is perfect."""
        found, masks = self._hidden(sealed, randomness, is_masked=True)
        return found, np.concatenate(masks)

    def unmask(self, opened: bytes, mask: Residues, layout: CipherLayout) -> Numbers:
        """Subtract modulo the plain modulus."""
        self._check_opened(opened, layout)
        words = np.frombuffer(opened, "<u8").astype(np.uint64) - np.asarray(mask, np.uint64)
        return _matrix(centred(words, _WEIGHED.plain_bits), layout)

    def opened_bytes(self, layout: CipherLayout) -> int:
        """Return 8 bytes for every number."""
        return 8 * layout.size

    def _hidden(
        self, sealed: Ciphertext, randomness: Randomness, *, is_masked: bool
    ) -> tuple[Ciphertext, list[Words]]:
        self._check(sealed, "result")
        keys, parts, masks = self._weighed_keys, [], []
        for part, places in zip(sealed.parts, places_of(sealed.layout), strict=True):
            mask = keys.draw_plain(randomness)
            masks.append(mask[places])
            if not is_masked:
                mask[places] = 0
            parts.append(keys.flooded(part, mask, randomness))
        return self._made(replace(sealed.layout, form="released"), tuple(parts)), masks

    def add(self, first: Ciphertext, second: Ciphertext) -> Ciphertext:
        """Add two ciphertexts; no more than 2^13 fresh ones in all, for their noise."""
        if first.layout.terms + second.layout.terms > MOST_TERMS:
            raise RangeError(f"wanted at most {MOST_TERMS} ciphertexts in a sum of bfv")
        return super().add(first, second)

    def opened(self, sealed: Ciphertext) -> Iterator[Any]:
        """Return SEAL's ciphertexts, for the owner of the secret key."""
        self._check(sealed, "sum", "rows", "result", "released")
        return map(self._keys(sealed.layout).opened, sealed.parts)

    def _keys(self, layout: CipherLayout) -> SealKeys:
        return self._sums if layout.form == "sum" else self._weighed_keys

    def _add_parts(self, first: object, second: object, layout: CipherLayout) -> object:
        return self._keys(layout).add(first, second)

    def _add_plain(self, sealed: Ciphertext, numbers: Numbers) -> tuple[object, ...]:
        plain = plain_of(numbers, sealed.layout)
        return tuple(map(self._keys(sealed.layout).add_plain, sealed.parts, plain))

    def _dump_part(self, part: object, size: int, layout: CipherLayout) -> bytes:
        data = self._keys(layout).dump(part, _level(layout))
        if len(data) != size:
            raise DataError(f"wanted {size} bytes of a ciphertext that its owner made; only it has")
        return data

    def _load_part(self, data: bytes, layout: CipherLayout) -> object:
        return self._keys(layout).load(data, _level(layout), is_seeded=layout.by_owner)


class BfvSecretKey(SecretKey):
    """Secret keys of both rings.

    Guarantee: as for the public key.
    Cost: about 0.1 µs to encrypt a number of a sum and 2 ms for 256 rows; 1 ms to decrypt 32
        released results, on one core.
    """

    public: BfvPublicKey

    def __init__(self, kept: tuple[bytes, bytes, bytes, bytes] | None = None) -> None:
        if kept is None:
            self._sums, self._weighed = OwnKeys(_SUMS), OwnKeys(_WEIGHED)
        else:
            sums, weighed, own_sums, own_weighed = kept
            self._sums = OwnKeys(_SUMS, (sums, own_sums))
            self._weighed = OwnKeys(_WEIGHED, (weighed, own_weighed))
        self.public = BfvPublicKey(self._sums.public, self._weighed.public)

    def fields(self) -> tuple[bytes, bytes, bytes, bytes]:
        """Return both public and both secret keys, from which the same key can be made."""
        own = self._sums.to_bytes(), self._weighed.to_bytes()
        return (self._sums.public, self._weighed.public, *own)

    def encrypt(self, numbers: Numbers, layout: CipherLayout, randomness: Randomness) -> Ciphertext:
        """Encrypt with the secret key: half as long."""
        check_fresh(numbers, layout, is_owner=True)
        keys = self._sums if layout.form == "sum" else self._weighed
        parts = tuple(map(keys.encrypt, plain_of(numbers, layout)))
        return Ciphertext(layout=layout, key_id=self.public.key_id, parts=parts)

    def decrypt(self, sealed: Ciphertext) -> Numbers:
        """Decrypt, and read the coefficients that hold numbers."""
        layout, parts = sealed.layout, self.public.opened(sealed)
        keys = self._sums if layout.form == "sum" else self._weighed
        found = np.concatenate(
            [keys.decrypt(part, at) for part, at in zip(parts, places_of(layout), strict=True)]
        )
        return _matrix(found, layout)

    def open_masked(self, sealed: Ciphertext) -> bytes:
        """Return every number modulo the plain modulus."""
        self.public._check(sealed, "released")
        return self.decrypt(sealed).T.astype("<i8").tobytes()


def _matrix(found: Numbers, layout: CipherLayout) -> Numbers:
    """Bring numbers to rows, column after column as results lie."""
    if layout.form == "sum":
        return found.reshape(layout.rows, layout.width)
    return np.ascontiguousarray(found.reshape(layout.width, layout.rows).T)


def load_bfv(data: bytes) -> BfvPublicKey:
    """Read a public key, or refuse it."""
    if len(data) != public_bytes():
        raise DataError(f"got {len(data)} bytes, which are no public key of bfv")
    cut = _SUMS.wire_bytes(-1, is_seeded=False)
    return BfvPublicKey(data[:cut], data[cut:])


def public_bytes() -> int:
    """Return the one length of a public key."""
    return sum(ring.wire_bytes(-1, is_seeded=False) for ring in (_SUMS, _WEIGHED))


def ring_of(layout: CipherLayout) -> Ring:
    """Return the ring of a layout, and refuse room that it has not."""
    ring = _SUMS if layout.form == "sum" else _WEIGHED
    if layout.room >= 1 << (ring.plain_bits - 1):
        raise RangeError(
            f"bfv has room below 2^{ring.plain_bits - 1} for form {layout.form!r}, asked for "
            f"{layout.room}"
        )
    return ring


def bfv_parts(layout: CipherLayout) -> tuple[int, int]:
    """Return how many polynomials there are, and the bytes of each."""
    size = ring_of(layout).wire_bytes(_level(layout), is_seeded=layout.by_owner)
    return len(places_of(layout)), size


def places_of(layout: CipherLayout) -> list[Numbers]:
    """Return at which coefficients of every part the numbers lie, column after column."""
    degree = ring_of(layout).degree
    if layout.form == "sum":
        return [np.arange(min(degree, layout.size - at)) for at in range(0, layout.size, degree)]
    if layout.form == "rows":
        column = [np.arange(min(BLOCK, layout.rows - at)) for at in range(0, layout.rows, BLOCK)]
    else:
        column = [
            BLOCK - 1 + BLOCK * np.arange(min(_GROUP, layout.rows - at))
            for at in range(0, layout.rows, _GROUP)
        ]
    return column * layout.width


def plain_of(numbers: Numbers, layout: CipherLayout) -> Iterator[Words]:
    """Put numbers into coefficients, modulo the plain modulus."""
    ring = ring_of(layout)
    flat = numbers.reshape(-1) if layout.form == "sum" else numbers.T.reshape(-1)
    words = flat.view(np.uint64) & np.uint64((1 << ring.plain_bits) - 1)
    at = 0
    for places in places_of(layout):
        found = np.zeros(ring.degree, np.uint64)
        found[places] = words[at : at + len(places)]
        at += len(places)
        yield found


def _weights_of(matrix: Numbers) -> Iterator[tuple[int, int, Words]]:
    """Yield the polynomials of a matrix, for 32 outputs and 256 rows each, that are not zero.

    With row i at coefficient i and its weight for output j at 256 j + 255 − i, the coefficient
    256 j + 255 of the product is output j.
    """
    outputs, rows = matrix.shape
    mask = np.uint64((1 << _WEIGHED.plain_bits) - 1)
    for group in range(0, outputs, _GROUP):
        for block in range(0, rows, BLOCK):
            part = matrix[group : group + _GROUP, block : block + BLOCK]
            if part.any():
                found = np.zeros((_GROUP, BLOCK), np.int64)
                found[: part.shape[0], BLOCK - part.shape[1] :] = part[:, ::-1]
                yield group // _GROUP, block // BLOCK, found.reshape(-1).view(np.uint64) & mask


def _places_of(places: Numbers) -> Iterator[tuple[int, int, Words]]:
    """Yield the same for weights that are 1 where a row goes to an output."""
    for block in range(0, len(places), BLOCK):
        part = places[block : block + BLOCK]
        rows = np.flatnonzero(part >= 0)
        groups, at = part[rows] // _GROUP, part[rows] % _GROUP * BLOCK + BLOCK - 1 - rows
        for group in np.unique(groups).tolist():
            found = np.zeros(_WEIGHED.degree, np.uint64)
            found[at[groups == group]] = 1
            yield group, block // BLOCK, found


def _level(layout: CipherLayout) -> int:
    return _WEIGHED.primes - 1 if layout.form == "released" else 0
