"""Arithmetic of large numbers for Paillier: primes, a proof about their product, powers."""

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from tacit.crypto.cipher.contract import Numbers, Randomness
from tacit.errors import ConfigError
from tacit.extras import install_hint

try:
    import gmpy2
except ImportError:
    gmpy2 = None

_COFACTOR_BITS = 33
_LEAST_FACTOR_BITS = 16
ROOTS = 128 // _LEAST_FACTOR_BITS
"""So many n-th roots convince to 2^-128, where no prime below 2^16 divides n."""


def library() -> Any:  # it has no types
    """Return gmpy2, or say how to get it."""
    if gmpy2 is None:
        raise ConfigError(f"the cipher paillier needs gmpy2; run: {install_hint('gmpy2')}")
    return gmpy2


def draw_below(limit: int, randomness: Randomness) -> int:
    """Draw a number below a limit, exactly uniform by rejection."""
    bits = (int(limit) - 1).bit_length()
    while True:
        found = int.from_bytes(randomness((bits + 7) // 8), "big") >> (-bits % 8)
        if found < limit:
            return found


def draw_prime(bits: int, randomness: Randomness) -> int:
    """Draw a prime of so many bits, the upper two of which are set."""
    lib = library()
    while True:
        drawn = int.from_bytes(randomness(bits // 8 + 1), "big") & ((1 << bits) - 1)
        found = drawn | (3 << (bits - 2)) | 1
        if lib.is_prime(found, 40):
            return found


def draw_factored_prime(bits: int, randomness: Randomness) -> tuple[int, tuple[int, ...]]:
    """Draw a prime p ≡ 3 modulo 4 and return it with the prime factors of (p − 1)/2.

    p − 1 is twice a large prime times a small number: so its factors are known, and what generates
    the group can be told from what does not.
    """
    lib = library()
    while True:
        large = draw_prime(bits - _COFACTOR_BITS, randomness)
        for _ in range(4 * bits):
            small = draw_below(1 << (_COFACTOR_BITS - 1), randomness) | 1
            found = 2 * small * large + 1
            if found.bit_length() == bits and found >> (bits - 2) == 3 and lib.is_prime(found, 40):
                return found, (large, *_factors(small))


def prove_permutation(p: int, q: int) -> tuple[int, ...]:
    """Prove that x → x^n permutes the units modulo n = pq: n-th roots of numbers that n alone sets.

    Guarantee: says nothing of p and q, if SHAKE256 is a random function: whoever may choose it
        could have taken powers of roots of their own.
    Cost: a power modulo either prime for every root; 30 ms at 3072 bits.
    """
    lib, n = library(), p * q
    lift = lib.invert(q, p)
    found = []
    for asked in _challenges(n):
        on_p, on_q = (lib.powmod(asked, lib.invert(n, one - 1), one) for one in (p, q))
        found.append(int(on_q + q * ((on_p - on_q) * lift % p)))
    return tuple(found)


def is_permutation(n: int, roots: Sequence[int]) -> bool:
    """Check `prove_permutation` (Goldberg, Reyzin, Sagga and Baldimtsi, 2018).

    If n and φ(n) share a prime s, as they do where p² | n or p | q − 1, then units have s times as
    many n-th roots of 1 at least: one unit in s, or fewer, is an n-th power. As no prime below 2^16
    divides n, `ROOTS` random units are all n-th powers with a probability below 2^-128. And if they
    share none, the only n-th root of 1 is 1.

    Guarantee: another n passes with a probability below 2^-128 for every n that its maker tries,
        if SHAKE256 is a random function.
    Cost: `ROOTS` powers modulo n: 0.1 s at 3072 bits.
    """
    lib = library()
    if len(roots) != ROOTS or lib.gcd(n, _small_primes()) != 1:
        return False
    return all(
        lib.gcd(asked, n) == 1 and 0 < root < n and lib.powmod(root, n, n) == asked
        for asked, root in zip(_challenges(n), roots, strict=True)
    )


def _challenges(n: int) -> list[int]:
    """Return numbers modulo n that nobody chooses, uniform to 2^-128."""
    size = (int(n).bit_length() + 7) // 8
    text = b"tacit paillier roots 1\0" + int(n).to_bytes(size, "big")
    drawn = (hashlib.shake_256(text + bytes([at])).digest(size + 16) for at in range(ROOTS))
    return [int.from_bytes(one, "big") % int(n) for one in drawn]


@cache
def _small_primes() -> Any:
    """Return the product of all primes below 2^16."""
    return library().primorial(1 << _LEAST_FACTOR_BITS)


def _factors(number: int) -> tuple[int, ...]:
    found, divisor = [], 3
    while divisor * divisor <= number:
        if number % divisor == 0:
            found.append(divisor)
            while number % divisor == 0:
                number //= divisor
        divisor += 2
    return tuple(found) if number == 1 else (*found, number)


class FixedBase:
    """Powers of one base: a table once, then one product for every few bits of the exponent."""

    def __init__(self, base: int, modulus: int, bits: int, window: int) -> None:
        lib = library()
        self._modulus = lib.mpz(modulus)
        self._window = window
        self._mask = (1 << window) - 1
        self._tables = []
        start = lib.mpz(base)
        for _ in range(-(-bits // window)):
            row = [lib.mpz(1)]
            for _ in range(self._mask):
                row.append(row[-1] * start % self._modulus)
            self._tables.append(row)
            start = row[-1] * start % self._modulus

    def power(self, exponent: int) -> Any:
        """Return base^exponent."""
        found, modulus = library().mpz(1), self._modulus
        for row in self._tables:
            digit = exponent & self._mask
            if digit:
                found = found * row[digit] % modulus
            exponent >>= self._window
        return found


def multiply_powers(bases: Sequence[Any], exponents: Numbers, modulus: Any) -> Any:
    """Return Π baseᵢ^exponentᵢ for whole numbers of either sign, by buckets (Pippenger).

    Every base goes into one bucket for every few bits of its exponent; what is left does not grow
    with the number of bases.
    """
    lib = library()
    up = _powers_up(bases, np.where(exponents > 0, exponents, 0), modulus)
    down = _powers_up(bases, np.where(exponents < 0, -exponents, 0), modulus)
    return up if down == 1 else up * lib.invert(down, modulus) % modulus


def _powers_up(bases: Sequence[Any], exponents: Numbers, modulus: Any) -> Any:
    one = library().mpz(1)
    places = np.flatnonzero(exponents)
    if not places.size:
        return one
    kept = exponents[places]
    bits = int(kept.max()).bit_length()
    window = min(range(1, bits + 1), key=lambda w: -(-bits // w) * (places.size + (2 << w)))
    total = one
    for step in reversed(range(-(-bits // window))):
        for _ in range(window if total != 1 else 0):
            total = total * total % modulus
        digits = (kept >> (step * window)) & ((1 << window) - 1)
        total = total * _bucketed(bases, places, digits, modulus) % modulus
    return total


def _bucketed(bases: Sequence[Any], places: Numbers, digits: Numbers, modulus: Any) -> Any:
    """Return Π base^digit: Σ digit · x is the sum of the sums from each digit upwards."""
    buckets: dict[int, Any] = {}
    for place, digit in zip(places.tolist(), digits.tolist(), strict=True):
        if digit:
            kept = buckets.get(digit)
            buckets[digit] = bases[place] if kept is None else kept * bases[place] % modulus
    running = total = library().mpz(1)
    for digit in range(max(buckets, default=0), 0, -1):
        if digit in buckets:
            running = running * buckets[digit] % modulus
        if running != 1:
            total = total * running % modulus
    return total
