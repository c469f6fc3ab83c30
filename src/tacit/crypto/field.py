"""Arithmetic modulo the Mersenne prime 2^61 − 1 on numpy arrays of uint64.

No step branches on a value, so the time taken does not depend on secrets.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InputError

Words = NDArray[np.uint64]
Randomness = Callable[[int], bytes]
"""Returns as many uniform bytes as it is asked for."""

ELEMENT_BITS = 61
PRIME = 2**ELEMENT_BITS - 1

_U = np.uint64
_P = _U(PRIME)
_LOW29, _LOW30, _LOW31, _LOW32 = (_U(2**bits - 1) for bits in (29, 30, 31, 32))


def reduce(words: Words) -> Words:
    """Bring any words below 2^64 into [0, p)."""
    folded = (words & _P) + (words >> _U(ELEMENT_BITS))
    return folded - _P * (folded >= _P)


def multiply(words: Words, factor: int) -> Words:
    """Multiply field elements by one public factor in [0, p)."""
    # 31-bit limbs: a·b = hi·2^62 + mid·2^31 + lo, and 2^61 ≡ 1; the sum stays below 2^64.
    high, low = _U(factor >> 31), _U(factor) & _LOW31
    upper, lower = words >> _U(31), words & _LOW31
    mid = lower * high + upper * low
    total = ((upper * high) << _U(1)) + (mid >> _U(30)) + ((mid & _LOW30) << _U(31)) + lower * low
    return reduce(total)


def multiply_small_add(words: Words, factor: Words, term: Words) -> Words:
    """Compute words · factor + term for factors below 2^28, not fully reduced.

    Takes words up to p + 7 and terms below p, and returns words up to p + 7, so that it can be
    repeated; `reduce` at the end.
    """
    high = (words >> _U(32)) * factor
    total = (words & _LOW32) * factor
    total += (high & _LOW29) << _U(32)  # 2^32 · 2^29 ≡ 1
    total += high >> _U(29)
    total += term
    return (total & _P) + (total >> _U(ELEMENT_BITS))


def draw_elements(count: int, randomness: Randomness) -> Words:
    """Draw field elements, exactly uniform by rejection.

    Guarantee: uniform on [0, p) and independent, if the bytes of ``randomness`` are.
    Cost: 0 rounds, 0 bits; 8 random bytes each.

    Raises:
        InputError: ``randomness`` returned another number of bytes than asked for.
    """
    elements = _draw_words(count, randomness)
    while (rejected := np.flatnonzero(elements == _P)).size:
        elements[rejected] = _draw_words(rejected.size, randomness)
    return elements


def _draw_words(count: int, randomness: Randomness) -> Words:
    raw = randomness(8 * count)
    if len(raw) != 8 * count:
        raise InputError(f"asked the source of randomness for {8 * count} bytes, got {len(raw)}")
    return np.frombuffer(raw, dtype="<u8").astype(np.uint64) & _P
