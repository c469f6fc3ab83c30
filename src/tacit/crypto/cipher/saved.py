"""What SEAL saves, taken apart: what both sides know, coefficients, and seeds.

SEAL's reader trusts files: it grows compressed ones without bound, and one that lies about a seed
can end the process. So nothing that a peer sent is read as a file. Only coefficients and seeds
travel, in messages of fixed length; the receiver checks every coefficient against its modulus and
writes the file around them itself, uncompressed.
"""

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError, DataError
from tacit.extras import install_hint

try:
    import zstandard
    from tenseal import sealapi
except ImportError:
    sealapi = None

Words = npt.NDArray[np.uint64]
SEED_BYTES = 64
_HEADER_BYTES, _MODE_PLACE, _UNCOMPRESSED, _ZSTANDARD = 16, 5, 0, 2
_BLAKE2XB = b"\x01"  # the generator that SEAL makes polynomials of seeds with


@dataclass(frozen=True)
class Residues:
    """Coefficients modulo some primes, all those modulo one after all those modulo another."""

    degree: int
    moduli: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Return the bytes on the wire: whole bytes for each coefficient."""
        return self.degree * sum(map(_width, self.moduli))

    def pack(self, words: bytes) -> bytes:
        """Leave out the bytes that are zero below the moduli."""
        rows = np.frombuffer(words, np.uint8).reshape(len(self.moduli), self.degree, 8)
        pairs = zip(rows, self.moduli, strict=True)
        return b"".join(row[:, : _width(one)].tobytes() for row, one in pairs)

    def unpack(self, data: bytes) -> bytes:
        """Return words of 8 bytes, each below its modulus, or refuse."""
        found, at = np.zeros((len(self.moduli), self.degree, 8), np.uint8), 0
        for row, modulus in zip(found, self.moduli, strict=True):
            width = _width(modulus)
            part = np.frombuffer(data, np.uint8, self.degree * width, at)
            row[:, :width] = part.reshape(self.degree, width)
            at += part.size
            if (row.view("<u8") >= np.uint64(modulus)).any():
                raise DataError("got a ciphertext or key of bfv with a number above its modulus")
        return found.tobytes()


Form = tuple[bytes | Residues | int, ...]
"""A file of SEAL: bytes that are known, and places for what is sent: numbers, or any bytes."""


def _width(modulus: int) -> int:
    return (modulus.bit_length() + 7) // 8


def _file_bytes(part: bytes | Residues | int) -> int:
    if isinstance(part, bytes):
        return len(part)
    return 8 * part.degree * len(part.moduli) if isinstance(part, Residues) else part


def _sent_bytes(part: bytes | Residues | int) -> int:
    if isinstance(part, bytes):
        return 0
    return part.nbytes if isinstance(part, Residues) else part


def framed(*parts: bytes | Residues | int) -> Form:
    """Put SEAL's header before what it saves uncompressed."""
    size = _HEADER_BYTES + sum(map(_file_bytes, parts))
    return (_header() + struct.pack("<Q", size), *parts)


def array(residues: Residues) -> Form:
    """Return how SEAL saves an array of words."""
    return framed(struct.pack("<Q", residues.degree * len(residues.moduli)), residues)


def cipher_form(parms_id: bytes, residues: Residues, *, is_ntt: bool, is_seeded: bool) -> Form:
    """Return how SEAL saves a ciphertext of two polynomials, one of which may be a seed."""
    facts = struct.pack("<BQQQdQ", is_ntt, 2, residues.degree, len(residues.moduli), 1.0, 1)
    if is_seeded:
        return framed(parms_id + facts, *array(residues), *framed(_BLAKE2XB, SEED_BYTES))
    return framed(parms_id + facts, *array(Residues(residues.degree, residues.moduli * 2)))


def plain_form(parms_id: bytes, residues: Residues) -> Form:
    """Return how SEAL saves a plaintext or a secret key."""
    count = residues.degree * len(residues.moduli)
    return framed(parms_id + struct.pack("<Qd", count, 1.0), *array(residues))


def pack(form: Form, file: bytes) -> bytes:
    """Take from a file of our own SEAL what the peer does not know."""
    out, at = [], 0
    for part in form:
        found = file[at : at + _file_bytes(part)]
        at += len(found)
        if isinstance(part, bytes):
            if found != part:
                raise ConfigError("SEAL saves in another way than agreed; which TenSEAL is it?")
        else:
            out.append(part.pack(found) if isinstance(part, Residues) else found)
    if at != len(file):
        raise ConfigError(f"SEAL saved {len(file)} bytes, agreed are {at}; which TenSEAL is it?")
    return b"".join(out)


def unpack(form: Form, data: bytes) -> bytes:
    """Write a file for SEAL around what a peer sent, or refuse it."""
    wanted = sum(map(_sent_bytes, form))
    if len(data) != wanted:
        raise DataError(f"wanted {wanted} bytes of a ciphertext or key of bfv, got {len(data)}")
    out, at = [], 0
    for part in form:
        if isinstance(part, bytes):
            out.append(part)
            continue
        found = data[at : at + _sent_bytes(part)]
        at += len(found)
        out.append(part.unpack(found) if isinstance(part, Residues) else found)
    return b"".join(out)


def saved(thing: Any) -> bytes:
    """Return what SEAL saves to a file, without one on a disk and uncompressed."""
    with _Memory() as (file, path):
        thing.save(path)
        data = os.pread(file, os.fstat(file).st_size, 0)
    body = data[_HEADER_BYTES:]
    if data[_MODE_PLACE] == _ZSTANDARD:  # our own file: it grows to what we have in memory
        body = zstandard.ZstdDecompressor().decompressobj().decompress(body)
    head = bytearray(data[: _HEADER_BYTES - 8])
    head[_MODE_PLACE] = _UNCOMPRESSED
    return bytes(head) + struct.pack("<Q", _HEADER_BYTES + len(body)) + body


def loaded(thing: Any, context: Any, file: bytes) -> Any:
    """Let SEAL load a file that was written here; what it refuses is refused by name."""
    with _Memory() as (memory, path):
        os.write(memory, file)
        try:
            thing.load(context, path)
        except (RuntimeError, ValueError, IndexError) as error:
            raise DataError("got bytes that are no ciphertext or key of bfv") from error
    return thing


@cache
def _header() -> bytes:
    """Return how SEAL begins what this library saves uncompressed."""
    return saved(library().Plaintext("1"))[: _HEADER_BYTES - 8]


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
        raise ConfigError(
            f"the cipher bfv needs TenSEAL and zstandard; run: {install_hint('tenseal')}"
        )
    return sealapi
