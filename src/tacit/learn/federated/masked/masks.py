"""Masks: long streams of words from short keys, added and taken away in place."""

from collections.abc import Sequence

import numpy as np
import torch

from tacit.learn.federated.masked.plan import Words
from tacit.ring import Prg

_CHUNK_BYTES = 1 << 18  # of mask at once: as the generator draws, and small enough for the cache


def add_masks(words: Words, *, plus: Sequence[bytes] = (), minus: Sequence[bytes] = ()) -> None:
    """Add the streams of some keys to ``words`` and take those of others away, in place.

    Guarantee: with one key that an observer does not know, the result is uniform to that observer
    and independent of what it was, if AES-128 is a pseudo-random permutation.
    Cost: 0 rounds, 0 bits; one pass of AES-CTR and one addition per key.
    """
    streams = [(Prg(key), np.add) for key in plus] + [(Prg(key), np.subtract) for key in minus]
    count = _CHUNK_BYTES // words.itemsize
    buffer = np.empty(min(count, words.size), words.dtype)
    for start in range(0, words.size, count):
        target = words[start : start + count]
        mask = buffer[: target.size]
        octets = torch.from_numpy(mask.view(np.uint8))
        for stream, apply in streams:
            stream.fill(octets)
            apply(target, mask, out=target)
