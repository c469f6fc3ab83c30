"""Ring words of fewer than eight bytes, and several tensors of them in one message.

Reducing both shares modulo 2^(8·n) reduces the value, exactly; a value that fits n bytes survives.
The bytes of a row lie in planes, the lowest four bytes of all words first, then two, then one: a
plane is one cast, where picking bytes out of every word is many small copies.
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

WORD_BYTES = 8
_PLANES = {4: torch.int32, 2: torch.int16, 1: torch.uint8}


class Item(NamedTuple):
    """A tensor in a message: its shape, and the bytes of its words (0 for plain bytes)."""

    shape: tuple[int, ...]
    nbytes: int = WORD_BYTES

    @property
    def size(self) -> int:
        """Return its bytes."""
        return prod(self.shape) * (self.nbytes or 1)


def sum_bytes(items: Sequence[Item]) -> int:
    """Return the bytes of several items."""
    return sum(item.size for item in items)


def join(parts: Sequence[Tensor], items: Sequence[Item]) -> Tensor:
    """Lay tensors end to end, words cut to the bytes of their items."""
    octets = [
        pack(part.reshape(-1), item.nbytes) if item.nbytes else part.reshape(-1)
        for part, item in zip(parts, items, strict=True)
    ]
    return octets[0] if len(octets) == 1 else torch.cat(octets)


def split(octets: Tensor, items: Sequence[Item]) -> list[Tensor]:
    """Undo `join`."""
    parts = octets.split_with_sizes([item.size for item in items])
    return [
        (unpack(part, item.nbytes) if item.nbytes else part).view(item.shape)
        for part, item in zip(parts, items, strict=True)
    ]


def pack(words: Tensor, nbytes: int) -> Tensor:
    """Keep the lowest bytes of words (…, n), as uint8 of shape (…, n · nbytes)."""
    if nbytes == WORD_BYTES:
        return words.contiguous().view(torch.uint8)
    planes = [
        (words >> at if at else words).to(_PLANES[size]).view(torch.uint8)
        for at, size in _planes(nbytes)
    ]
    return planes[0] if len(planes) == 1 else torch.cat(planes, -1)


def unpack(octets: Tensor, nbytes: int) -> Tensor:
    """Undo `pack`, taking the highest kept bit for the sign."""
    if nbytes == WORD_BYTES:
        return _plane(octets, torch.int64)
    width, out = octets.shape[-1] // nbytes, None
    for at, size in _planes(nbytes):
        first = at // 8 * width
        plane = _plane(octets[..., first : first + size * width], _PLANES[size])
        words = plane.to(torch.int64)
        if at + 8 * size < 8 * nbytes and size > 1:  # only the highest plane has the sign
            words &= (1 << (8 * size)) - 1
        out = words if out is None else out.bitwise_or_(words.bitwise_left_shift_(at))
    assert out is not None  # noqa: S101 - words have at least one byte
    return wrap(out, nbytes) if nbytes & 1 else out  # a plane of single bytes has no sign


def encode(values: Tensor, frac_bits: int) -> Tensor:
    """Encode doubles that are known to be finite and in range, without asking the device."""
    return (values * 2.0**frac_bits).round_().to(torch.int64)


def wrap(words: Tensor, nbytes: int) -> Tensor:
    """Reduce words to the signed range of ``nbytes`` bytes."""
    if nbytes == WORD_BYTES:
        return words
    if nbytes == 4:
        return words.to(torch.int32).to(torch.int64)
    shift = 8 * (WORD_BYTES - nbytes)
    return (words << shift).bitwise_right_shift_(shift)


def _planes(nbytes: int) -> list[tuple[int, int]]:
    """List the planes of a word: the bit at which each starts, and its bytes."""
    out, at = [], 0
    for size in _PLANES:
        if nbytes & size:
            out.append((at, size))
            at += 8 * size
    return out


def _plane(octets: Tensor, dtype: torch.dtype) -> Tensor:
    """Look at bytes (…, n) as numbers, which must start at a multiple of their size."""
    flat = octets.reshape(-1)
    if flat.storage_offset() % WORD_BYTES:
        flat = flat.clone()
    return flat.view(dtype).view(*octets.shape[:-1], -1)
