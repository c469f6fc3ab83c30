"""Paillier's cipher (1999): sums of packed numbers, with room kept between them."""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any

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
from tacit.crypto.cipher.numbers import (
    ROOTS,
    FixedBase,
    draw_below,
    draw_factored_prime,
    is_permutation,
    library,
    multiply_powers,
    prove_permutation,
)
from tacit.errors import DataError, InputError, RangeError

BITS = 3072
"""Of the modulus: 128 bits of security."""
LEAST_BITS = 2048
_HIDING_BITS = 128
_WINDOW, _OWN_WINDOW = 6, 8


class PaillierPublicKey(PublicKey):
    """The modulus n, and a number of which powers hide plaintexts.

    Guarantee: whoever has not the secret key learns nothing but layouts, if deciding composite
        residues modulo n² is hard; random powers are of a generator of all residues with Jacobi
        symbol 1 (Damgård, Jurik and Nielsen), with exponents longer than its order by 128 bits, so
        that nothing else is assumed. A `released` result tells the key owner its numbers and
        nothing of the matrix that weighed them, but for how long the work took: exponentiations
        take time that depends on the weights. Ciphertexts are not authenticated.
        That holds for every key that a peer may have sent, also for a second number that hides
        nothing: what is released is hidden by the n-th power of a number drawn here, and `roots`
        prove (`is_permutation`) that these, times powers of 1 + n, are all residues modulo n². It
        does not hold for numbers that a key owner encrypts beyond what it agreed to: their sum
        tells it which were added.
    Cost: two key lengths of bytes for every ciphertext, into which as many numbers are packed as
        fit with their guard bits; in form ``rows`` one for every row. 0 rounds. 0.1 s at 3072 bits
        to check the proof, when the key is read.
    """

    scheme = "paillier"

    def __init__(self, modulus: int, hider: int, roots: tuple[int, ...]) -> None:
        lib = library()
        self.n = lib.mpz(modulus)
        self.square = self.n * self.n
        self._hider, self._roots = lib.mpz(hider), roots
        bits = self.n.bit_length()
        if bits < LEAST_BITS or bits % 16 or lib.is_prime(self.n):
            raise DataError(
                f"wanted a Paillier modulus of two primes and {LEAST_BITS} bits or more, in steps "
                f"of 16, got another number of {bits} bits"
            )
        if not is_permutation(self.n, roots):
            raise DataError(
                "the proof of a Paillier key does not hold: its modulus is not the product of two "
                "large primes that divide neither of p - 1 and q - 1, or the proof is another's"
            )
        if not 1 < hider < self.square or lib.gcd(hider, self.n) != 1:
            raise DataError("the second number of a Paillier key is out of range")
        self._bytes = (self.square.bit_length() + 7) // 8
        self.key_id = hashlib.sha256(b"tacit paillier 1\0" + self.to_bytes()).digest()[
            :KEY_ID_BYTES
        ]

    def to_bytes(self) -> bytes:
        """Return n, the number of which powers hide, and the proof about n."""
        size = self._bytes // 2
        hider = int(self._hider).to_bytes(2 * size, "big")
        proof = b"".join(one.to_bytes(size, "big") for one in self._roots)
        return int(self.n).to_bytes(size, "big") + hider + proof

    def per_part(self, layout: CipherLayout) -> int:
        """Return how many numbers lie in one ciphertext."""
        return per_part(layout, self.n.bit_length())

    def part_bytes(self, layout: CipherLayout) -> tuple[int, ...]:
        """Return the same length for every part."""
        return (self._bytes,) * -(-layout.size // self.per_part(layout))

    def encrypt(self, numbers: Numbers, layout: CipherLayout, randomness: Randomness) -> Ciphertext:
        """Encrypt with powers of the public number."""
        check_fresh(numbers, layout, is_owner=False)
        parts = (
            self.raise_plain(word) * self.hide(randomness) % self.square
            for word in self.packed(numbers, layout)
        )
        return self._made(layout, tuple(parts))

    def weigh(self, matrix: Numbers, sealed: Ciphertext) -> Ciphertext:
        """Multiply powers of the rows; a row of zeros and ones costs one product for every one."""
        layout = self._weighed(matrix, sealed)
        parts = tuple(multiply_powers(sealed.parts, row, self.square) for row in matrix)
        return self._made(layout, parts)

    def gather(self, places: Numbers, outputs: int, sealed: Ciphertext) -> Ciphertext:
        """Multiply rows into their outputs: one product for every row."""
        layout, square = self._gathered(places, outputs, sealed), self.square
        totals = [library().mpz(1)] * outputs
        for at, part in zip(places.tolist(), sealed.parts, strict=True):
            if at >= 0:
                totals[at] = totals[at] * part % square
        return self._made(layout, tuple(totals))

    def scale(self, sealed: Ciphertext, factors: Numbers) -> Ciphertext:
        """Raise every row to a power of its own."""
        self._check(sealed, "rows")
        if factors.dtype != np.int64 or factors.shape != (sealed.layout.rows,):
            raise DataError(
                f"wanted {sealed.layout.rows} int64 factors, got {factors.dtype} of shape "
                f"{factors.shape}"
            )
        lib, largest = library(), max(1, int(np.abs(factors).max()))
        layout = replace(sealed.layout, bound=sealed.layout.bound * largest, by_owner=False)
        parts = (
            lib.powmod(part if by >= 0 else lib.invert(part, self.square), abs(by), self.square)
            for part, by in zip(sealed.parts, factors.tolist(), strict=True)
        )
        return self._made(layout, tuple(parts))

    def take(self, sealed: Ciphertext, rows: Numbers) -> Ciphertext:
        """Return some of the rows."""
        self._check(sealed, "rows")
        layout = replace(sealed.layout, rows=len(rows))
        return self._made(layout, tuple(sealed.parts[at] for at in rows.tolist()))

    def release(self, sealed: Ciphertext, randomness: Randomness) -> Ciphertext:
        """Pack rows into as few ciphertexts as hold them, and hide each anew."""
        self._check(sealed, "result")
        layout = replace(sealed.layout, form="released")
        together = self.per_part(layout) // self.per_part(sealed.layout)
        parts = [
            self._joined(sealed.parts[at : at + together], slot_bits(layout) * layout.width)
            * self._hide_from_owner(randomness)
            % self.square
            for at in range(0, len(sealed.parts), together)
        ]
        return self._made(layout, tuple(parts))

    def mask(self, sealed: Ciphertext, randomness: Randomness) -> tuple[Ciphertext, Residues]:
        """Add uniform plaintexts modulo n: what is sent is uniform modulo n², as `roots` prove."""
        released = self.release(sealed, randomness)
        drawn = tuple(draw_below(int(self.n), randomness) for _ in released.parts)
        parts = (
            part * self.raise_plain(word) % self.square
            for part, word in zip(released.parts, drawn, strict=True)
        )
        return self._made(released.layout, tuple(parts)), drawn

    def unmask(self, opened: bytes, mask: Residues, layout: CipherLayout) -> Numbers:
        """Subtract modulo n and take the plaintexts apart."""
        size = self._bytes // 2
        self._check_opened(opened, layout)
        words = (
            int.from_bytes(opened[at : at + size], "big") for at in range(0, len(opened), size)
        )
        return self.unpacked(
            ((one - int(hidden)) % self.n for one, hidden in zip(words, mask, strict=True)), layout
        )

    def opened_bytes(self, layout: CipherLayout) -> int:
        """Return the length of all plaintexts."""
        return int(self._bytes) // 2 * len(self.part_bytes(layout))

    def _joined(self, parts: tuple[Any, ...], bits: int) -> Any:
        """Put the first part lowest, every further one ``bits`` above the one before."""
        lib, found = library(), parts[-1]
        for part in reversed(parts[:-1]):
            found = lib.powmod(found, 1 << bits, self.square) * part % self.square
        return found

    def hide(self, randomness: Randomness) -> Any:
        """Return a random encryption of 0."""
        exponent = draw_below(1 << (self.n.bit_length() + _HIDING_BITS), randomness)
        return self._powers.power(exponent)

    def _hide_from_owner(self, randomness: Randomness) -> Any:
        """Return an encryption of 0 that is uniform, whatever the key owner made of the key."""
        lib = library()
        while True:
            drawn = lib.mpz(draw_below(int(self.n), randomness))
            if lib.gcd(drawn, self.n) == 1:
                return lib.powmod(drawn, self.n, self.square)

    @cached_property
    def _powers(self) -> FixedBase:
        return FixedBase(
            self._hider, self.square, self.n.bit_length() + _HIDING_BITS, window=_WINDOW
        )

    def raise_plain(self, word: int) -> Any:
        """Return (1 + n)^word."""
        return (1 + self.n * (word % self.n)) % self.square

    def packed(self, numbers: Numbers, layout: CipherLayout) -> Iterable[int]:
        """Put numbers into plaintexts, the first lowest, each in a slot of its own."""
        bits, per = slot_bits(layout), self.per_part(layout)
        flat = numbers.reshape(-1).tolist()
        for at in range(0, len(flat), per):
            word = 0
            for one in reversed(flat[at : at + per]):
                word = (word << bits) + one
            yield word

    def unpacked(self, words: Iterable[int], layout: CipherLayout) -> Numbers:
        """Take plaintexts apart."""
        bits, per = slot_bits(layout), self.per_part(layout)
        found: list[int] = []
        middle, mask = 1 << (bits - 1), (1 << bits) - 1
        for word in words:
            rest = int(word if 2 * word < self.n else word - self.n)
            for _ in range(min(per, layout.size - len(found))):
                digit = ((rest + middle) & mask) - middle
                found.append(digit)
                rest = (rest - digit) >> bits
            if rest:
                raise DataError("a plaintext has more in it than its layout: it is of another one")
        return np.array(found, dtype=np.int64).reshape(layout.rows, layout.width)

    def _add_parts(self, first: Any, second: Any, layout: CipherLayout) -> Any:
        return first * second % self.square

    def _add_plain(self, sealed: Ciphertext, numbers: Numbers) -> tuple[object, ...]:
        words = self.packed(numbers, sealed.layout)
        return tuple(
            part * self.raise_plain(word) % self.square
            for part, word in zip(sealed.parts, words, strict=True)
        )

    def _dump_part(self, part: Any, size: int, layout: CipherLayout) -> bytes:
        return int(part).to_bytes(size, "big")

    def _load_part(self, data: bytes, layout: CipherLayout) -> object:
        lib = library()
        found = lib.mpz(int.from_bytes(data, "big"))
        if not 0 < found < self.square or lib.gcd(found, self.n) != 1:
            raise DataError("got a number that is no Paillier ciphertext of this key")
        return found


class PaillierSecretKey(SecretKey):
    """The two primes.

    Guarantee: as for the public key; encryptions of the key owner are exactly uniform among those
        of a plaintext. No guarantee against someone who measures how long decrypting takes.
    Cost: at 3072 bits about 1.3 ms to encrypt a ciphertext and 8 ms to decrypt one on one core.
    """

    public: PaillierPublicKey

    def __init__(
        self, public: PaillierPublicKey, primes: tuple[int, int], roots: tuple[int, int]
    ) -> None:
        lib = library()
        self.public = public
        self._p, self._q = (lib.mpz(one) for one in primes)
        self._roots = roots
        self._pp, self._qq = self._p**2, self._q**2
        self._lift = lib.invert(self._qq, self._pp)  # Chinese remainders modulo n²
        self._small_lift = lib.invert(self._q, self._p)
        n = public.n
        self._h_p = lib.invert((lib.powmod(1 + n, self._p - 1, self._pp) - 1) // self._p, self._p)
        self._h_q = lib.invert((lib.powmod(1 + n, self._q - 1, self._qq) - 1) // self._q, self._q)

    def fields(self) -> tuple[bytes, ...]:
        """Return the public key, the primes and their generators: the same key can be made."""
        numbers = (int(self._p), int(self._q), *self._roots)
        size = (self.public.n.bit_length() + 7) // 8
        return (self.public.to_bytes(), *(one.to_bytes(size, "big") for one in numbers))

    @property
    def order(self) -> int:
        """Return φ(n)."""
        return int((self._p - 1) * (self._q - 1))

    def encrypt(self, numbers: Numbers, layout: CipherLayout, randomness: Randomness) -> Ciphertext:
        """Encrypt modulo both primes, each with a power of its own generator."""
        check_fresh(numbers, layout, is_owner=True)
        public = self.public
        parts = []
        for word in public.packed(numbers, layout):
            on_p = self._powers_p.power(draw_below(self._p - 1, randomness))
            on_q = self._powers_q.power(draw_below(self._q - 1, randomness))
            hider = on_q + self._qq * ((on_p - on_q) * self._lift % self._pp)
            parts.append(public.raise_plain(word) * hider % public.square)
        return Ciphertext(layout=layout, key_id=public.key_id, parts=tuple(parts))

    def decrypt(self, sealed: Ciphertext) -> Numbers:
        """Decrypt modulo both primes and put the halves together."""
        self.public._check(sealed, "sum", "rows", "result", "released")
        return self.public.unpacked(map(self._decrypted, sealed.parts), sealed.layout)

    def open_masked(self, sealed: Ciphertext) -> bytes:
        """Return whole plaintexts."""
        self.public._check(sealed, "released")
        size = self.public.opened_bytes(sealed.layout) // len(sealed.parts)
        return b"".join(int(self._decrypted(one)).to_bytes(size, "big") for one in sealed.parts)

    def _decrypted(self, part: Any) -> Any:
        lib = library()
        on_p = (lib.powmod(part, self._p - 1, self._pp) - 1) // self._p * self._h_p % self._p
        on_q = (lib.powmod(part, self._q - 1, self._qq) - 1) // self._q * self._h_q % self._q
        return on_q + self._q * ((on_p - on_q) * self._small_lift % self._p)

    @cached_property
    def _powers_p(self) -> FixedBase:
        return self._powers(self._roots[0], self._p)

    @cached_property
    def _powers_q(self) -> FixedBase:
        return self._powers(self._roots[1], self._q)

    def _powers(self, root: int, prime: Any) -> FixedBase:
        base = library().powmod(root, self.public.n, prime**2)
        return FixedBase(base, prime**2, prime.bit_length(), window=_OWN_WINDOW)


def make_paillier(randomness: Randomness, bits: int = BITS) -> PaillierSecretKey:
    """Make a key pair; takes about a second at 3072 bits."""
    if bits < LEAST_BITS or bits % 16:
        raise InputError(f"wanted a key of {LEAST_BITS} bits or more, in steps of 16, got {bits}")
    lib = library()
    while True:
        (p, below_p), (q, below_q) = (draw_factored_prime(bits // 2, randomness) for _ in "pq")
        if not set(below_p) & set(below_q):
            break
    roots = _root(p, below_p, randomness), _root(q, below_q, randomness)
    n = p * q
    while True:
        drawn = draw_below(n, randomness)
        if all(
            pow(drawn, 2 * ((prime - 1) // 2 // factor), prime) != 1
            for prime, below in ((p, below_p), (q, below_q))
            for factor in below
        ):
            break
    hider = lib.powmod(n - drawn * drawn % n, n, n * n)  # −x²: generates Jacobi symbol 1
    public = PaillierPublicKey(n, int(hider), prove_permutation(p, q))
    return PaillierSecretKey(public, (p, q), roots)


def _root(prime: int, below: tuple[int, ...], randomness: Randomness) -> int:
    """Find a generator of all numbers modulo a prime."""
    lib = library()
    while True:
        found = draw_below(prime, randomness)
        if found > 1 and all(
            lib.powmod(found, (prime - 1) // factor, prime) != 1 for factor in (2, *below)
        ):
            return found


def load_paillier(data: bytes) -> PaillierPublicKey:
    """Read a public key, or refuse it."""
    count = 3 + ROOTS
    size = len(data) // count
    if len(data) % count or size * 8 < LEAST_BITS or size * 8 > 16384:
        raise DataError(f"got {len(data)} bytes, which are no Paillier key")
    n, high, low, *roots = (
        int.from_bytes(data[at : at + size], "big") for at in range(0, len(data), size)
    )
    return PaillierPublicKey(n, (high << 8 * size) + low, tuple(roots))


def per_part(layout: CipherLayout, bits: int) -> int:
    """Return how many numbers lie in one ciphertext of a key of so many bits."""
    fit = (bits - 2) // slot_bits(layout)
    whole = fit // layout.width * layout.width
    wanted = layout.width if layout.form in ("rows", "result") else whole
    if not 0 < wanted <= whole:
        raise RangeError(
            f"{layout.width} numbers with room for {layout.room} do not fit one ciphertext of "
            f"{bits} bits"
        )
    return min(wanted, layout.size)


def paillier_parts(layout: CipherLayout, bits: int) -> tuple[int, int]:
    """Return how many ciphertexts of a key of so many bits there are, and the bytes of each."""
    return -(-layout.size // per_part(layout, bits)), bits // 4


def slot_bits(layout: CipherLayout) -> int:
    """Return how many bits a number gets: its sign and its room."""
    return layout.room.bit_length() + 1
