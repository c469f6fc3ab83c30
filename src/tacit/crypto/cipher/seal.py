"""SEAL through TenSEAL's `sealapi`: rings, keys, and coefficients in and out of its own format.

`sealapi` sets no coefficients and reads files only. Plaintexts and noise are written in SEAL's
format, uncompressed, into a file in memory; ciphertexts travel as SEAL saves them, brought to one
length. SEAL compresses with Zstandard: before it reads what a peer sent, the frame is checked, so
that a few bytes cannot grow to gigabytes.
"""

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.crypto.cipher.contract import Randomness
from tacit.errors import ConfigError, DataError
from tacit.extras import install_hint

try:
    from tenseal import sealapi
except ImportError:
    sealapi = None

Words = npt.NDArray[np.uint64]
_HEADER_BYTES, _LENGTH_BYTES = 16, 4
_MODE_PLACE, _UNCOMPRESSED = 5, 0
_FRAME_MAGIC = bytes.fromhex("28b52ffd")
_SINGLE_SEGMENT = 0x20  # the content is one window; without checksum or dictionary no other flag
_LONGEST_WINDOW = 13 << 3 | 7  # the byte of a window below 16 MB, which large contents have
_BLOCK_BYTES = 1 << 17  # the most that one block of Zstandard grows to
_SPLIT = 8  # Zstandard may split blocks; memory stays below so many times the content
_FACTS_BYTES = 256  # of a ciphertext beside its coefficients, rounded up
_FLOOD_WORD_BITS, _FLOOD_MORE_BITS = 60, 10


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

    @cached_property
    def header(self) -> bytes:
        """Return how SEAL begins what this library saves."""
        return saved(library().Plaintext("1"))[:8]

    def wire_bytes(self, level: int, *, is_seeded: bool) -> int:
        """Return the one length of a ciphertext that has left ``level`` primes behind."""
        return _LENGTH_BYTES + longest(self._body_bytes(level, is_seeded))

    def _body_bytes(self, level: int, is_seeded: bool) -> int:
        polynomials = 1 if is_seeded else 2
        return polynomials * 8 * self.degree * (self.primes - level) + _FACTS_BYTES

    def plaintext(self, coefficients: Words) -> Any:
        """Make a plaintext of coefficients below the plain modulus."""
        inner = struct.pack("<Q", len(coefficients)) + coefficients.astype("<u8").tobytes()
        body = bytes(32) + struct.pack("<Qd", len(coefficients), 1.0) + self._framed(inner)
        return loaded(library().Plaintext(), self.context, self._framed(body))

    def _framed(self, body: bytes) -> bytes:
        head = bytearray(self.header)
        head[_MODE_PLACE] = _UNCOMPRESSED
        return bytes(head) + struct.pack("<Q", _HEADER_BYTES + len(body)) + body

    def noise(self, like: Any, residues: Words) -> Any:
        """Make a ciphertext of nothing but noise, by its residues modulo the primes of another."""
        count = len(residues)
        words = np.concatenate([residues.reshape(-1), np.zeros(residues.size, np.uint64)])
        inner = struct.pack("<Q", words.size) + words.astype("<u8").tobytes()
        facts = struct.pack("<BQQQdQ", 0, 2, self.degree, count, 1.0, 1)
        body = struct.pack("<4Q", *like.parms_id()) + facts + self._framed(inner)
        return loaded(library().Ciphertext(), self.context, self._framed(body))

    def check_frame(self, data: bytes, level: int, *, is_seeded: bool) -> None:
        """Refuse a ciphertext or public key that this library would not have written."""
        self.check_size(data, self._body_bytes(level, is_seeded))

    def check_size(self, data: bytes, most: int) -> None:
        """Refuse what this library would not have written, and what would grow beyond a size."""
        if len(data) <= _HEADER_BYTES or data[:8] != self.header:
            raise DataError("got bytes that are no ciphertext or key of this bfv")
        size = int.from_bytes(data[8:16], "little")
        if size != len(data) or not _is_small_frame(data[_HEADER_BYTES:], most):
            raise DataError("got a ciphertext or key of bfv of another length than it says")


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


class Keys:
    """One ring's public key, and what can be done with it."""

    def __init__(self, ring: Ring, data: bytes) -> None:
        lib = library()
        self.ring = ring
        key = lib.PublicKey()
        body = 8 * 2 * ring.degree * len(ring.moduli) + _FACTS_BYTES
        if len(data) > longest(body) + _HEADER_BYTES:
            raise DataError(f"got {len(data)} bytes, which are no public key of bfv")
        ring.check_frame(data, ring.primes - len(ring.moduli), is_seeded=False)
        self._encryptor = lib.Encryptor(ring.context, loaded(key, ring.context, data))
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
        self._evaluator.multiply_plain(part, factor, out)
        if total is None:
            return out
        self._evaluator.add_inplace(total, out)
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
        self._evaluator.add_inplace(out, ring.noise(out, _flood(ring, randomness)))
        self._evaluator.add_plain_inplace(out, ring.plaintext(mask))
        self._evaluator.mod_switch_to_next_inplace(out)
        return out

    def dump(self, part: Any, size: int) -> bytes:
        """Save a ciphertext and bring it to one length."""
        data = part if isinstance(part, bytes) else saved(part)
        room = size - _LENGTH_BYTES
        if len(data) > room:
            raise DataError(f"SEAL saved {len(data)} bytes, more than the agreed {room}")
        return len(data).to_bytes(_LENGTH_BYTES, "big") + data + bytes(room - len(data))

    def load(self, data: bytes, level: int, *, is_seeded: bool) -> Any:
        """Read what a peer sent, or refuse it."""
        size = int.from_bytes(data[:_LENGTH_BYTES], "big")
        body, rest = data[_LENGTH_BYTES:][:size], data[_LENGTH_BYTES + size :]
        if size > len(data) - _LENGTH_BYTES or any(rest):
            raise DataError("got a ciphertext of bfv whose length is another than it says")
        self.ring.check_frame(body, level, is_seeded=is_seeded)
        found = loaded(library().Ciphertext(), self.ring.context, body)
        if found.size() != 2 or found.is_ntt_form():
            raise DataError("got a ciphertext of bfv of another form than agreed")
        if found.coeff_modulus_size() != self.ring.primes - level:
            raise DataError("got a ciphertext of bfv of another modulus than agreed")
        return found

    def opened(self, part: Any) -> Any:
        """Return a ciphertext, also of what the key owner has as bytes."""
        if not isinstance(part, bytes):
            return part
        return loaded(library().Ciphertext(), self.ring.context, part)


class OwnKeys:
    """One ring's secret key: a new one, or one that `to_bytes` wrote."""

    def __init__(self, ring: Ring, kept: tuple[bytes, bytes] | None = None) -> None:
        lib = library()
        self.ring = ring
        if kept is None:
            maker, public = lib.KeyGenerator(ring.context), lib.PublicKey()
            maker.create_public_key(public)
            self.public, self._secret = saved(public), maker.secret_key()
        else:
            self.public, data = kept
            ring.check_frame(data, -1, is_seeded=True)
            self._secret = loaded(lib.SecretKey(), ring.context, data)
        self._encryptor = lib.Encryptor(ring.context, self._secret)
        self._decryptor = lib.Decryptor(ring.context, self._secret)

    def to_bytes(self) -> bytes:
        """Write the secret key."""
        return saved(self._secret)

    def encrypt(self, coefficients: Words) -> bytes:
        """Encrypt with the secret key: half a ciphertext, and the seed of the other half."""
        return saved(self._encryptor.encrypt_symmetric(self.ring.plaintext(coefficients)))

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


def _flood(ring: Ring, randomness: Randomness) -> Words:
    """Draw noise uniform over 2^70 around zero, as residues modulo all primes but one."""
    degree = ring.degree
    high = np.frombuffer(randomness(8 * degree), "<u8") >> np.uint64(64 - _FLOOD_WORD_BITS)
    low = np.frombuffer(randomness(8 * degree), "<u8") >> np.uint64(64 - _FLOOD_MORE_BITS)
    middle = 1 << (_FLOOD_WORD_BITS + _FLOOD_MORE_BITS - 1)
    rows = []
    for prime in ring.moduli[: ring.primes - 1]:
        modulus = np.uint64(prime)
        found = high % modulus
        for _ in range(_FLOOD_MORE_BITS):  # doubled, because 70 bits do not fit a word
            found = (found + found) % modulus
        rows.append((found + low + np.uint64(prime - middle % prime)) % modulus)
    return np.stack(rows)


def _is_small_frame(frame: bytes, most: int) -> bool:
    """Tell whether this is one whole frame of Zstandard that grows to no more than ``most``.

    RFC 8878: a descriptor, the size of the content, then blocks of at most 128 kB of content each.
    """
    if frame[:4] != _FRAME_MAGIC or len(frame) < 16 or frame[4] & 0x3F not in (0, _SINGLE_SEGMENT):
        return False
    is_single, wide = frame[4] & _SINGLE_SEGMENT, 1 << (frame[4] >> 6)
    if not is_single and (wide == 1 or frame[5] > _LONGEST_WINDOW):
        return False
    at = 5 if is_single else 6
    content = int.from_bytes(frame[at : at + wide], "little") + (256 if wide == 2 else 0)
    if content > most:
        return False
    at += wide
    for _ in range(_SPLIT * (most // _BLOCK_BYTES + 2)):
        head = int.from_bytes(frame[at : at + 3], "little")
        is_last, kind, size = head & 1, (head >> 1) & 3, head >> 3
        at += 3 + (1 if kind == 1 else size)
        if at > len(frame) or kind == 3 or size > _BLOCK_BYTES:
            return False
        if is_last:
            return at == len(frame)
    return False


def longest(body: int) -> int:
    """Return the most that Zstandard makes of so many bytes, and SEAL's header."""
    return body + body // 256 + 64 + _HEADER_BYTES


def saved(thing: Any) -> bytes:
    """Return what SEAL saves to a file, without one on a disk."""
    with _Memory() as (file, path):
        thing.save(path)
        return os.pread(file, os.fstat(file).st_size, 0)


def loaded(thing: Any, context: Any, data: bytes) -> Any:
    """Let SEAL load from bytes; what it refuses is refused by name."""
    with _Memory() as (file, path):
        os.write(file, data)
        try:
            thing.load(context, path)
        except (RuntimeError, ValueError, IndexError) as error:
            raise DataError("got bytes that are no ciphertext or key of bfv") from error
    return thing


class _Memory:
    """A file in memory, and the path under which SEAL finds it."""

    def __enter__(self) -> tuple[int, str]:
        make: Callable[[str], int] | None = getattr(os, "memfd_create", None)
        if make is None:
            raise ConfigError("the cipher bfv needs Linux: SEAL reads from files in memory")
        self._file = make("tacit seal")
        return self._file, f"/proc/self/fd/{self._file}"

    def __exit__(self, *error: object) -> None:
        os.close(self._file)


def library() -> Any:  # it has no types
    """Return sealapi, or say how to get it."""
    if sealapi is None:
        raise ConfigError(f"the cipher bfv needs TenSEAL; run: {install_hint('tenseal')}")
    return sealapi
