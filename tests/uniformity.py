"""Does a set of words (or bytes) look uniform? Balance of bits, frequencies of bytes, pairs."""

from functools import lru_cache
from itertools import combinations

import torch
from scipy.stats import binom
from torch import Tensor

# Chance that truly uniform words are called non-uniform because of one bit, or of one byte. A test
# run looks at ten thousand columns of at most 64 bits and 8 bytes each: below 1e-9 in all.
_CHANCE = 1e-16


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
    width = 8 * words.element_size()
    ones = torch.stack([((words >> bit) & 1).sum() for bit in range(width)])
    off = (ones - len(words) / 2).abs()
    return ["a bit is not balanced"] if bool((off > _most_off(len(words))).any()) else []


@lru_cache
def _most_off(count: int) -> float:
    # Of the lower tail, which is as long: 1 - _CHANCE is 1.0, whose quantile is no bound at all.
    return count / 2 - float(binom.ppf(_CHANCE / 2, count, 0.5))


def _bytes(words: Tensor) -> list[str]:
    expected = len(words) / 256
    # Chi-square with 255 degrees of freedom exceeds 530 with a chance below _CHANCE. Few words
    # have a longer tail, which a Chernoff bound over the multinomial puts below this hyperbola.
    most = 530 + 35_000 / max(len(words), 1)
    for position in range(words.element_size()):
        octets = (words >> (8 * position)) & 255
        counts = torch.bincount(octets.long(), minlength=256).double()
        if float(((counts - expected) ** 2 / expected).sum()) > most:
            return ["bytes are not equally frequent"]
    return []
