"""How good answers are: accuracy, F1, AUC, KS and calibration, with intervals where they exist.

One place for every kind of job. Intervals are of 95 %: Clopper and Pearson's for a share of
right answers, DeLong's for the area under a curve. F1, KS and the calibration error have none.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import exp, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError, DataError
from tacit.result import Metric

Numbers = NDArray[Any]  # of any width: files, tensors and counts come with their own

CONFIDENCE = 0.95
_Z95 = 1.959963984540054
_TAIL = 0.025
BINS = 15
"""Of equal width, for the calibration error (Guo et al. 2017)."""
ACCURACY, F1, AUC, KS, CALIBRATION = "accuracy", "F1", "AUC", "KS", "calibration error"
MAJORITY = "most frequent class"


def measure_classes(found: Numbers, labels: Numbers) -> tuple[Metric, ...]:
    """Measure answers that are classes: accuracy, beside that of naming one class always, and F1.

    Args:
        found: a class for every row.
        labels: the true ones.

    Raises:
        DataError: there are no rows, or not as many answers as labels.
    """
    if len(found) != len(labels) or not len(labels):
        raise DataError(f"wanted an answer for each of {len(labels)} labels, got {len(found)}")
    hits = int((found == labels).sum())
    return (proportion(ACCURACY, hits, len(labels)), measure_majority(labels), _f1(found, labels))


def measure_majority(labels: Numbers) -> Metric:
    """Return the share of the most frequent class: what an answer gets right without a look."""
    _, counts = np.unique(labels, return_counts=True)
    is_one = len(counts) == 1
    return Metric(
        name=MAJORITY,
        value=int(counts.max()) / len(labels),
        unit="fraction",
        samples=len(labels),
        note="the rows are all of one class" if is_one else "right by naming it for every row",
    )


def measure_odds(odds: Numbers, labels: Numbers) -> tuple[Metric, ...]:
    """Measure answers that are probabilities: also AUC, KS (of two classes) and calibration.

    Args:
        odds: the probability of class 1 for every row, or of every class in columns.
        labels: the true classes.
    """
    wide = odds if odds.ndim == 2 else np.stack([1 - odds, odds], axis=1)
    # A probability of one half says "yes", as everywhere.
    found = (wide[:, 1] >= wide[:, 0]).astype(int) if wide.shape[1] == 2 else wide.argmax(axis=1)
    ranked = _ranked(wide[:, 1], labels) if wide.shape[1] == 2 else (_many_auc(wide, labels),)
    return (*measure_classes(found, labels), *ranked, _calibration(wide, found, labels))


def add_majority(metrics: Sequence[Metric], labels: Numbers) -> tuple[Metric, ...]:
    """Put the share of the most frequent class behind an accuracy that stands without it."""
    names = [metric.name for metric in metrics]
    if ACCURACY not in names or MAJORITY in names:
        return tuple(metrics)
    at = names.index(ACCURACY) + 1
    return (*metrics[:at], measure_majority(labels), *metrics[at:])


def _ranked(odds: Numbers, labels: Numbers) -> tuple[Metric, ...]:
    yes, no = odds[labels == 1], odds[labels == 0]
    return (_auc(yes, no), _ks(yes, no)) if len(yes) and len(no) else _unranked(len(labels))


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


def clopper_pearson(
    hits: float, trials: int, *, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return an interval that covers a probability at least this often, for any sample size.

    The one interval for a proportion, of audits as of answers: a few trials that all came out alike
    do not make it a point. Hits may be a sum of shares between 0 and 1, which vary less than hits
    and misses do.
    """
    if not (0 <= hits <= trials and trials > 0):
        raise ConfigError(f"wanted 0 ≤ hits ≤ trials and a trial, got {hits} of {trials}")
    # Imported by who measures: it takes a while, and parties that only compute do not need it.
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = 0.0 if hits == 0 else float(betaincinv(hits, trials - hits + 1, tail))
    high = 1.0 if hits == trials else float(betaincinv(hits + 1, trials - hits, 1 - tail))
    return low, high


def put_beside(metrics: Iterable[Metric], plain: Iterable[Metric]) -> tuple[Metric, ...]:
    """Give metrics the values of a plain computation as references, by name."""
    known = {metric.name: metric.value for metric in plain if metric.name != MAJORITY}
    return tuple(
        replace(metric, reference=known[metric.name]) if metric.name in known else metric
        for metric in metrics
    )


def _f1(found: Numbers, labels: Numbers) -> Metric:
    """Take class 1 where there are two, and the mean over all classes where there are more."""
    classes = np.union1d(found, labels)
    is_binary = set(classes.tolist()) <= {0, 1}
    values = []
    for one in [1] if is_binary else classes:
        hits = int(((found == one) & (labels == one)).sum())
        named = int((found == one).sum()) + int((labels == one).sum())
        values.append(2 * hits / named if named else None)
    known = [value for value in values if value is not None]
    return Metric(
        name=F1,
        value=sum(known) / len(known) if known else None,
        unit="",
        samples=len(labels),
        note="of class 1" if is_binary else "mean over classes",
    )


def _auc(yes: Numbers, no: Numbers) -> Metric:
    """Give the area under the curve with DeLong's interval, on the scale of its logit."""
    every = _ranks(np.concatenate([yes, no]))
    above = (every[: len(yes)] - _ranks(yes)) / len(no)
    below = 1 - (every[len(yes) :] - _ranks(no)) / len(yes)
    area = float(above.mean())
    low, high, note = _auc_interval(area, above, below)
    samples = len(yes) + len(no)
    return Metric(name=AUC, value=area, unit="", samples=samples, low=low, high=high, note=note)


def _auc_interval(
    area: float, above: Numbers, below: Numbers
) -> tuple[float | None, float | None, str]:
    """Return an interval and how it was made (DeLong et al. 1988; Pepe 2003 for the logit)."""
    pairs = min(len(above), len(below))
    variance = sum(float(part.var(ddof=1)) / len(part) for part in (above, below) if len(part) > 1)
    if area in (0.0, 1.0):
        # So many pairs are independent, and all of them came out alike.
        edge = _TAIL ** (1 / pairs)
        note = "one-sided: all pairs are in order" if area else "one-sided: no pair is in order"
        return (edge, 1.0, note) if area else (0.0, 1 - edge, note)
    if pairs < 2 or variance == 0:
        return None, None, "too few rows of one class for an interval"
    at, half = log(area / (1 - area)), _Z95 * sqrt(variance) / (area * (1 - area))
    return _sigmoid(at - half), _sigmoid(at + half), "interval of DeLong"


def _many_auc(odds: Numbers, labels: Numbers) -> Metric:
    """Give the mean over classes of the area of each against the rest."""
    areas = [
        _auc(odds[labels == one, one], odds[labels != one, one]).value
        for one in range(odds.shape[1])
        if 0 < int((labels == one).sum()) < len(labels)
    ]
    known = [area for area in areas if area is not None]
    return Metric(
        name=AUC,
        value=sum(known) / len(known) if known else None,
        unit="",
        samples=len(labels),
        note="mean of each class against the rest",
    )


def _ks(yes: Numbers, no: Numbers) -> Metric:
    """Give the largest gap between the two classes' distributions (Kolmogorov and Smirnov)."""
    marks = np.unique(np.concatenate([yes, no]))
    shares = [np.searchsorted(np.sort(one), marks, side="right") / len(one) for one in (yes, no)]
    gap = float(np.abs(shares[0] - shares[1]).max())
    return Metric(name=KS, value=gap, unit="", samples=len(yes) + len(no))


def _unranked(count: int) -> tuple[Metric, ...]:
    note = "the rows are all of one class"
    return tuple(
        Metric(name=name, value=None, unit="", samples=count, note=note) for name in (AUC, KS)
    )


def _calibration(odds: Numbers, found: Numbers, labels: Numbers) -> Metric:
    """Give how far confidence is from the share of right answers, on average over bins of it."""
    confidence = odds[np.arange(len(odds)), found]
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gap = sum(
        abs(float((found == labels)[bins == one].sum() - confidence[bins == one].sum()))
        for one in np.unique(bins)
    )
    note = f"expected, over {BINS} bins of confidence"
    return Metric(
        name=CALIBRATION, value=gap / len(labels), unit="", samples=len(labels), note=note
    )


def _ranks(values: Numbers) -> Numbers:
    """Rank values from 1; equal ones share the mean of their ranks."""
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Numbers = (np.cumsum(counts) - (counts - 1) / 2)[where]
    return ranks


def _sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x)) if x >= 0 else exp(x) / (1 + exp(x))
