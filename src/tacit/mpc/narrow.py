"""Words whose values need fewer than 64 bits travel in fewer bytes: their lowest ones.

Addition modulo 2^64 is addition modulo 2^(8·size) in the lowest bytes, so masked words may be cut
before they are sent, and a sum that is known to be small is read from its lowest bytes alone.
"""

import torch
from torch import Tensor

from tacit import ring
from tacit.mpc.share import Spec

WORD_BYTES = 8
_FEW_BITS = 32
_PLANES = ((4, torch.int32), (2, torch.int16), (1, torch.uint8))


def size_of(spec: Spec) -> int:
    """Return how many bytes hold every value with its sign: 4 to 8."""
    return max(4, -(-(spec.largest.bit_length() + 1) // 8))


def size_for(bits: int) -> int:
    """Return in how many bytes so many bits travel: not 7, which takes longer than it saves."""
    size = -(-bits // 8)
    return WORD_BYTES if size > 6 else size


def cut(words: Tensor, size: int) -> Tensor:
    """Lay the lowest bytes of flat words out for sending; 8 bytes are sent as they are."""
    if size == WORD_BYTES:
        return words
    octets = torch.empty(size * len(words), dtype=torch.uint8, device=words.device)
    for at, dtype, part in _parts(size, len(words)):
        octets[part].view(dtype).copy_(words >> (8 * at) if at else words)
    return octets


def uncut(
    octets: Tensor, size: int, part: slice = slice(None), dtype: torch.dtype = torch.int64
) -> Tensor:
    """Undo `cut`, for some of the words: their lowest bytes are right, the rest is meaningless."""
    if size == WORD_BYTES:
        return octets[part]
    (_, lane, plane), *higher = _parts(size, len(octets) // size)
    words = octets[plane].view(lane)[part].to(dtype)
    for at, lane, plane in higher:
        # Bytes above those read so far come from the next plane, not from a sign.
        words.bitwise_and_((1 << (8 * at)) - 1)
        words.bitwise_or_(octets[plane].view(lane)[part].to(dtype).bitwise_left_shift_(8 * at))
    return words


def sign_extend(words: Tensor, size: int) -> Tensor:
    """Read small numbers from the lowest bytes of words, which are spent."""
    if size == WORD_BYTES:
        return words
    if size == 4:
        return words.to(torch.int32).to(torch.int64)
    spare = 64 - 8 * size
    return words.bitwise_left_shift_(spare).bitwise_right_shift_(spare)


def low(words: Tensor, size: int) -> Tensor:
    """Return the lowest bytes of words as words of that size where there are such."""
    return words.to(torch.int32) if size == 4 else words


def sign_extended_sum(octets: Tensor, mine: Tensor, size: int) -> Tensor:
    """Read small numbers from the sum of what `cut` laid out and what `low` gave."""
    if size == 4:
        return (octets.view(torch.int32) + mine).to(torch.int64)
    return sign_extend(uncut(octets, size) + mine, size)


def wire(count: int, size: int) -> tuple[tuple[int, ...], torch.dtype]:
    """Return the shape and type under which so many cut words travel."""
    return ((count,), torch.int64) if size == WORD_BYTES else ((count * size,), torch.uint8)


def bits_size(words: int, count: int) -> int:
    """Return how many bytes words take of which the lowest ``count`` bits matter; see `cut_bits`.

    Words of which half or more is in use, or rows of several words, are sent as they are.
    """
    return WORD_BYTES * words if count > _FEW_BITS else -(-words * count // 8)


def cut_bits(words: Tensor, count: int) -> Tensor:
    """Lay the lowest bits of every word end to end."""
    octets = words.contiguous().view(torch.uint8)
    bits = ring.unpack_bits(octets, 64 * words.numel()).view(-1, 64)
    return ring.pack_bits(bits[:, :count])


def uncut_bits(octets: Tensor, shape: torch.Size, count: int) -> Tensor:
    """Undo `cut_bits`; the bits that were not sent are zero."""
    words = shape.numel()
    bits = octets.new_zeros((words, 64))
    bits[:, :count] = ring.unpack_bits(octets, words * count).view(words, count)
    return ring.pack_bits(bits).view(torch.int64).view(shape)


def _parts(size: int, count: int) -> list[tuple[int, torch.dtype, slice]]:
    """Say which bytes of the words lie where: planes of 4, 2 and 1 bytes, one after another."""
    found, at = [], 0
    for width, dtype in _PLANES:
        if size - at >= width:
            found.append((at, dtype, slice(at * count, (at + width) * count)))
            at += width
    return found


def bits_of(largest: int) -> int:
    """Return how many bits hold every word of at most that size with its sign, at least two."""
    return max(2, min(8 * WORD_BYTES, largest.bit_length() + 1))
