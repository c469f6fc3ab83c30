"""Keys that are made once, and whether words look uniform."""

from functools import cache, lru_cache
from itertools import combinations, cycle

import torch
from scipy.stats import binom
from torch import Tensor

from tacit.crypto.cipher import make_key
from tacit.ring import Prg

# Ciphers with keys that are made once for all tests of a process, shorter than the default

_TURNS = cycle(range(2))


def short_key(scheme, randomness, bits=2048):
    """Return one of two keys in turn: two parties that make one at a time have different ones."""
    return _kept(scheme, next(_TURNS))


@cache
def _kept(scheme, number):
    return make_key(scheme, Prg.from_os().bytes, bits=2048)


# Does a set of words (or bytes) look uniform? Balance of bits, frequencies of bytes, pairs

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
