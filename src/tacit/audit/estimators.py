"""Intervals for what an audit measures."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy.stats import beta, t

from tacit.errors import ConfigError
from tacit.result import Metric

CONFIDENCE = 0.95


def clopper_pearson(
    hits: float, trials: int, *, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return an interval that covers a probability at least this often, for any sample size.

    Hits may be a sum of shares between 0 and 1, which vary less than hits and misses do.
    """
    if not (0 <= hits <= trials and trials > 0):
        raise ConfigError(f"wanted 0 ≤ hits ≤ trials and a trial, got {hits} of {trials}")
    tail = (1 - confidence) / 2
    low = 0.0 if hits == 0 else float(beta.ppf(tail, hits, trials - hits + 1))
    high = 1.0 if hits == trials else float(beta.ppf(1 - tail, hits + 1, trials - hits))
    return low, high


def bootstrap(
    statistic: Callable[[np.ndarray], float],
    sample: np.ndarray,
    *,
    generator: torch.Generator,
    draws: int = 1000,
    confidence: float = CONFIDENCE,
) -> tuple[float, float]:
    """Return the percentile interval of a statistic of the rows of a sample."""
    count = len(sample)
    if count < 1:
        raise ConfigError("wanted a sample of at least one row, got none")
    rolls = torch.empty(draws, count).uniform_(generator=generator).numpy()
    picks = np.minimum((rolls * count).astype(np.int64), count - 1)
    values = [statistic(sample[pick]) for pick in picks]
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(values, [tail, 100 - tail])
    return float(low), float(high)


def mean_interval(
    values: Sequence[float], *, confidence: float = CONFIDENCE
) -> tuple[float, float, float]:
    """Return the mean of a few repetitions with Student's interval.

    It is infinite from one alone and from equal ones: they say nothing about their spread.
    """
    sample = np.asarray(values, np.float64)
    mean = float(sample.mean())
    if len(sample) < 2 or sample.min() == sample.max():
        return mean, -np.inf, np.inf
    half = float(t.ppf((1 + confidence) / 2, len(sample) - 1) * sample.std(ddof=1))
    half /= len(sample) ** 0.5
    return mean, mean - half, mean + half


def proportion(name: str, hits: int, trials: int, *, note: str = "") -> Metric:
    """Return a share of hits as a metric with its exact interval."""
    low, high = clopper_pearson(hits, trials)
    return Metric(
        name=name,
        value=hits / trials,
        unit="fraction",
        samples=trials,
        low=low,
        high=high,
        note=note,
    )


def average(
    name: str,
    values: Sequence[float],
    unit: str,
    *,
    reference: float | None = None,
    note: str = "",
) -> Metric:
    """Return a mean as a metric with Student's interval, if there is one."""
    value, low, high = mean_interval(values)
    is_known = bool(np.isfinite(low))
    return Metric(
        name=name,
        value=value,
        unit=unit,
        samples=len(values),
        low=low if is_known else None,
        high=high if is_known else None,
        reference=reference,
        note=note,
    )
