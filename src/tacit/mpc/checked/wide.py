"""Integers modulo 2^108 in two limbs of 54 bits: where words of 64 bits are authenticated.

A tag modulo 2^64 would say nothing about the highest bits of a word: an error of 2^63 times a
secret key is 0 or 2^63. With 44 bits more every error below 2^64 meets 44 bits of the key or more.
Limbs lie in the first dimension. Products are made of smaller digits, which an int64 can add up.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

BITS = 54
LIMBS = 2
HIGH_BITS = LIMBS * BITS - 64
_MASK = (1 << BITS) - 1
_TOP = 64 - BITS  # bits of a word in the second limb
_DIGIT = 27
_INNER = 1 << 14  # products of two digits of 18 bits, six times, that a double adds up exactly
_ROWS = 64  # products of two digits of 27 bits that are added up before they are carried


def split(words: Tensor) -> Tensor:
    """Write words, read as integers from 0 to 2^64 - 1, as limbs."""
    return torch.stack((words & _MASK, (words >> BITS) & ((1 << _TOP) - 1)))


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
    return joined(_products(limbs, words), _DIGIT)


def multiply_rows(limbs: Tensor, words: Tensor) -> Tensor:
    """Multiply by public words, and add up along the last dimension but one."""
    total = limbs.new_zeros((*limbs.shape[:-2], limbs.shape[-1]))
    for at in range(0, limbs.shape[-2], _ROWS):
        part = slice(at, at + _ROWS)
        products = _products(limbs[..., part, :], words[..., part, :]).sum(dim=-2)
        total += joined(products, _DIGIT)
    return carry(total)


def _products(limbs: Tensor, words: Tensor) -> Tensor:
    left, right = digits(limbs, _DIGIT), _word_digits(words, _DIGIT)
    out = left * right[0]
    for j in range(1, len(right)):
        out[j:] += left[: len(left) - j] * right[j]
    return out


def from_pairs(pairs: Tensor) -> Tensor:
    """Read numbers from two words of 54 bits each, whatever lies above those bits."""
    return pairs & _MASK


def to_pairs(limbs: Tensor, like: Tensor) -> Tensor:
    """Write numbers into two words; the bits above are taken over from ``like``."""
    return limbs | (like & ~_MASK)


def low_words(limbs: Tensor) -> Tensor:
    """Return the numbers modulo 2^64."""
    return limbs[0] + (limbs[1] << BITS)


def high_words(limbs: Tensor) -> Tensor:
    """Return the 44 bits above 2^64."""
    return limbs[1] >> _TOP


def lift_words(words: Tensor) -> Tensor:
    """Return 2^64 times the lowest 44 bits of words."""
    return torch.stack((torch.zeros_like(words), (words & ((1 << HIGH_BITS) - 1)) << _TOP))


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
    parts = [digits(one, bits) for one in operands]
    found = []
    for at in range(len(parts[0])):
        several = [function(*(one[at, c] for one in parts)) for c in range(parts[0].shape[1])]
        found.append(torch.stack(several))
    return joined(torch.stack(found), bits)


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
    left, right = _word_digits(public, bits), digits(wide, bits)
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
    return joined(torch.stack(found), bits)


def multiply_wide(left: Tensor, right: Tensor) -> Tensor:
    """Multiply matrices of wide numbers; what lies between limbs and matrices is broadcast."""
    bits = 18
    total = None
    for start in range(0, left.shape[-1], _INNER):
        part = slice(start, start + _INNER)
        a = digits(left[..., part], bits).to(torch.float64)
        b = digits(right[..., part, :], bits).to(torch.float64)
        found = []
        for weight in range(len(a)):
            one = torch.matmul(a[0], b[weight])
            for i in range(1, weight + 1):
                one += torch.matmul(a[i], b[weight - i])
            found.append(one.to(torch.int64))
        one = joined(torch.stack(found), bits)
        total = one if total is None else carry(total + one)
    assert total is not None  # noqa: S101 - a matrix has columns
    return total


def _word_digits(words: Tensor, bits: int) -> Tensor:
    count = -(-64 // bits)
    rest = 64 - bits * (count - 1)
    lower = [(words >> (bits * at)) & ((1 << bits) - 1) for at in range(count - 1)]
    return torch.stack([*lower, (words >> (64 - rest)) & ((1 << rest) - 1)])


def digits(limbs: Tensor, bits: int) -> Tensor:
    """Write numbers in digits of so many bits, which divide 54: the lowest first."""
    mask = (1 << bits) - 1
    return torch.stack([(limb >> at) & mask for limb in limbs for at in range(0, BITS, bits)])


def joined(parts: Tensor, bits: int) -> Tensor:
    """Undo `digits`, for digits that need to be carried, which are spent."""
    parts, per = carry(parts, bits), BITS // bits
    limbs = parts[::per].clone()
    for at in range(1, per):
        limbs += parts[at::per] << (bits * at)
    return limbs
