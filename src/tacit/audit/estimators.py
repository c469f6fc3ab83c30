"""Intervals for what an audit measures."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy.stats import t

from tacit.data.metrics import CONFIDENCE, clopper_pearson, proportion
from tacit.errors import ConfigError
from tacit.result import Metric

__all__ = ["CONFIDENCE", "average", "bootstrap", "clopper_pearson", "mean_interval", "proportion"]


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
