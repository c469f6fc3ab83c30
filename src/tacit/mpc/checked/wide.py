"""Integers modulo 2^108 in four limbs of 27 bits: where words of 64 bits are authenticated.

A tag modulo 2^64 would say nothing about the highest bits of a word: an error of 2^63 times a
secret key is 0 or 2^63. With 44 bits more every error below 2^64 meets 44 bits of the key or more.
Limbs lie in the first dimension; products of limbs and sums of a hundred of them fit an int64.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

BITS = 27
LIMBS = 4
HIGH_BITS = LIMBS * BITS - 64
_MASK = (1 << BITS) - 1
_PAIR = 2 * BITS
_WORD_LIMBS = 3  # that hold a word of 64 bits
_ROWS = 64  # products of two limbs that are added up before they are carried
_JUNK = ~((1 << _PAIR) - 1)


def split(words: Tensor) -> Tensor:
    """Write words, read as integers from 0 to 2^64 - 1, as limbs."""
    top = (words >> _PAIR) & ((1 << (64 - _PAIR)) - 1)
    return torch.stack((words & _MASK, (words >> BITS) & _MASK, top, torch.zeros_like(words)))


def carry(limbs: Tensor, bits: int = BITS) -> Tensor:
    """Bring every limb back between 0 and 2^bits, in place; what is beyond the highest is lost."""
    mask = (1 << bits) - 1
    for at in range(len(limbs) - 1):
        limbs[at + 1] += limbs[at] >> bits
        limbs[at] &= mask
    limbs[-1] &= mask
    return limbs


def multiply(limbs: Tensor, words: Tensor) -> Tensor:
    """Multiply by public words, which are laid against the last dimensions."""
    return carry(_products(limbs, words))


def multiply_rows(limbs: Tensor, words: Tensor) -> Tensor:
    """Multiply by public words, and add up along the last dimension but one."""
    total = limbs.new_zeros((*limbs.shape[:-2], limbs.shape[-1]))
    for at in range(0, limbs.shape[-2], _ROWS):
        part = slice(at, at + _ROWS)
        total += carry(_products(limbs[..., part, :], words[..., part, :]).sum(dim=-2))
    return carry(total)


def _products(limbs: Tensor, words: Tensor) -> Tensor:
    digits = split(words)
    out = limbs * digits[0]
    for j in range(1, _WORD_LIMBS):
        out[j:] += limbs[: LIMBS - j] * digits[j]
    return out


def from_pairs(pairs: Tensor) -> Tensor:
    """Read numbers from two words of 54 bits each, whatever lies above those bits."""
    low, high = pairs[0], pairs[1]
    return torch.stack((low & _MASK, (low >> BITS) & _MASK, high & _MASK, (high >> BITS) & _MASK))


def to_pairs(limbs: Tensor, like: Tensor) -> Tensor:
    """Write numbers into two words; the bits above are taken over from ``like``."""
    pairs = torch.stack((limbs[0] | (limbs[1] << BITS), limbs[2] | (limbs[3] << BITS)))
    return pairs | (like & _JUNK)


def low_words(limbs: Tensor) -> Tensor:
    """Return the numbers modulo 2^64."""
    return limbs[0] + (limbs[1] << BITS) + (limbs[2] << _PAIR)


def high_words(limbs: Tensor) -> Tensor:
    """Return the 44 bits above 2^64."""
    return (limbs[2] >> (64 - _PAIR)) | (limbs[3] << (LIMBS * BITS - 64 - BITS))


def lift_words(words: Tensor) -> Tensor:
    """Return 2^64 times the lowest 44 bits of words."""
    shift = 64 - _PAIR
    upper = ((words & ((1 << (BITS - shift)) - 1)) << shift, (words >> (BITS - shift)) & _MASK)
    return torch.stack((torch.zeros_like(words), torch.zeros_like(words), *upper))


def map_linear(
    function: Callable[..., Tensor], operands: Iterable[Tensor], *, largest: int
) -> Tensor:
    """Apply a linear function of whole coefficients, written for words, to wide numbers.

    Args:
        function: of one tensor per operand.
        operands: limbs with any number of dimensions between them and what the function wants:
            (limbs, components, …).
        largest: at least the sum of the sizes of the coefficients of any result.
    """
    bits = next(one for one in (27, 18, 9, 3, 1) if (largest << one) < 1 << 63)
    digits = [_digits(one, bits) for one in operands]
    found = []
    for at in range(len(digits[0])):
        parts = [function(*(one[at, c] for one in digits)) for c in range(digits[0].shape[1])]
        found.append(torch.stack(parts))
    return _joined(torch.stack(found), bits)


def map_bilinear(
    function: Callable[[Tensor, Tensor], Tensor], public: Tensor, wide: Tensor, *, terms: int
) -> Tensor:
    """Apply a bilinear function, written for words, to public words and wide numbers.

    Args:
        function: of a digit of the public words and of one of the numbers.
        public: words.
        wide: (limbs, components, …).
        terms: how many products are added up in one element of the result.
    """
    bits = next(one for one in (27, 18, 9) if (max(terms, 1) << (2 * one + 3)) < 1 << 63)
    left, right = _word_digits(public, bits), _digits(wide, bits)
    found: list[Tensor] = []
    for total in range(len(right)):
        pairs = [(i, total - i) for i in range(min(total + 1, len(left)))]
        parts = []
        for c in range(wide.shape[1]):
            one = function(left[pairs[0][0]], right[pairs[0][1], c])
            for i, j in pairs[1:]:
                one += function(left[i], right[j, c])
            parts.append(one)
        found.append(torch.stack(parts))
    return _joined(torch.stack(found), bits)


def _word_digits(words: Tensor, bits: int) -> Tensor:
    count = -(-64 // bits)
    rest = 64 - bits * (count - 1)
    digits = [(words >> (bits * at)) & ((1 << bits) - 1) for at in range(count - 1)]
    return torch.stack([*digits, (words >> (64 - rest)) & ((1 << rest) - 1)])


def _digits(limbs: Tensor, bits: int) -> Tensor:
    if bits == BITS:
        return limbs
    mask, found = (1 << bits) - 1, []
    for at in (0, 2):
        pair = limbs[at] | (limbs[at + 1] << BITS)
        found += [(pair >> shift) & mask for shift in range(0, _PAIR, bits)]
    return torch.stack(found)


def _joined(digits: Tensor, bits: int) -> Tensor:
    digits = carry(digits, bits)
    if bits == BITS:
        return digits
    per, found = _PAIR // bits, []
    for at in (0, per):
        pair = sum((digits[at + i] << (bits * i) for i in range(1, per)), digits[at])
        found += [pair & _MASK, pair >> BITS]
    return torch.stack(found)
