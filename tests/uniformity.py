"""Does a set of words (or bytes) look uniform? Balance of bits, frequencies of bytes, pairs."""

from itertools import combinations

import torch
from torch import Tensor

# Chance that one of these tests calls truly uniform words non-uniform: 64 bits per message at 7
# standard deviations (2.6e-12 each) and 8 bytes at a chi-square of 255 + 7·sqrt(510) + 60 (below
# 1e-11 each): under 1e-9 per message, and a test looks at fewer than a thousand messages.
_DEVIATIONS = 7.0
_CHI_SQUARE = 255 + 7 * 510**0.5 + 60


def complaints(words: Tensor) -> list[str]:
    """Say how words (samples along the first dimension) are not uniform; [] if they may be."""
    words = words.reshape(len(words), -1)
    found = []
    for column in words.T:
        found += _bits(column) + _bytes(column)
    return sorted(set(found))


def related(messages: list[tuple[str, Tensor]]) -> list[str]:
    """Name pairs of messages whose sum or difference is not uniform: a mask was used twice."""
    found = []
    for (first, x), (second, y) in combinations(messages, 2):
        if x.shape != y.shape or x.dtype != y.dtype:
            continue
        for sign, value in (("+", x + y), ("-", x - y), ("^", x ^ y)):
            if complaints(value):
                found.append(f"({first}) {sign} ({second})")
    return found


def _bits(words: Tensor) -> list[str]:
    count = len(words)
    width = 8 * words.element_size()
    ones = torch.stack([((words >> bit) & 1).sum() for bit in range(width)]).double()
    off = (ones - count / 2).abs() / (count**0.5 / 2)
    return ["a bit is not balanced"] if bool((off > _DEVIATIONS).any()) else []


def _bytes(words: Tensor) -> list[str]:
    expected = len(words) / 256
    for position in range(words.element_size()):
        octets = (words >> (8 * position)) & 255
        counts = torch.bincount(octets.long(), minlength=256).double()
        if float(((counts - expected) ** 2 / expected).sum()) > _CHI_SQUARE:
            return ["bytes are not equally frequent"]
    return []
