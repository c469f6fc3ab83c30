"""Keyed tags of ids for a helper to compare: exact ones, and Bloom filters of like names."""

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tacit.errors import InputError

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
