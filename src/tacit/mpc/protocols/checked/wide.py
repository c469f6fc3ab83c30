"""Integers modulo 2^108 in two limbs of 54 bits: where words of 64 bits are authenticated.

A tag modulo 2^64 would say nothing about the highest bits of a word: an error of 2^63 times a
secret key is 0 or 2^63. With 44 bits more every error below 2^64 meets 44 bits of the key or more.
Limbs lie in the first dimension. Products are made of digits of 27 bits, which an int64 can add up.
"""

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor

from tacit import ring

BITS = 54
LIMBS = 2
HIGH_BITS = LIMBS * BITS - 64
_MASK = (1 << BITS) - 1
_TOP = 64 - BITS  # bits of a word in the second limb
_DIGIT = 27
_LOW = (1 << _DIGIT) - 1
_PART = 1 << 13  # so many numbers at a time stay in a core's cache
# What is added up before it is carried must stay below 2^63, with the carry from the limb below.
_ADDED = 256  # limbs: 2^8 · 2^54 = 2^62
_INNER = 128  # products of digits of 27 bits, on a diagonal of three: 3 · 2^7 · 2^54 < 2^63
_SHORT = 1 << 12  # of digits of 18 bits, on a diagonal of four: 2^2 · 2^12 · 2^36 = 2^50
_FEW = 1 << 19


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
    """Multiply by public words, which are laid against the last dimensions, or by one word."""
    count = words.numel()
    flat = limbs.reshape(LIMBS, -1, count if count > 1 else limbs[0].numel())
    factors, out = words.reshape(1, -1), torch.empty_like(flat)
    step = max(1, _PART // max(1, flat.shape[1]))
    for at in range(0, flat.shape[2], step):
        part = slice(at, at + step)
        factor = factors[:, part] if count > 1 else factors
        out[:, :, part] = _product(flat[:, :, part], factor)
    return out.view(limbs.shape)


def _product(limbs: Tensor, words: Tensor) -> Tensor:
    """Multiply (limbs, rows, n) by (1, n): schoolbook in digits of 27 bits, 54 bits at a time."""
    # No sum of `middle` reaches 2^56 before its carry is taken. After that only 54 bits count, and
    # b·e·2^27 and high·words may wrap: 2^54 divides 2^64.
    low, high = limbs[0], limbs[1]
    a, b = low & _LOW, low >> _DIGIT
    c, d, e = words & _LOW, (words >> _DIGIT) & _LOW, (words >> BITS) & ((1 << _TOP) - 1)
    middle = a * c
    middle >>= _DIGIT
    middle += a * d
    middle += b * c
    middle >>= _DIGIT
    middle += b * d
    middle += a * e
    b = b * e
    b <<= _DIGIT
    middle += b
    middle += high * words  # of this only the lowest 54 bits count, so it may wrap
    out = torch.stack((low * words, middle))
    out &= _MASK
    return out


def multiply_rows(limbs: Tensor, words: Tensor) -> Tensor:
    """Multiply by public words, and add up along the last dimension but one."""
    total = limbs.new_zeros((*limbs.shape[:-2], limbs.shape[-1]))
    for at in range(0, limbs.shape[-2], _ADDED):
        part = slice(at, at + _ADDED)
        total += carry(multiply(limbs[..., part, :], words[..., part, :]).sum(dim=-2))
    return carry(total)


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
    # Digits below 2^bits times coefficients that add up to `largest`; below 2^62, as the carry from
    # the digit below comes on top.
    bits = next(one for one in (BITS, 27, 18, 9, 3, 1) if (largest << one) < 1 << 62)
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
    # 2^3: on a diagonal lie up to eight pairs, as a word has eight digits of 9 bits.
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


def matmul(public: Tensor, numbers: Tensor, *, is_public_left: bool) -> Tensor:
    """Multiply a matrix of public words with one of wide numbers (limbs, …, rows, columns)."""
    inner = public.shape[-1 if is_public_left else -2]
    batch = np.broadcast_shapes(public.shape[:-2], numbers.shape[1:-2])
    sides = (
        (public.shape[-2], numbers.shape[-1])
        if is_public_left
        else (numbers.shape[-2], public.shape[-1])
    )
    total = numbers.new_zeros((LIMBS, *batch, *sides))
    # Small digits take more products, large ones shorter rows: few calls for small matrices.
    bits, step = (18, _SHORT) if numbers.numel() <= _FEW else (_DIGIT, _INNER)
    bits = _DIGIT if inner <= _INNER else bits
    for start in range(0, inner, step):
        part = slice(start, start + step)
        if is_public_left:
            words, wide = _word_digits(public[..., part], bits), numbers[..., part, :]
        else:
            words, wide = _word_digits(public[..., part, :], bits), numbers[..., part]
        found = _diagonals(words, digits(wide, bits), is_public_left=is_public_left)
        total += joined(found, bits)
        carry(total)
    return total


def _diagonals(words: Tensor, wide: Tensor, *, is_public_left: bool) -> Tensor:
    """Multiply digits; those of one weight lie side by side and are added up by one product."""
    found = []
    for weight in range(len(wide)):
        count = min(weight + 1, len(words))
        w, x = list(words[:count]), [wide[weight - i] for i in range(count)]
        if not is_public_left:
            found.append(ring.matmul(torch.cat(x, dim=-1), torch.cat(w, dim=-2)))
        elif words.dim() > 3:
            found.append(ring.matmul(torch.cat(w, dim=-1), torch.cat(x, dim=-2)))
        else:  # one product for all components, which then lie side by side as well
            right = torch.cat(x, dim=-2).movedim(-2, 0)
            one = ring.matmul(torch.cat(w, dim=-1), right.flatten(1))
            found.append(one.view(-1, *right.shape[1:]).movedim(0, -2))
    return torch.stack(found)


def add_rows(bits: Tensor, numbers: Tensor) -> Tensor:
    """Add up some of the rows of (limbs, …, rows, columns), which (sums, rows) bits choose."""
    total = None
    for at in range(0, numbers.shape[-2], _ADDED):
        part = slice(at, at + _ADDED)
        one = ring.matmul(bits[:, part], numbers[..., part, :].contiguous())
        total = carry(one if total is None else total + one)
    assert total is not None  # noqa: S101 - a matrix has rows
    return total


def add_columns(numbers: Tensor, bits: Tensor) -> Tensor:
    """Add up some of the columns of (limbs, …, rows, columns), chosen by (columns, sums) bits."""
    total = None
    for at in range(0, numbers.shape[-1], _ADDED):
        part = slice(at, at + _ADDED)
        one = ring.matmul(numbers[..., part].contiguous(), bits[part])
        total = carry(one if total is None else total + one)
    assert total is not None  # noqa: S101 - a matrix has columns
    return total


def add_all(numbers: Tensor, bits: Tensor) -> Tensor:
    """Add up some of (limbs, …, count), chosen by (count, sums) bits: fewer than 2^36 of them."""
    parts = digits(numbers, _DIGIT)
    rows = ring.matmul(parts.reshape(-1, parts.shape[-1]), bits)
    return joined(rows.view(*parts.shape[:-1], -1), _DIGIT)


def _word_digits(words: Tensor, bits: int) -> Tensor:
    count = -(-64 // bits)
    rest = 64 - bits * (count - 1)
    lower = [(words >> (bits * at)) & ((1 << bits) - 1) for at in range(count - 1)]
    return torch.stack([*lower, (words >> (64 - rest)) & ((1 << rest) - 1)])


def digits(limbs: Tensor, bits: int) -> Tensor:
    """Write numbers in digits of so many bits, which divide 54: the lowest first."""
    if bits == BITS:
        return limbs
    mask = (1 << bits) - 1
    return torch.stack([(limb >> at) & mask for limb in limbs for at in range(0, BITS, bits)])


def joined(parts: Tensor, bits: int) -> Tensor:
    """Undo `digits`, for digits that need to be carried, which are spent."""
    parts, per = carry(parts, bits), BITS // bits
    limbs = parts[::per].clone() if per > 1 else parts
    for at in range(1, per):
        limbs += parts[at::per] << (bits * at)
    return limbs
