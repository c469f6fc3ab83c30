"""Ring-LWE with plaintexts modulo 2^64: one party's numbers times another's, exactly, in shares.

SEAL's plaintext modulus ends at 60 bits, and shares of words need 64: so the ring is written here.
A number m is encoded as ⌊q·m / 2^64⌋ and stands in a coefficient; a product with plain numbers is
one of polynomials. Whoever multiplied re-randomises with the public key, drowns the noise, divides
the modulus down to three primes and keeps to itself every coefficient that holds no result.

Parameters: degree 8192, seven primes of 31 bits (below 218 bits in all: 128 bits of security by the
HomomorphicEncryption.org standard, 2018), a ternary secret, centred binomial noise of 42 bits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tacit.crypto.joint import loops
from tacit.crypto.joint.loops import Residues, Small, Words
from tacit.errors import DataError

Randomness = Callable[[int], bytes]
"""Returns as many uniform bytes as it is asked for."""

DEGREE = 8192
PRIMES, KEPT = 7, 3
SEED_BYTES = 16
FRESH_BYTES = PRIMES * DEGREE * 4
"""Of a fresh ciphertext beside its seed."""
FLOOD_BITS = 144
"""The noise of a product with uniform words has a standard deviation of 2^70.4 times the root of
how many ciphertexts are added up, so it stays below 2^80 where those are 64 (97 deviations). What
drowns it is 2^64 times as large, and takes 2^-8 of the room that a result has."""
_WORD = 1 << 64


@dataclass(frozen=True)
class _Tables:
    """What the loops need of every prime."""

    primes: tuple[int, ...]
    moduli: Words
    constants: Words
    roots: Residues
    quotients: Residues
    back: Residues
    back_quotients: Residues
    inverses: Words


def _find_primes() -> tuple[int, ...]:
    found: list[int] = []
    one = (1 << 31) + 1
    while len(found) < PRIMES:
        one -= 2 * DEGREE
        if all(one % small for small in range(3, 46341, 2)):
            found.append(one)
    return tuple(found)


@cache
def tables() -> _Tables:
    """Compute the tables once."""
    primes = _find_primes()
    roots = np.zeros((PRIMES, DEGREE), np.uint64)
    back = np.zeros((PRIMES, DEGREE), np.uint64)
    bits = DEGREE.bit_length() - 1
    order = [int(f"{at:0{bits}b}"[::-1], 2) for at in range(DEGREE)]
    for i, p in enumerate(primes):
        root = next(
            found
            for base in range(2, 1000)
            if pow(found := pow(base, (p - 1) // (2 * DEGREE), p), DEGREE, p) == p - 1
        )
        powers = [1]
        for _ in range(2 * DEGREE - 1):
            powers.append(powers[-1] * root % p)
        roots[i] = [powers[at] for at in order]
        back[i] = [powers[-at % (2 * DEGREE)] for at in order]
        back[i, 0] = pow(DEGREE, -1, p)
    moduli = np.array(primes, np.uint64)
    constants = [(p, -pow(p, -1, 1 << 32) % (1 << 32), _WORD % p, (1 << 96) % p) for p in primes]
    inverses = [[pow(k, -1, p) * (1 << 32) % p if k != p else 0 for p in primes] for k in primes]
    return _Tables(
        primes,
        moduli,
        np.array(constants, np.uint64),
        roots.astype(np.uint32),
        ((roots << np.uint64(32)) // moduli[:, None]).astype(np.uint32),
        back.astype(np.uint32),
        ((back << np.uint64(32)) // moduli[:, None]).astype(np.uint32),
        np.array(inverses, np.uint64),
    )


def _transformed(polys: Residues) -> Residues:
    known = tables()
    loops.transform(polys, known.moduli, known.roots, known.quotients)
    return polys


def prepare(words: Words) -> Residues:
    """Bring plain polynomials of words (count, degree) to the form in which they multiply."""
    out = np.empty((len(words), PRIMES, DEGREE), np.uint32)
    loops.reduce_words(words, tables().constants, out)
    return _transformed(out)


def _added(polys: Residues, words: Words, factors: list[list[int]]) -> Residues:
    """Add words (terms, count, n) times factors (terms, primes) in place, and return the sum."""
    loops.add_words(polys, words, np.array(factors, np.uint64), tables().constants)
    return polys


def encode(words: Words, primes: int) -> Residues:
    """Give ⌊q·m / 2^64⌋ modulo the first primes: (count, n) to (count, primes, n)."""
    return _add_encoded(np.zeros((len(words), primes, words.shape[-1]), np.uint32), words)


def _add_encoded(polys: Residues, words: Words) -> Residues:
    """Add what `encode` gives of words, in place.

    As q is zero modulo each prime, that is the remainder of q·m modulo 2^64, negated, over 2^64.
    """
    known = tables().primes[: polys.shape[1]]
    rest = words * np.uint64(prod(known) % _WORD)
    return _added(polys, rest[None], [[-pow(_WORD, -1, p) % p for p in known]])


def _uniform(count: int, randomness: Randomness) -> Residues:
    """Draw polynomials that are uniform modulo each prime: what is too large is left out."""
    out = np.empty((count, PRIMES, DEGREE), np.uint32)
    for one in out:
        for i, p in enumerate(tables().primes):
            found = np.empty(0, np.uint32)
            while len(found) < DEGREE:
                drawn = np.frombuffer(randomness(4 * DEGREE + 256), "<u4") >> np.uint32(1)
                found = np.concatenate((found, drawn[drawn < p]))
            one[i] = found[:DEGREE]
    return out


def _noise(count: int, randomness: Randomness) -> Small:
    """Draw centred binomial noise of 21 bits less 21 bits, a variance of 10.5."""
    drawn = np.frombuffer(randomness(8 * count * DEGREE), "<u8").reshape(count, DEGREE)
    low = np.bitwise_count(drawn & np.uint64((1 << 21) - 1)).astype(np.int8)
    found: Small = low - np.bitwise_count(drawn >> np.uint64(43)).astype(np.int8)
    return found


def _ternary(randomness: Randomness) -> Residues:
    """Draw a polynomial of -1, 0 and 1, uniform."""
    found = np.empty(0, np.uint8)
    while len(found) < DEGREE:
        drawn = np.frombuffer(randomness(DEGREE + 256), np.uint8)
        found = np.concatenate((found, drawn[drawn < 255]))
    out = np.zeros((1, PRIMES, DEGREE), np.uint32)
    loops.add_small(out, (found[None, :DEGREE] % 3).astype(np.int8) - np.int8(1), tables().moduli)
    return out


def _factor(polys: Residues) -> Residues:
    """Bring transformed polynomials to the form of a factor: times 2^32."""
    shifted = (polys.astype(np.uint64) << np.uint64(32)) % tables().moduli[:, None]
    return shifted.astype(np.uint32)


def _negated(polys: Residues) -> Residues:
    primes = tables().moduli.astype(np.uint32)[:, None]
    return np.where(polys == 0, polys, primes - polys)


class LatticeKey:
    """One party's key; what it encrypts, another multiplies and sends back masked.

    Guarantee: ciphertexts say nothing to whoever has no key, if Ring-LWE is hard at these
        parameters (128 bits by the standard's table).
    Cost: about 0.6 ms to encrypt and 0.3 ms to decrypt 8192 words, on one core.
    """

    def __init__(self, randomness: Randomness) -> None:
        secret = _transformed(_ternary(randomness))
        self._secret = _factor(secret)[0]
        self.public, self.public_seed = self._masked(np.zeros((1, DEGREE), np.uint64), randomness)

    def encrypt(self, words: Words, randomness: Randomness) -> tuple[Residues, bytes]:
        """Encrypt polynomials (count, degree): half of each ciphertext, and the others' seed."""
        return self._masked(words, randomness)

    def _masked(self, words: Words, randomness: Randomness) -> tuple[Residues, bytes]:
        seed = randomness(SEED_BYTES)
        out = encode(words, PRIMES)
        loops.add_small(out, _noise(len(words), randomness), tables().moduli)
        _transformed(out)
        uniform = _negated(expand(seed, len(words)))
        for one, mask in zip(out, uniform, strict=True):
            loops.multiply_add(one, mask, self._secret, tables().constants)
        return out, seed

    def decrypt(self, second: Residues, first: Residues, places: Words) -> Words:
        """Return the words at some places of every product.

        Args:
            second: (count, KEPT, degree), the half that the secret multiplies.
            first: (count, KEPT, places), the other half at those places.
            places: which coefficients they are.
        """
        known = tables()
        full = np.zeros((len(second), PRIMES, DEGREE), np.uint32)
        full[:, :KEPT] = second
        _transformed(full)
        product = np.zeros_like(full)
        for total, one in zip(product, full, strict=True):
            loops.multiply_add(total, one, self._secret, known.constants)
        loops.restore(product, known.moduli, known.back, known.back_quotients)
        phase = product[:, :KEPT, places].astype(np.uint64) + first
        return _rounded(phase % known.moduli[:KEPT, None])


def _rounded(phase: Words) -> Words:
    """Give 2^64 times a number (…, KEPT, n) over its modulus, rounded, modulo 2^64."""
    primes = tables().primes[:KEPT]
    whole = np.zeros((len(phase), phase.shape[-1]), np.uint64)
    part = np.zeros(whole.shape)
    shift = np.uint64(32)
    for i, p in enumerate(primes):
        inverse = pow(prod(primes) // p, -1, p)
        rest = phase[:, i] * np.uint64(inverse) % np.uint64(p)
        for place in (shift, np.uint64(0)):
            rest = rest << shift
            whole += (rest // np.uint64(p)) << place
            rest %= np.uint64(p)
        part += rest / p
    return whole + np.rint(part).astype(np.uint64)


def expand(seed: bytes, count: int) -> Residues:
    """Draw the halves of ciphertexts that both sides know, from their seed."""
    stream = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    return _uniform(count, lambda size: stream.update(bytes(size)))


def check_residues(polys: Residues, kinds: int) -> Residues:
    """Refuse what no ciphertext can hold: (count, primes, n) of numbers below their primes.

    Raises:
        DataError: a number is not below its prime.
    """
    if polys.size and bool((polys >= tables().moduli[:kinds, None]).any()):
        raise DataError(
            "got a ciphertext that is malformed: a residue is not below its prime; both parties "
            "must run the same version of tacit"
        )
    return polys


@dataclass(frozen=True, eq=False)
class Sealed:
    """Ciphertexts of another party's polynomials, both halves, in the form for products."""

    first: Residues
    second: Residues

    @classmethod
    def load(cls, first: Residues, seed: bytes) -> "Sealed":
        """Take what `LatticeKey.encrypt` gave."""
        return cls(check_residues(first, PRIMES), expand(seed, len(first)))


class Products:
    """Sums of products of ciphertexts and plain polynomials, under another party's public key.

    Guarantee: what `released` gives tells the key owner the words at the places, under their
        masks, and nothing else: the rest of the first half is not sent, the second half looks
        uniform if Ring-LWE is hard, and noise of 2^144 drowns that of the product, which is below
        2^80: a distance of 2^-64 for each word that is sent.
    """

    def __init__(self, public: Residues, seed: bytes) -> None:
        self._first = _factor(check_residues(public, PRIMES))[0]
        self._second = _factor(expand(seed, 1))[0]

    @staticmethod
    def empty(count: int) -> tuple[Residues, Residues]:
        """Begin sums."""
        shape = (count, PRIMES, DEGREE)
        return np.zeros(shape, np.uint32), np.zeros(shape, np.uint32)

    @staticmethod
    def add(
        total: tuple[Residues, Residues], at: int, sealed: Sealed, which: int, factor: Residues
    ) -> None:
        """Add one ciphertext times a plain polynomial of `prepare` to one of the sums."""
        constants = tables().constants
        loops.multiply_add(total[0][at], sealed.first[which], factor, constants)
        loops.multiply_add(total[1][at], sealed.second[which], factor, constants)

    def released(
        self,
        total: tuple[Residues, Residues],
        places: Words,
        masks: Words,
        randomness: Randomness,
    ) -> tuple[Residues, Residues]:
        """Re-randomise, add masks (count, places) of words, drown the noise and divide down.

        A mask comes before the flood: it is rounded to a whole number as the product is, and what
        two roundings add up to tells of the product unless it is drowned.

        Returns:
            The second halves (count, KEPT, degree), and the first (count, KEPT, places).
        """
        known = tables()
        firsts, seconds = total
        for first, second in zip(firsts, seconds, strict=True):
            blind = _transformed(_ternary(randomness))[0]
            loops.multiply_add(first, blind, self._first, known.constants)
            loops.multiply_add(second, blind, self._second, known.constants)
        for half in (firsts, seconds):
            loops.restore(half, known.moduli, known.back, known.back_quotients)
        hiding = np.zeros((len(firsts), DEGREE), np.uint64)
        hiding[:, places] = masks
        _add_encoded(firsts, hiding)
        _flood(firsts, randomness)
        loops.add_small(seconds, _noise(len(seconds), randomness), known.moduli)
        for half in (firsts, seconds):
            loops.drop_primes(half, KEPT, known.constants, known.inverses)
        return seconds[:, :KEPT], firsts[:, :KEPT][:, :, places]


def _flood(polys: Residues, randomness: Randomness) -> None:
    """Add noise uniform below 2^FLOOD_BITS."""
    count = len(polys)
    drawn = np.frombuffer(randomness(24 * count * DEGREE), "<u8").reshape(3, count, DEGREE)
    words = drawn.astype(np.uint64)
    words[2] >>= np.uint64(3 * 64 - FLOOD_BITS)
    _added(polys, words, [[(1 << 64 * at) % p for p in tables().primes] for at in range(3)])
