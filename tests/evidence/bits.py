"""Every bit that a corrupt party receives, over many runs: balanced, and bound to no other bit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations

import numpy as np
import torch
from scipy.stats import binom, norm
from torch import Tensor

from evidence.experiment import Tried
from support.llm import overhear_sealed
from support.mpc import ALICE, BOB, simulate

CHANCE = 1e-6
"""That an experiment complains of what is uniform, over all that it looks at."""
FEWEST = 48
"""Runs: fewer would leave a bit that never changes within what chance allows for millions."""
IDS = (7, 8)


def transcripts(seed: int, count: int) -> Iterator[Tried]:
    """Every bit of every message of a sealed pass is balanced, all known generators at zero."""
    runs = max(count, FEWEST)
    for who in (ALICE, BOB):
        ones: dict[str, np.ndarray] = defaultdict(lambda: np.zeros((), np.int64))
        packed = set[str]()
        for _ in range(runs):
            for tag, words in overhear_sealed(who, ids=IDS, seed=seed).received[who]:
                ones[tag] = ones[tag] + _bits(words).reshape(-1)
                packed |= {tag} if words.dtype == torch.uint8 or tag.startswith("deal/") else set()
        places = sum(one.size for one in ones.values())
        most = runs / 2 - float(binom.ppf(CHANCE / 2 / places, runs, 0.5))
        for tag, often in ones.items():
            off = np.abs(often - runs / 2)
            wrong, kind = off > most, "places that are balanced"
            if wrong.any():
                pads = _padding(often, tag) if tag in packed else np.zeros_like(wrong)
                assert not (wrong & ~pads).any(), f"{tag} to {who}: {off.max()} of {runs} off"
                yield Tried(f"{tag} to {who}", "zeros that fill up a byte or a word", wrong.sum())
            yield Tried(f"{tag} to {who}, {runs} runs", kind, int((~wrong).sum()))


def _bits(words: Tensor) -> np.ndarray:
    octets = np.frombuffer(words.numpy().tobytes(), np.uint8).reshape(*words.shape[:-1], -1)
    return np.unpackbits(octets, axis=-1, bitorder="little")


def _padding(often: np.ndarray, tag: str) -> np.ndarray:
    """Say which places fill up what is sent: zeros in every run, up to the end of a byte or word.

    The parties send whole bytes, the dealer whole words.
    """
    size = 64 if tag.startswith("deal/") else 8
    never = (often == 0).reshape(-1, size)
    last = np.flip(np.logical_and.accumulate(np.flip(never, 1), axis=1), 1)
    last[last.all(1)] = False  # a whole one would be no padding
    return np.asarray(last.reshape(-1))


BOUND = 64.0
NUMBERS = ((1.5, -2.0, 0.25), (3.0, 4.0, 5.0))


def pairs(seed: int, count: int) -> Iterator[Tried]:
    """No bit of a search for the largest goes with another, nor with differences of openings."""
    x = torch.tensor(NUMBERS, dtype=torch.float64)[:, None].repeat(1, count, 1)
    for is_direct in (True, False):
        for who in (ALICE, BOB):
            run = simulate(_search(count, is_direct), inputs={ALICE: {"x": x}}, corrupt=who)
            looks = [
                _columns(words, count)
                for tag, words in run.received[who]
                if tag.startswith("run/0.1.")  # the kernel's own; results are opened later
            ]
            signs = np.concatenate(looks).astype(np.float32) * 2 - 1
            away = np.abs(np.triu(signs @ signs.T, 1)) / count**0.5
            tried = len(signs) * (len(signs) - 1) // 2
            most = float(norm.isf(CHANCE / 2 / tried))
            assert away.max() < most, f"two bits go together: {away.max():.1f} deviations"
            way = "by words" if is_direct else "by bits"
            kind = "pairs of bits that do not go together"
            yield Tried(f"{who}, {way}: at most {away.max():.1f} of {most:.1f}", kind, tried)


def _search(count: int, is_direct: bool):  # type: ignore[no-untyped-def]
    def program(ops):  # type: ignore[no-untyped-def]
        x = ops.input("x", owner=ALICE, shape=(2, count, 3), bound=BOUND)
        found = ops.apply(ops.make("largest", BOUND, True, is_direct), x)
        return [ops.open(ops.part(found, i), to=(ALICE,), what="y", why="test") for i in range(3)]

    return program


def _columns(words: Tensor, count: int) -> np.ndarray:
    """Lay out the bits of a message by group: (places, groups); of openings differences, too."""
    if words.ndim > 1:  # bits, packed over all groups of a pair or number
        return _bits(words).reshape(-1, words.shape[-1] * 64)[:, : 3 * count].reshape(-1, count)
    openings = words.view(-1, count)  # two parts of three numbers
    apart = [openings[i] - openings[j] for i, j in combinations(range(3), 2)]
    every = torch.cat((openings, torch.stack(apart)))
    return _bits(every[..., None]).transpose(0, 2, 1).reshape(-1, count)
