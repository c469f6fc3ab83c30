"""The pseudo-random generator: the only source of secret randomness in tacit."""

import hmac
import math
import os
from collections.abc import Sequence
from typing import NoReturn, TypeVar, final

import numpy as np
import numpy.typing as npt
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from torch import Tensor

from tacit.errors import DataError, RangeError, TacitError

KEY_BYTES = 16

_BLOCK_BYTES = 16
_AHEAD_BYTES = 8192
_ZEROS = bytes(1 << 18)  # one chunk of plain text: small enough to stay in a core's cache
_FORK_DOMAIN = b"tacit.ring.Prg.fork\x00"

Shape = int | Sequence[int]

_Word = TypeVar("_Word", np.int64, np.uint8)

_process = object()
"""Stands for this process; a forked one has another."""


def _note_fork() -> None:
    global _process
    _process = object()


os.register_at_fork(after_in_child=_note_fork)


@final
class Prg:
    """Draw uniform values from AES-128 in counter mode.

    The stream is the encryption of zeros with the counter starting at zero: a function of the key
    alone, so two parties with the same key draw the same values if they draw the same shapes in
    the same order. One owner draws from one generator; two threads take a fork each. A process
    that was forked off refuses to draw from what it inherited: it makes generators of its own.

    Guarantee: what is drawn cannot be told from uniform by anyone without the key, if AES-128 is a
    pseudo-random permutation and fewer than 2^48 bytes are drawn from one key.
    Cost: 16 bytes of key; about 0.2 s per GB drawn; 0 rounds, 0 bits.
    """

    __slots__ = ("_ahead", "_cipher", "_drawn", "_home", "_key", "_next")

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise DataError(f"the key of a Prg has {KEY_BYTES} bytes, got {len(key)}")
        self._key = bytes(key)
        self._home = _process
        self._cipher: CipherContext | None = None  # made at the first draw: a fork may never draw
        self._drawn = 0  # bytes taken from the cipher, including what lies ahead unread
        self._ahead = memoryview(b"")
        self._next = 0  # index into `_ahead` of the next byte to hand out

    @classmethod
    def from_os(cls) -> "Prg":
        """Make a generator with a fresh key from the operating system's entropy."""
        return cls(os.urandom(KEY_BYTES))

    def fork(self, label: str) -> "Prg":
        """Derive the child generator named `label`; it does not move this stream.

        The same label gives the same child, wherever this stream stands: take a new label for
        every use, or two uses will share their randomness.

        Guarantee: children of different labels and the parent are independent of each other, if
        HMAC-SHA256 is a pseudo-random function; a child does not betray its parent.
        Cost: one HMAC.
        """
        self._check_home()
        message = _FORK_DOMAIN + label.encode()
        return Prg(hmac.digest(self._key, message, "sha256")[:KEY_BYTES])

    @property
    def position(self) -> int:
        """How many bytes of the stream have been handed out, or where it was sought to."""
        return self._drawn - (len(self._ahead) - self._next)

    def seek(self, position: int) -> None:
        """Go to a byte of the stream; the next draw starts there."""
        if position < 0:
            raise RangeError(f"a position in the stream is at least 0, got {position}")
        self._cipher = _keystream(self._key, position)
        self._drawn = position
        self._ahead = memoryview(b"")
        self._next = 0

    def bytes(self, count: int) -> bytes:
        """Draw `count` bytes."""
        return self._draw((count,), np.uint8).tobytes()

    def fill(self, tensor: Tensor) -> None:
        """Overwrite a contiguous tensor in host memory with uniform bytes.

        For large tensors that are used again this is faster than a fresh one from `words`: the
        memory is already mapped.
        """
        if tensor.device.type != "cpu" or not tensor.is_contiguous():
            raise DataError(
                f"only a contiguous tensor in host memory can be filled, got one on "
                f"{tensor.device} with strides {tensor.stride()}"
            )
        if tensor.numel() > 0:
            self._fill(tensor.view(-1).numpy().data.cast("B"))

    def words(self, shape: Shape, *, device: torch.device | str | None = None) -> Tensor:
        """Draw uniform ring words, 8 bytes of the stream each."""
        words = torch.from_numpy(self._draw(shape, np.int64))
        return words if device is None else words.to(device)

    def bits(self, shape: Shape, *, device: torch.device | str | None = None) -> Tensor:
        """Draw uniform bits as uint8 zeros and ones; eight to a byte of the stream, rounded up."""
        extents = _extents(shape)
        count = math.prod(extents)
        packed = self._draw(-(-count // 8), np.uint8)
        bits = torch.from_numpy(np.unpackbits(packed, count=count, bitorder="little")).view(extents)
        return bits if device is None else bits.to(device)

    def below(
        self, bound: int, shape: Shape, *, device: torch.device | str | None = None
    ) -> Tensor:
        """Draw integers uniform in [0, bound), for bounds up to 2^63.

        Guarantee: exactly uniform if the stream is: what would favour small values is redrawn.
        Cost: 8 bytes of the stream per value, and 8 more for each that is redrawn, which happens
        with a probability below bound / 2^63. The time therefore depends on what is drawn.
        """
        if not 1 <= bound <= 2**63:
            raise RangeError(f"the bound of a draw is between 1 and 2^63, got {bound}")
        values = self._nonnegative(shape)
        if bound & (bound - 1) == 0:
            values &= bound - 1
        else:
            self._redraw_from(2**63 - 2**63 % bound, values.view(-1))
            values %= bound
        return values if device is None else values.to(device)

    def permutation(self, count: int, *, device: torch.device | str | None = None) -> Tensor:
        """Draw a permutation of 0 … count − 1 as int64 indices.

        Guarantee: exactly uniform if the stream is: the order of `count` uniform keys, all drawn
        again if two are equal.
        Cost: 8 bytes of the stream per element and one sort; drawn again with a probability below
        count² / 2^65.
        """
        if not 0 <= count < 2**31:
            raise RangeError(f"the size of a permutation is between 0 and 2^31, got {count}")
        while True:
            keys, order = torch.sort(self.words(count))
            if not bool((keys[1:] == keys[:-1]).any()):
                return order if device is None else order.to(device)

    def _nonnegative(self, shape: Shape) -> Tensor:
        """Draw integers uniform in [0, 2^63)."""
        return self.words(shape).bitwise_and_(2**63 - 1)

    def _redraw_from(self, limit: int, values: Tensor) -> None:
        """Replace in place every value that is not below `limit`."""
        bad = torch.nonzero(values >= limit).view(-1)
        while bad.numel() > 0:
            fresh = self._nonnegative(bad.numel())
            values[bad] = fresh
            bad = bad[fresh >= limit]

    def _draw(self, shape: Shape, dtype: type[_Word]) -> npt.NDArray[_Word]:
        # Not torch.empty: NumPy asks for huge pages, which the system clears at 10 GB/s where it
        # clears small ones at 4, slower than the cipher fills them.
        drawn = np.empty(shape, dtype)
        if drawn.size > 0:
            self._fill(drawn.reshape(-1).data.cast("B"))
        return drawn

    def _fill(self, target: memoryview) -> None:
        """Write the next bytes of the stream into `target`."""
        self._check_home()
        start, size = self._next, len(target)
        end = start + size
        if end <= len(self._ahead):
            target[:] = self._ahead[start:end]
            self._next = end
            return
        done = len(self._ahead) - start
        target[:done] = self._ahead[start:]
        self._next = len(self._ahead)
        if size - done < _AHEAD_BYTES // 2:
            self._ahead = memoryview(bytearray(_AHEAD_BYTES))
            self._encrypt(self._ahead)
            self._next = size - done
            target[done:] = self._ahead[: self._next]
        else:
            for at in range(done, size, len(_ZEROS)):
                self._encrypt(target[at : at + len(_ZEROS)])

    def _encrypt(self, target: memoryview) -> None:
        if self._cipher is None:
            self._cipher = _keystream(self._key, 0)
        self._drawn += self._cipher.update_into(_ZEROS[: len(target)], target)

    def _check_home(self) -> None:
        # Parent and child would draw the same words: one mask on two secrets shows their
        # difference. A new key instead would silently part two who must draw alike.
        if self._home is not _process:
            raise TacitError(
                "this Prg was made before os.fork, and both processes would draw the same words: "
                "make one in the new process, with Prg.from_os() or from a key of its own"
            )

    def __repr__(self) -> str:
        return f"Prg(position={self.position})"

    def __reduce__(self) -> NoReturn:
        # copy, deepcopy and pickle all come here. A copy would repeat the stream, and the same
        # mask on two secrets shows their difference.
        raise TypeError("a Prg cannot be copied or pickled: draw from a fork, or send a key")


def _keystream(key: bytes, position: int) -> CipherContext:
    block, skip = divmod(position, _BLOCK_BYTES)
    nonce = (block % 2**128).to_bytes(_BLOCK_BYTES, "big")
    cipher = Cipher(algorithms.AES(key), modes.CTR(nonce)).encryptor()
    cipher.update(_ZEROS[:skip])
    return cipher


def _extents(shape: Shape) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)
