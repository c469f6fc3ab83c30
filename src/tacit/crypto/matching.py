"""Private matching of ids: owners learn which ids they have in common, and nothing of the others.

Diffie and Hellman's way to match sets: everyone multiplies everyone's hashed ids by a secret
number; equal ids end as equal points, whatever the order of the multiplications, and all others
as points that say nothing. Where a helper compares, it gets keyed tags of ids: exact ones, and
Bloom filters of like names.
"""

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from tacit.errors import DataError, InputError

try:
    import gmpy2
except ImportError:  # matching takes about twice as long without it
    gmpy2 = None

POINT_BYTES = 32
_PRIME = (1 << 255) - 19
_CURVE = 486662  # v² = u³ + 486662 u² + u
_DOMAIN = b"tacit id 2\0"

Report = Callable[[int], None]


def hash_to_point(name: bytes) -> bytes:
    """Hash a text to a point of Curve25519, as its u-coordinate.

    Every second number is the coordinate of a point of the twisted curve, which multiplication does
    not change and everyone can see: further hashes are tried until one lies on the curve itself.
    What is left of the cofactor falls away in the first multiplication.
    """
    for turn in range(256):
        point = bytearray(hashlib.sha256(_DOMAIN + bytes([turn]) + name).digest())
        point[31] &= 0x7F
        u = int.from_bytes(point, "little")
        if 1 < u < _PRIME - 1 and _is_square((u * u + _CURVE * u + 1) * u % _PRIME):
            return bytes(point)
    raise DataError("no point found for an id")  # one id in 2^256


def _is_square(number: int) -> bool:
    if gmpy2 is not None:
        return bool(gmpy2.jacobi(number, _PRIME) == 1)
    return pow(number, (_PRIME - 1) // 2, _PRIME) == 1


class Matcher:
    """One owner's side of a matching. Used once: the secret number is never used again.

    Guarantee: against parties that follow the protocol, if Diffie–Hellman is hard on Curve25519
        and SHA-256 behaves like a random function, an owner learns how many ids each other has,
        which of its own each of them has and, of ids that it does not have, how many which others
        have in common; of two owners that is the common ids and nothing else. One that does not
        follow it can bring ids that it only guesses, as many as it has said, and can make others
        believe in any outcome.
    Cost: two multiplications (about 0.04 ms) per id and owner; 32 bytes per id and message.
    """

    def __init__(self, ids: Sequence[str]) -> None:
        """Take an owner's ids.

        Raises:
            DataError: there are none, one is empty, or one occurs twice.
        """
        check_ids(ids)
        self._ids = tuple(ids)
        self._secret = X25519PrivateKey.generate()
        self._order: list[int] = []

    def blind(self, report: Report | None = None) -> bytes:
        """Return my ids as points, in an order that says nothing about theirs."""
        hashed = (hash_to_point(name.encode()) for name in self._ids)
        points = [self._multiply(point, at, report) for at, point in enumerate(hashed, start=1)]
        self._order = sorted(range(len(points)), key=points.__getitem__)
        return b"".join(points[at] for at in self._order)

    def raise_points(self, points: bytes, report: Report | None = None) -> bytes:
        """Multiply another owner's points, keeping their order.

        Raises:
            DataError: these are not points.
        """
        return b"".join(
            self._multiply(point, at, report) for at, point in enumerate(split_points(points), 1)
        )

    def match(self, mine: bytes, others: Sequence[bytes]) -> list[int]:
        """Return where my common ids stand among my ids, in the order of the ids themselves.

        All owners know the common ids, so this is the same order for every owner, and it is the
        same again if the matching is done again.

        Args:
            mine: my points, raised by everyone, in the order of `blind`.
            others: those of every other owner.

        Raises:
            DataError: points are missing or occur twice.
        """
        points = split_points(mine)
        if len(points) != len(self._ids):
            raise DataError(f"wanted {len(self._ids)} of my points back, got {len(points)}")
        common = set(points)
        for theirs in others:
            listed = split_points(theirs)
            if len(set(listed)) != len(listed):
                raise DataError("another owner has the same id twice; remove doubles there")
            common &= set(listed)
        places = {point: place for place, point in zip(self._order, points, strict=True)}
        return sorted((places[point] for point in common), key=self._ids.__getitem__)

    def _multiply(self, point: bytes, at: int, report: Report | None) -> bytes:
        if report is not None and at % 256 == 0:
            report(at)
        if point[31] & 0x80 or int.from_bytes(point, "little") >= _PRIME:
            raise DataError("got numbers that are no points of the curve")
        try:
            return self._secret.exchange(X25519PublicKey.from_public_bytes(point))
        except ValueError as error:
            raise DataError("got numbers that are no points of the curve") from error


def split_points(points: bytes) -> list[bytes]:
    """Take a string of points apart."""
    if len(points) % POINT_BYTES:
        raise DataError(f"wanted whole points of {POINT_BYTES} bytes, got {len(points)} bytes")
    return [points[at : at + POINT_BYTES] for at in range(0, len(points), POINT_BYTES)]


def check_ids(ids: Sequence[str]) -> None:
    """Refuse ids that are empty, missing or doubled."""
    if not ids:
        raise DataError("wanted at least one id to match, got none")
    seen: set[str] = set()
    for row, name in enumerate(ids, start=1):
        if not name:
            raise DataError(f"row {row} has an empty id")
        if name in seen:
            raise DataError(f"the id in row {row} occurs before; every row needs an id of its own")
        seen.add(name)


TAG_BYTES, FILTER_BYTES = 16, 128
_FILTER_BITS = 8 * FILTER_BYTES
_HASHES = 15
Bytes = npt.NDArray[np.uint8]


def make_tags(ids: Sequence[str], key: bytes) -> Bytes:
    """Tag every id with a keyed hash: (ids, 16).

    Guarantee: whoever has not the key learns which tags are equal and nothing else, if BLAKE2b is a
        pseudo-random function; whoever has it can try every id that it can guess.
    Cost: 0 rounds; about 1 µs and 16 bytes for each id.
    """
    _check_key(key)
    made = (hashlib.blake2b(one.encode(), key=key, digest_size=TAG_BYTES).digest() for one in ids)
    return np.frombuffer(b"".join(made), np.uint8).reshape(-1, TAG_BYTES)


def make_filters(ids: Sequence[str], key: bytes) -> Bytes:
    """Make a keyed Bloom filter of the letter pairs of every id (Schnell et al., 2009): (ids, 128).

    Case, and blanks at the ends and in a row, do not count.

    Guarantee: no guarantee. Without the key bits cannot be computed, but filters of like names are
        alike and frequent pairs of letters show as frequent bits: published attacks recover many
        names from filters by their frequencies alone.
    Cost: 0 rounds; about 20 µs and 128 bytes for each id.
    """
    _check_key(key)
    places: dict[str, list[int]] = {}
    bits = np.zeros((len(ids), _FILTER_BITS), dtype=bool)
    for row, one in enumerate(ids):
        text = f" {' '.join(one.casefold().split())} "
        for pair in {text[at : at + 2] for at in range(len(text) - 1)}:
            if pair not in places:
                places[pair] = _places(pair, key)
            bits[row, places[pair]] = True
    return np.packbits(bits, axis=1)


def match_filters(first: Bytes, second: Bytes, *, least: float) -> list[tuple[int, int]]:
    """Pair filters whose Dice coefficient is at least ``least``, the most alike first.

    Every filter is paired once. Returns places in both lists, in the order of the first.
    """
    if not 0.5 <= least <= 1:
        raise InputError(f"wanted a least likeness of 0.5 to 1, got {least}")
    a, b = (np.unpackbits(one, axis=1).astype(np.float32) for one in (first, second))
    sizes_a, sizes_b = a.sum(axis=1), b.sum(axis=1)
    found = []
    for start in range(0, len(a), 1024):
        block = a[start : start + 1024]
        likeness = 2 * (block @ b.T) / (sizes_a[start : start + 1024, None] + sizes_b[None, :])
        rows, columns = np.nonzero(likeness >= least)
        values = likeness[rows, columns]
        found += list(
            zip((-values).tolist(), (rows + start).tolist(), columns.tolist(), strict=True)
        )
    taken_a, taken_b, pairs = set(), set(), []
    for _, one, two in sorted(found):
        if one not in taken_a and two not in taken_b:
            taken_a.add(one)
            taken_b.add(two)
            pairs.append((one, two))
    return sorted(pairs)


def _places(pair: str, key: bytes) -> list[int]:
    """Return which bits a pair of letters sets, by double hashing."""
    digest = hashlib.blake2b(pair.encode(), key=key, digest_size=16).digest()
    start, step = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big") | 1
    return [(start + turn * step) % _FILTER_BITS for turn in range(_HASHES)]


def _check_key(key: bytes) -> None:
    if not 16 <= len(key) <= 64:
        raise InputError(f"wanted a key of 16 to 64 bytes, got {len(key)}")
