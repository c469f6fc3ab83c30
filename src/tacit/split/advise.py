"""Which compressor to take when only so many bytes may travel: try those that fit."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.errors import ConfigError
from tacit.exclusive import seeded
from tacit.split.compress import Compression, make_codec
from tacit.split.local import Halves, fit_locally, training_bytes
from tacit.split.spec import SplitSpec

_BITS = (16, 8, 6, 4, 3, 2, 1)
_PILOT_ROWS = 4000


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A compressor that fits, with the bytes that training with it takes."""

    compression: Compression
    training_bytes: int


@dataclass(frozen=True, kw_only=True)
class CompressionTrial:
    """A candidate and how it did: the share of held-out rows that were right."""

    candidate: Candidate
    accuracy: float
    samples: int


def fitting(spec: SplitSpec, *, rows: int, width: int, budget_bytes: int) -> list[Candidate]:
    """Return, of every kind of compressor, the mildest setting that fits the budget.

    Raises:
        ConfigError: none fits; says what the smallest takes.
    """
    found: list[Candidate] = []
    smallest = None
    for settings in _settings(width):
        for compression in settings:  # mildest first
            size = training_bytes(make_codec(compression, width), rows, spec.train)
            smallest = size if smallest is None else min(smallest, size)
            if size <= budget_bytes:
                found.append(Candidate(compression=compression, training_bytes=size))
                break
    if not found:
        raise ConfigError(
            f"no compressor trains {rows} rows for {spec.train.epochs} epochs within "
            f"{budget_bytes:,} bytes; the smallest takes {smallest:,} (lower train.epochs)"
        )
    return found


def try_candidates(
    spec: SplitSpec,
    candidates: list[Candidate],
    make: Callable[[SplitSpec], Halves],
    x: Tensor,
    y: Tensor,
    *,
    seeds: int = 1,
) -> Iterator[CompressionTrial]:
    """Train a pilot with each candidate, on at most 4,000 rows, and measure it on a fifth of them.

    Args:
        spec: the job; its compression is replaced.
        candidates: from `fitting`.
        make: builds fresh halves for a spec.
        x: rows, all on this machine.
        y: their classes.
        seeds: pilots per candidate, averaged.
    """
    chosen = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:_PILOT_ROWS]
    held_out, kept = chosen[: len(chosen) // 5], chosen[len(chosen) // 5 :]
    if not len(held_out):
        raise ConfigError(f"wanted at least 5 rows to try compressors on, got {len(x)}")
    for candidate in candidates:
        trial = replace(spec, split=replace(spec.split, compress=candidate.compression))
        shares = []
        for seed in range(seeds):
            with seeded(seed):
                halves = make(trial)
                fit_locally(trial, halves, x[kept], y[kept], seed=seed)
            shares.append(halves.accuracy(x[held_out], y[held_out]))
        yield CompressionTrial(
            candidate=candidate,
            accuracy=sum(shares) / len(shares),
            samples=len(held_out) * seeds,
        )


def recommend(trials: list[CompressionTrial]) -> CompressionTrial:
    """Return the trial that sends least among those within a point of the most accurate."""
    best = max(trial.accuracy for trial in trials)
    near = [trial for trial in trials if trial.accuracy >= best - 0.01]
    return min(near, key=lambda trial: trial.candidate.training_bytes)


def _settings(width: int) -> Iterator[list[Compression]]:
    """Yield the settings of each kind, mildest first."""
    counts = sorted({max(1, width * share // 64) for share in (64, 48, 32, 24, 16, 12, 8, 6, 4, 2)})
    counts = sorted({*counts, *range(1, min(width, 8) + 1)}, reverse=True)
    yield [Compression()]
    yield [Compression(kind="quantise", bits=bits) for bits in _BITS]
    yield [Compression(kind="shrink", k=k) for k in counts]
    yield [Compression(kind="topk", k=k) for k in counts]
    yield [Compression(kind="randtopk", k=k, alpha=0.1) for k in counts]
    yield [
        Compression(kind="randtopk-coded", k=k, alpha=0.1, bits=4, gradient_bits=8) for k in counts
    ]
