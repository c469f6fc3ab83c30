"""SEAL through TenSEAL's `sealapi`: rings, keys, and coefficients in and out of its own format.

`sealapi` sets no coefficients and reads files only: `saved` writes them around coefficients, into
a file in memory, and takes them apart.
"""

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.crypto.cipher.contract import Randomness
from tacit.crypto.cipher.saved import (
    SEED_BYTES,
    Form,
    Residues,
    Words,
    cipher_form,
    framed,
    library,
    loaded,
    pack,
    plain_form,
    saved,
    unpack,
)
from tacit.errors import ConfigError, DataError

FLOOD_BITS = 70
"""Of the noise that drowns what a product leaves of its factors: see `SealKeys.flooded`."""
_LIMB_BITS = 32


@dataclass(frozen=True, kw_only=True)
class Ring:
    """Parameters that both sides take from here, not from each other.

    All primes of the ciphertext modulus are 1 modulo the plain one, a power of two: so is their
    product, and a plaintext that wraps round adds 1 to the noise instead of a random number.
    """

    degree: int
    plain_bits: int
    primes: int
    special_bits: int

    @cached_property
    def moduli(self) -> tuple[int, ...]:
        """Return the primes of the ciphertext modulus, largest first; the last is for keys."""
        found = primes_of(60, max(1 << self.plain_bits, 2 * self.degree), self.primes)
        return (*found, *primes_of(self.special_bits, 2 * self.degree, 1))

    @cached_property
    def plain_modulus(self) -> int:
        """Return the modulus of the numbers."""
        return 1 << self.plain_bits

    @cached_property
    def context(self) -> Any:
        """Return SEAL's context, which checks 128 bits of security itself."""
        lib = library()
        parameters = lib.EncryptionParameters(lib.SCHEME_TYPE.BFV)
        parameters.set_poly_modulus_degree(self.degree)
        parameters.set_coeff_modulus([lib.Modulus(one) for one in self.moduli])
        parameters.set_plain_modulus(lib.Modulus(self.plain_modulus))
        context = lib.SEALContext(parameters, True, lib.SEC_LEVEL_TYPE.TC128)
        if not context.parameters_set():
            raise ConfigError("SEAL refuses the parameters of bfv; which TenSEAL is installed?")
        return context

    def residues(self, level: int) -> Residues:
        """Return the coefficients of a polynomial that has left ``level`` primes behind.

        SealKeys are at level -1: they have a prime more than ciphertexts.
        """
        return Residues(self.degree, self.moduli[: self.primes - level])

    def wire_bytes(self, level: int, *, is_seeded: bool) -> int:
        """Return the one length of a ciphertext, or of a part of a key."""
        one = self.residues(level).nbytes
        return one + SEED_BYTES if is_seeded else 2 * one

    def form(self, level: int, *, is_seeded: bool) -> Form:
        """Return how SEAL saves a ciphertext or public key."""
        parms_id, residues = self.parms_id(level), self.residues(level)
        return cipher_form(parms_id, residues, is_ntt=level < 0, is_seeded=is_seeded)

    def parms_id(self, level: int) -> bytes:
        """Return SEAL's name of the parameters of a level."""
        if level < 0:
            return struct.pack("<4Q", *self.context.key_parms_id())
        data = self.context.first_context_data()
        for _ in range(level):
            data = data.next_context_data()
        return struct.pack("<4Q", *data.parms_id())

    def plaintext(self, coefficients: Words) -> Any:
        """Make a plaintext of coefficients below the plain modulus."""
        count = struct.pack("<Q", len(coefficients))
        words = framed(count + coefficients.astype("<u8").tobytes())
        file = framed(bytes(32) + count + struct.pack("<d", 1.0), *words)
        return loaded(library().Plaintext(), self.context, unpack(file, b""))

    def noise(self, like: Any, residues: Words) -> Any:
        """Make a ciphertext of nothing but noise, by its residues modulo the primes of another."""
        level = self.primes - like.coeff_modulus_size()
        data = self.residues(level).pack(residues.astype("<u8").tobytes())
        file = unpack(self.form(level, is_seeded=False), data + bytes(len(data)))
        return loaded(library().Ciphertext(), self.context, file)


def primes_of(bits: int, step: int, count: int) -> list[int]:
    """Return the largest primes of so many bits that are 1 modulo a power of two."""
    found: list[int] = []
    one = (1 << bits) - step + 1
    while len(found) < count:
        if _is_prime(one):
            found.append(one)
        one -= step
    return found


def _is_prime(number: int) -> bool:
    """Test a number below 2^64 by Miller and Rabin, with bases that decide it."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        power = pow(base, odd, number)
        if power in (1, number - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True


class SealKeys:
    """One ring's public key, and what can be done with it."""

    def __init__(self, ring: Ring, data: bytes) -> None:
        lib = library()
        self.ring = ring
        file = unpack(ring.form(-1, is_seeded=False), data)
        key = loaded(lib.PublicKey(), ring.context, file)
        if key.data().is_transparent():
            raise DataError("got a public key of bfv that hides nothing")
        self._encryptor = lib.Encryptor(ring.context, key)
        self._evaluator = lib.Evaluator(ring.context)

    def encrypt(self, coefficients: Words) -> Any:
        """Encrypt with the public key."""
        out = library().Ciphertext()
        self._encryptor.encrypt(self.ring.plaintext(coefficients), out)
        return out

    def zero(self) -> Any:
        """Encrypt nothing."""
        out = library().Ciphertext()
        self._encryptor.encrypt_zero(out)
        return out

    def add(self, first: Any, second: Any) -> Any:
        """Add two ciphertexts."""
        out, one, two = library().Ciphertext(), self.opened(first), self.opened(second)
        try:
            self._evaluator.add(one, two, out)
        except RuntimeError:  # one undoes the other: nothing would hide what is left
            self._evaluator.add(one, self.zero(), out)
            self._evaluator.add_inplace(out, two)
        return out

    def add_plain(self, part: Any, coefficients: Words) -> Any:
        """Add plain coefficients."""
        out = library().Ciphertext()
        self._evaluator.add_plain(self.opened(part), self.ring.plaintext(coefficients), out)
        return out

    def to_ntt(self, part: Any) -> Any:
        """Bring a ciphertext to the form in which products are cheap."""
        out = library().Ciphertext()
        self._evaluator.transform_to_ntt(self.opened(part), out)
        return out

    def from_ntt(self, part: Any) -> Any:
        """Bring a ciphertext back."""
        self._evaluator.transform_from_ntt_inplace(part)
        return part

    def prepare(self, coefficients: Words) -> Any:
        """Bring plain weights to the form in which products are cheap."""
        out, context = library().Plaintext(), self.ring.context
        self._evaluator.transform_to_ntt(
            self.ring.plaintext(coefficients), context.first_parms_id(), out
        )
        return out

    def multiply_add(self, total: Any, part: Any, factor: Any) -> Any:
        """Return total + part · factor, all in the form for products."""
        out = library().Ciphertext()
        try:
            self._evaluator.multiply_plain(part, factor, out)
            if total is None:
                return out
            self._evaluator.add_inplace(total, out)
        except RuntimeError as error:
            raise DataError("got ciphertexts of bfv of which one undoes another") from error
        return total

    def draw_plain(self, randomness: Randomness) -> Words:
        """Draw uniform coefficients."""
        drawn = np.frombuffer(randomness(8 * self.ring.degree), "<u8").astype(np.uint64)
        return drawn & np.uint64((1 << self.ring.plain_bits) - 1)

    def flooded(self, part: Any, mask: Words, randomness: Randomness) -> Any:
        """Return the same numbers plus a mask, with noise that says nothing of how they came.

        One prime is left behind: what then remains of the noise is how it was rounded, at most
        2^13. A fresh encryption of 0 and noise uniform over 2^70 drown it; then another prime is
        left behind, for the length.
        """
        lib, ring = library(), self.ring
        out, zero = lib.Ciphertext(), lib.Ciphertext()
        self._evaluator.mod_switch_to_next(self.opened(part), out)
        self._encryptor.encrypt_zero(out.parms_id(), zero)
        self._evaluator.add_inplace(out, zero)
        noise = flood(ring, FLOOD_BITS, ring.primes - 1, randomness)
        self._evaluator.add_inplace(out, ring.noise(out, noise))
        self._evaluator.add_plain_inplace(out, ring.plaintext(mask))
        self._evaluator.mod_switch_to_next_inplace(out)
        return out

    def dump(self, part: Any, level: int) -> bytes:
        """Return what is sent of a ciphertext; those that the key owner made are ready."""
        if isinstance(part, bytes):
            return part
        return pack(self.ring.form(level, is_seeded=False), saved(part))

    def load(self, data: bytes, level: int, *, is_seeded: bool) -> Any:
        """Read what a peer sent, or refuse it."""
        file = unpack(self.ring.form(level, is_seeded=is_seeded), data)
        found = loaded(library().Ciphertext(), self.ring.context, file)
        if found.is_transparent():
            raise DataError("got a ciphertext of bfv that hides nothing")
        return found

    def opened(self, part: Any) -> Any:
        """Return a ciphertext, also of what the key owner has as bytes."""
        return self.load(part, 0, is_seeded=True) if isinstance(part, bytes) else part


class OwnKeys:
    """One ring's secret key: a new one, or one that `to_bytes` wrote."""

    def __init__(self, ring: Ring, kept: tuple[bytes, bytes] | None = None) -> None:
        lib = library()
        self.ring = ring
        if kept is None:
            maker, public = lib.KeyGenerator(ring.context), lib.PublicKey()
            maker.create_public_key(public)
            self.public = pack(ring.form(-1, is_seeded=False), saved(public))
            self._secret = maker.secret_key()
        else:
            self.public, data = kept
            self._secret = loaded(lib.SecretKey(), ring.context, unpack(self._form, data))
        self._encryptor = lib.Encryptor(ring.context, self._secret)
        self._decryptor = lib.Decryptor(ring.context, self._secret)

    @property
    def _form(self) -> Form:
        """Return how SEAL saves the secret key."""
        return plain_form(self.ring.parms_id(-1), self.ring.residues(-1))

    def to_bytes(self) -> bytes:
        """Write the secret key."""
        return pack(self._form, saved(self._secret))

    def encrypt(self, coefficients: Words) -> bytes:
        """Encrypt with the secret key: half a ciphertext, and the seed of the other half."""
        sealed = self._encryptor.encrypt_symmetric(self.ring.plaintext(coefficients))
        return pack(self.ring.form(0, is_seeded=True), saved(sealed))

    def decrypt(self, part: Any, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the coefficients at some places, around zero."""
        found, bits = library().Plaintext(), self.ring.plain_bits
        self._decryptor.decrypt(part, found)
        count = found.coeff_count()
        words = [found[at] if at < count else 0 for at in places.tolist()]
        return centred(np.array(words, dtype=np.uint64), bits)


def centred(words: Words, bits: int) -> npt.NDArray[np.int64]:
    """Return residues modulo a power of two as numbers around zero."""
    return (words << np.uint64(64 - bits)).view(np.int64) >> np.int64(64 - bits)


def flood(ring: Ring, bits: int, kept: int, randomness: Randomness) -> Words:
    """Draw noise uniform over 2^bits around zero, as residues modulo the first ``kept`` primes."""
    limbs = -(-bits // _LIMB_BITS)
    drawn = np.frombuffer(randomness(4 * limbs * ring.degree), "<u4").astype(np.uint64)
    drawn = drawn.reshape(limbs, ring.degree)
    drawn[0] >>= np.uint64(_LIMB_BITS * limbs - bits)
    rows = []
    for prime in ring.moduli[:kept]:
        modulus = np.uint64(prime)
        found = drawn[0] % modulus
        for limb in drawn[1:]:
            for _ in range(_LIMB_BITS):  # doubled, because a product would not fit a word
                found = found + found
                found -= modulus * (found >= modulus)
            found = (found + limb) % modulus
        middle = pow(2, bits - 1, prime)
        rows.append((found + np.uint64(prime - middle)) % modulus)
    return np.stack(rows)
