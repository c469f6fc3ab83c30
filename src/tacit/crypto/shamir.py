"""Shamir's secret sharing (1979) over the prime 2^61 − 1, for many secrets at once."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tacit.crypto.field import (
    PRIME,
    Randomness,
    Words,
    draw_elements,
    multiply,
    multiply_small_add,
    reduce,
)
from tacit.errors import InputError

MOST_PARTIES = 2**16 - 1
_BLOCK = 2**15  # field elements worked on at once: the temporaries stay in the cache
_CHUNK_BYTES = 7  # of a byte string per field element: 56 of the 61 bits


@dataclass(frozen=True, eq=False)
class ShamirShare:
    """One party's points on the polynomials of all secrets; alone it says nothing about them."""

    point: int
    threshold: int
    values: Words = field(repr=False)


def share(
    secrets: Words, *, threshold: int, parties: int, randomness: Randomness
) -> tuple[ShamirShare, ...]:
    """Share field elements so that any ``threshold`` of the parties can recover them.

    Args:
        secrets: uint64 of any shape, each below 2^61 − 1.
        threshold: shares needed to recover, at least 2.
        parties: shares made; party i gets the point i + 1.
        randomness: the source of secret randomness.

    Guarantee: perfect, any ``threshold`` − 1 shares are uniform and independent of the secrets, if
    ``randomness`` is uniform. Shares are not authenticated: a party that lies changes what is
    recovered, and is noticed only if more than ``threshold`` shares are at hand.
    Cost: 0 rounds; 64 bits per secret and party.

    Raises:
        InputError: thresholds, parties or secrets out of range.
    """
    _check_parties(threshold, parties)
    if secrets.dtype != np.uint64:
        raise InputError(f"wanted secrets as a uint64 array, got {secrets.dtype}")
    flat = secrets.reshape(-1)
    if np.any(flat >= np.uint64(PRIME)):
        raise InputError(
            f"wanted secrets below 2^61 - 1, got larger ones in an array of shape {secrets.shape}"
        )
    drawn = draw_elements((threshold - 1) * flat.size, randomness)
    values = _evaluate(flat, drawn.reshape(threshold - 1, flat.size), parties)
    return tuple(
        ShamirShare(index + 1, threshold, row.reshape(secrets.shape))
        for index, row in enumerate(values)
    )


def recover(shares: Sequence[ShamirShare]) -> Words:
    """Recover the secrets from at least ``threshold`` shares.

    Shares beyond the threshold are used to check the others.

    Guarantee: the secrets that were shared, if all shares are as they were handed out.
    Cost: 0 rounds, 0 bits here; the holders of the shares have sent 64 bits per secret.

    Raises:
        InputError: too few shares, two of one party, shares of different sharings, or shares that
            lie on no common polynomial.
    """
    threshold = _check_shares(shares)
    used, spare = shares[:threshold], shares[threshold:]
    for extra in spare:
        if not np.array_equal(_interpolate(used, extra.point), extra.values):
            raise InputError(
                f"the share of point {extra.point} does not fit those of points "
                f"{[one.point for one in used]}: one of them was changed or is of another sharing"
            )
    return _interpolate(used, 0)


def share_bytes(
    secret: bytes, *, threshold: int, parties: int, randomness: Randomness
) -> tuple[ShamirShare, ...]:
    """Share a byte string, e.g. a key; see `share`. Its length shows up to a multiple of 7.

    Guarantee: as for `share`.
    Cost: 0 rounds; 64 bits per party for every 7 bytes begun, and 64 more.
    """
    # One 1 bit, then zeros: the padding tells the length.
    padded = secret + b"\x80" + bytes(-(len(secret) + 1) % _CHUNK_BYTES)
    chunks = np.frombuffer(padded, np.uint8).reshape(-1, _CHUNK_BYTES)
    words = np.zeros((len(chunks), 8), np.uint8)
    words[:, :_CHUNK_BYTES] = chunks
    secrets = words.reshape(-1).view("<u8").astype(np.uint64)
    return share(secrets, threshold=threshold, parties=parties, randomness=randomness)


def recover_bytes(shares: Sequence[ShamirShare]) -> bytes:
    """Recover a byte string that `share_bytes` shared; see `recover`.

    Guarantee: as for `recover`.
    Cost: 0 rounds, 0 bits.
    """
    words = recover(shares).reshape(-1).astype("<u8").view(np.uint8).reshape(-1, 8)
    padded = words[:, :_CHUNK_BYTES].tobytes()
    secret = padded.rstrip(b"\x00")
    is_padded = len(padded) - len(secret) < _CHUNK_BYTES and secret.endswith(b"\x80")
    if words[:, _CHUNK_BYTES:].any() or not is_padded:
        raise InputError("the shares recover to no byte string: one was changed, or shares numbers")
    return secret[:-1]


def _evaluate(constants: Words, coefficients: Words, parties: int) -> Words:
    """Evaluate all polynomials at 1 … parties by Horner's rule: (parties, secrets)."""
    points = np.arange(1, parties + 1, dtype=np.uint64)[:, None]
    values = np.empty((parties, constants.size), np.uint64)
    step = max(1, _BLOCK // parties)
    for start in range(0, constants.size, step):
        block = slice(start, start + step)
        shape = (parties, constants[block].size)
        total = np.broadcast_to(coefficients[-1, block], shape)
        for term in (*coefficients[-2::-1, block], constants[block]):
            total = multiply_small_add(total, points, term)
        values[:, block] = reduce(total)
    return values


def _interpolate(shares: Sequence[ShamirShare], at: int) -> Words:
    """Evaluate at one point the polynomials of lowest degree through all shares."""
    points = [one.point for one in shares]
    total = np.zeros(shares[0].values.shape, np.uint64)
    for one, weight in zip(shares, _weights(points, at), strict=True):
        total = reduce(total + multiply(one.values, weight))
    return total


def _weights(points: Sequence[int], at: int) -> list[int]:
    """Compute Lagrange's weights: f(at) = Σ weight · f(point)."""
    weights = []
    for point in points:
        above = below = 1
        for other in points:
            if other != point:
                above = above * (at - other) % PRIME
                below = below * (point - other) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return weights


def _check_parties(threshold: int, parties: int) -> None:
    if not 2 <= threshold <= parties <= MOST_PARTIES:
        raise InputError(
            f"wanted 2 <= threshold <= parties <= {MOST_PARTIES}, got threshold {threshold} and "
            f"{parties} parties; with threshold 1 every share is the secret itself"
        )


def _check_shares(shares: Sequence[ShamirShare]) -> int:
    """Check that the shares can belong together, and return their threshold."""
    points = [one.point for one in shares]
    thresholds = {one.threshold for one in shares}
    if len(thresholds) != 1 or len(shares) < (threshold := thresholds.pop()) or threshold < 2:
        raise InputError(
            f"wanted as many shares of one sharing as its threshold, got {len(shares)} "
            f"with thresholds {sorted(one.threshold for one in shares)}"
        )
    if len(set(points)) < len(points) or not all(1 <= point <= MOST_PARTIES for point in points):
        raise InputError(f"wanted shares of different points from 1 on, got points {points}")
    _check_values(shares)
    return threshold


def _check_values(shares: Sequence[ShamirShare]) -> None:
    shapes = [one.values.shape for one in shares]
    if len(set(shapes)) > 1 or any(one.values.dtype != np.uint64 for one in shares):
        raise InputError(f"wanted uint64 values of one shape from all, got shapes {shapes}")
    for one in shares:
        if np.any(one.values >= np.uint64(PRIME)):
            raise InputError(f"the share of point {one.point} holds values of 2^61 - 1 or above")
