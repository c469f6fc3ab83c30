"""Bits of ring words: packing, bit-sliced planes, and the unsigned operations that torch lacks."""

import numpy as np
import torch
from torch import Tensor

from tacit.errors import DataError

_SIGN = -(2**63)
_CHUNK = 1 << 16  # words transposed at a time on a CPU: they stay in a core's cache

# (shift, mask) of the three swaps that transpose an 8×8 bit matrix held in one word
# (Warren, Hacker's Delight, 2nd ed., section 7-3).
_SWAPS = ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0x00000000F0F0F0F0))


def pack_bits(bits: Tensor) -> Tensor:
    """Pack zeros and ones, bool or uint8, into bytes: element i is bit i % 8 of byte i // 8.

    The result is flat and uint8, its last byte padded with zeros.
    """
    flat = bits.reshape(-1)
    if flat.device.type == "cpu":
        return torch.from_numpy(np.packbits(flat.numpy(), bitorder="little"))
    padded = torch.zeros(-(-flat.numel() // 8) * 8, dtype=torch.uint8, device=flat.device)
    padded[: flat.numel()] = flat != 0
    weights = 1 << torch.arange(8, dtype=torch.uint8, device=flat.device)
    return (padded.view(-1, 8) * weights).sum(1, dtype=torch.uint8)


def unpack_bits(packed: Tensor, count: int) -> Tensor:
    """Unpack the first `count` bits that `pack_bits` packed: flat, uint8, zeros and ones."""
    if not 0 <= count <= 8 * packed.numel():
        raise DataError(f"{packed.numel()} bytes hold {8 * packed.numel()} bits, not {count}")
    flat = packed.reshape(-1)
    if flat.device.type == "cpu":
        return torch.from_numpy(np.unpackbits(flat.numpy(), count=count, bitorder="little"))
    shifts = torch.arange(8, dtype=torch.uint8, device=flat.device)
    return ((flat[:, None] >> shifts) & 1).view(-1)[:count]


def to_planes(words: Tensor) -> Tensor:
    """Slice words into 64 planes: bit i of `planes[b, w]` is bit b of word 64·w + i.

    The words are taken flat; the last word of each plane is padded with zeros.
    """
    count = words.numel()
    padded = -(-count // 64) * 64
    flat = words.new_zeros(padded)
    flat[:count] = words.reshape(-1)
    planes = flat.new_empty((64, padded // 64))
    plane_bytes = planes.view(torch.uint8).view(8, 8, padded // 8)  # (byte, bit, group of 8 words)
    step = _step(flat)
    for start in range(0, padded, step):
        part = flat[start : start + step].view(torch.uint8).view(-1, 8, 8)  # (group, word, byte)
        tiles = _transpose_tiles(part.permute(2, 0, 1).contiguous())
        groups = slice(start // 8, start // 8 + part.shape[0])
        plane_bytes[:, :, groups] = tiles.permute(0, 2, 1)
    return planes


def from_planes(planes: Tensor, count: int) -> Tensor:
    """Put the first `count` words together from their 64 planes; the inverse of `to_planes`."""
    if planes.dim() != 2 or planes.shape[0] != 64 or not 0 <= count <= 64 * planes.shape[1]:
        raise DataError(
            f"{count} words come from planes of shape (64, {-(-count // 64)}), "
            f"got {tuple(planes.shape)}"
        )
    padded = 64 * planes.shape[1]
    words = planes.new_empty(padded)
    plane_bytes = planes.contiguous().view(torch.uint8).view(8, 8, padded // 8)
    step = _step(words)
    for start in range(0, padded, step):
        part = plane_bytes[:, :, start // 8 : (start + step) // 8]
        tiles = _transpose_tiles(part.permute(0, 2, 1).contiguous())
        words[start : start + step].view(torch.uint8).view(-1, 8, 8).copy_(tiles.permute(1, 2, 0))
    return words[:count]


def shift_right(words: Tensor, count: int) -> Tensor:
    """Shift words right by `count` < 64 places, filling with zeros; `>>` fills with the sign."""
    if count == 0:
        return words.clone()
    return (words >> count) & ((1 << (64 - count)) - 1)


def less_unsigned(left: Tensor, right: Tensor) -> Tensor:
    """Compare words as numbers in [0, 2^64): true where left < right."""
    return (left ^ _SIGN) < (right ^ _SIGN)


def popcount(words: Tensor) -> Tensor:
    """Count the ones in every word (Warren, Hacker's Delight, 2nd ed., section 5-1)."""
    pairs = words - ((words >> 1) & 0x5555555555555555)
    nibbles = (pairs & 0x3333333333333333) + ((pairs >> 2) & 0x3333333333333333)
    octets = (nibbles + (nibbles >> 4)) & 0x0F0F0F0F0F0F0F0F
    return (octets * 0x0101010101010101) >> 56


def parity(words: Tensor) -> Tensor:
    """Tell for every word whether it has an odd number of ones: 1 or 0."""
    folded = words
    for count in (32, 16, 8, 4, 2, 1):
        folded = folded ^ (folded >> count)
    return folded & 1


def _step(words: Tensor) -> int:
    return _CHUNK if words.device.type == "cpu" else max(1, words.numel())


def _transpose_tiles(tiles: Tensor) -> Tensor:
    """Transpose 8×8 bit matrices in place: `tiles` is (…, 8) bytes, one matrix to a word."""
    words = tiles.view(torch.int64)
    for shift, mask in _SWAPS:
        swap = (words >> shift).bitwise_xor_(words).bitwise_and_(mask)
        words.bitwise_xor_(swap).bitwise_xor_(swap.bitwise_left_shift_(shift))
    return tiles
