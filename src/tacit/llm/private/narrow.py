"""Ring words of fewer than eight bytes, for wires that only feed a non-linearity.

Reducing both shares modulo 2^(8·n) reduces the value, exactly; a value that fits n bytes survives.
"""

import torch
from torch import Tensor

WORD_BYTES = 8


def pack(words: Tensor, nbytes: int) -> Tensor:
    """Keep the lowest bytes of every word, as uint8 of shape (…, nbytes)."""
    octets = words.contiguous().unsqueeze(-1).view(torch.uint8)
    return octets if nbytes == WORD_BYTES else octets[..., :nbytes].contiguous()


def unpack(octets: Tensor, nbytes: int) -> Tensor:
    """Undo `pack`, taking the highest kept bit for the sign."""
    if nbytes == WORD_BYTES:
        octets = octets.contiguous()
        if octets.storage_offset() % WORD_BYTES:  # words must start at a multiple of their size
            octets = octets.clone()
        return octets.view(torch.int64).squeeze(-1)
    words = octets.new_zeros((*octets.shape[:-1], WORD_BYTES))
    words[..., :nbytes] = octets
    return wrap(words.view(torch.int64).squeeze(-1), nbytes)


def wrap(words: Tensor, nbytes: int) -> Tensor:
    """Reduce words to the signed range of ``nbytes`` bytes."""
    shift = 8 * (WORD_BYTES - nbytes)
    return (words << shift) >> shift if shift else words
