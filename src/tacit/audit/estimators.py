"""What an audit measures, with intervals: means, shares, and how well a score ranks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binom, norm, rankdata, t

from tacit.data.metrics import CONFIDENCE, clopper_pearson, proportion
from tacit.errors import ConfigError, DataError
from tacit.result import Curve, Metric

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


Scores = NDArray[np.float64]
Truth = NDArray[np.bool_]

LOW_RATES = (0.001, 0.01)
"""The false-positive rates at which the literature reports: an attacker who seldom errs."""
_DRAWN = 400


@dataclass(frozen=True, eq=False)
class Ranking:
    """Scores of records and which of them are positive; the higher, the surer of a positive.

    Raises:
        DataError: the lengths differ, a score is NaN, or there is only one kind of record.
    """

    scores: Scores
    is_positive: Truth

    def __post_init__(self) -> None:
        if self.scores.shape != self.is_positive.shape or self.scores.ndim != 1:
            raise DataError(
                f"wanted a score for every record, got {self.scores.shape} scores "
                f"for {self.is_positive.shape} records"
            )
        if bool(np.isnan(self.scores).any()):
            raise DataError("a score is NaN; an attack must score every record")
        if not 0 < int(self.is_positive.sum()) < len(self.scores):
            raise DataError("wanted records of both kinds to rank, got one kind")

    @property
    def positives(self) -> Scores:
        """Return the scores of the positives."""
        return self.scores[self.is_positive]

    @property
    def negatives(self) -> Scores:
        """Return the scores of the negatives."""
        return self.scores[~self.is_positive]


def roc(ranking: Ranking) -> tuple[Scores, Scores]:
    """Return false- and true-positive rates at every threshold, from (0, 0) to (1, 1)."""
    order = np.argsort(-ranking.scores, kind="stable")
    values, truth = ranking.scores[order], ranking.is_positive[order]
    ends = np.append(np.flatnonzero(np.diff(values)), len(values) - 1)  # ties stay together
    hits, alarms = np.cumsum(truth)[ends], np.cumsum(~truth)[ends]
    false = np.concatenate([[0.0], alarms / max(int((~truth).sum()), 1)])
    true = np.concatenate([[0.0], hits / max(int(truth.sum()), 1)])
    return false, true


def auc(ranking: Ranking, *, confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """Return the area under the ROC curve with DeLong's interval; ½ is a blind guess.

    The interval is taken on the logit of the area, so that it stays within 0 and 1 (DeLong et al.
    1988; fast form of Sun and Xu 2014). With perfect separation, or equal scores, the variance is
    zero and the exact interval of a share of the rarer kind stands in.
    """
    positives, negatives = ranking.positives, ranking.negatives
    m, n = len(positives), len(negatives)
    both = rankdata(np.concatenate([positives, negatives]))
    above = (both[:m] - rankdata(positives)) / n  # share of negatives below each positive
    below = 1 - (both[m:] - rankdata(negatives)) / m
    area = float(above.mean())
    spread = float(np.sqrt(above.var() / max(m - 1, 1) + below.var() / max(n - 1, 1)))
    if spread == 0 or min(m, n) < 2:
        low, high = clopper_pearson(area * min(m, n), min(m, n), confidence=confidence)
        return area, low, high
    z = float(norm.ppf((1 + confidence) / 2)) * spread / (area * (1 - area))
    centre = float(np.log(area / (1 - area)))
    return area, _sigmoid(centre - z), _sigmoid(centre + z)


def tpr_at(
    ranking: Ranking, rate: float, *, confidence: float = CONFIDENCE
) -> tuple[float, float, float]:
    """Return the share of positives found at a false-positive rate of at most `rate`.

    The interval is for the share at the threshold whose true rate that is. It holds for any scores
    and sizes, as both halves of what is unknown are bounded: between which negatives that threshold
    lies (a binomial count), and the share of positives beyond those (Clopper–Pearson).
    """
    false, true = roc(ranking)
    best = float(true[false <= rate].max())
    negatives, positives = -np.sort(-ranking.negatives), np.sort(ranking.positives)
    n, m = len(negatives), len(positives)
    tail = (1 - confidence) / 4  # of each of the four bounds

    def beyond(alarms: int) -> int:
        """Count the positives above that many-th negative: fewer negatives than that are."""
        return m - int(np.searchsorted(positives, negatives[alarms - 1], side="right"))

    fewest = int(binom.ppf(tail, n, rate))  # fewer above the true threshold: at most `tail`
    most = int(binom.isf(tail, n, rate)) + 1  # as many, or more: at most `tail`
    surely = beyond(fewest) if fewest > 0 else 0
    at_most = beyond(most) if most <= n else m
    low = clopper_pearson(surely, m, confidence=1 - 2 * tail)[0]
    return best, low, clopper_pearson(at_most, m, confidence=1 - 2 * tail)[1]


def advantage(ranking: Ranking, *, confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """Return the largest TPR − FPR with an interval that is valid although the largest is taken.

    The Dvoretzky–Kiefer–Wolfowitz inequality bounds both distribution functions at once.
    """
    false, true = roc(ranking)
    best = float((true - false).max())
    tail = np.log(4 / (1 - confidence)) / 2
    wide = float(np.sqrt(tail / len(ranking.positives)) + np.sqrt(tail / len(ranking.negatives)))
    return best, max(best - wide, 0.0), min(best + wide, 1.0)


def measure_ranking(name: str, ranking: Ranking) -> tuple[Metric, ...]:
    """Return everything that is reported about a score: AUC first, then low rates, advantage."""
    count = len(ranking.scores)
    area = auc(ranking)
    found = [_metric(f"{name}: AUC", area, "", count, reference=0.5)]
    for rate in LOW_RATES:
        best = tpr_at(ranking, rate)
        few = len(ranking.negatives) * rate < 1
        note = f"fewer than {1 / rate:g} non-members: no false positive allowed" if few else ""
        label = f"{name}: TPR at {100 * rate:g} % FPR"
        found.append(_metric(label, best, "fraction", count, reference=rate, note=note))
    spread = advantage(ranking)
    found.append(_metric(f"{name}: advantage, TPR − FPR", spread, "", count, reference=0.0))
    return tuple(found)


def draw_roc(name: str, ranking: Ranking, *, title: str = "Who is a member?") -> Curve:
    """Draw the ROC curve on logarithmic axes, where an attacker who seldom errs is visible."""
    false, true = roc(ranking)
    keep = (false > 0) & (true > 0)
    points = np.unique(np.stack([false[keep], true[keep]], axis=1), axis=0)
    if len(points) > _DRAWN:
        # Evenly on the logarithmic axis.
        wanted = np.geomspace(points[0, 0], 1.0, _DRAWN)
        points = points[np.unique(np.searchsorted(points[:, 0], wanted).clip(0, len(points) - 1))]
    return Curve(
        title=title,
        x_label="false-positive rate",
        y_label="true-positive rate",
        name=name,
        points=tuple((float(x), float(y)) for x, y in points),
        x_axis="log",
        y_axis="log",
    )


def _metric(
    name: str,
    found: tuple[float, float, float],
    unit: str,
    samples: int,
    *,
    reference: float,
    note: str = "",
) -> Metric:
    value, low, high = found
    return Metric(
        name=name,
        value=value,
        unit=unit,
        samples=samples,
        low=low,
        high=high,
        reference=reference,
        note=note or "reference: blind guess",
    )


def _sigmoid(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))
