"""What an adversary may do beyond a box: relations between features, and other distances.

All of it is said about real inputs and checked in exact arithmetic.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError
from tacit.verify.box import Floats


@dataclass(frozen=True)
class Sum:
    """A weighted sum of features that must stay within `low` and `high`."""

    weights: Mapping[int, float]
    low: float = -np.inf
    high: float = np.inf


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Relations that a changed input must keep, and how much may change in all.

    Args:
        order: pairs (i, j) with x_i <= x_j.
        one_hot: groups of features of which one is 1 and the others are 0.
        sums: weighted sums of features.
        l1: the largest sum of absolute changes.
        l0: how many features may change.
    """

    order: tuple[tuple[int, int], ...] = ()
    one_hot: tuple[tuple[int, ...], ...] = ()
    sums: tuple[Sum, ...] = field(default=())
    l1: float | None = None
    l0: int | None = None

    def __post_init__(self) -> None:
        if self.l1 is not None and not 0 <= self.l1 < np.inf:
            raise ConfigError(f"l1 must be a finite distance, got {self.l1}")
        if self.l0 is not None and self.l0 < 0:
            raise ConfigError(f"l0 is a number of features, got {self.l0}")

    @property
    def features(self) -> frozenset[int]:
        """The features that stand in some relation."""
        pairs = (one for pair in self.order for one in pair)
        groups = (one for group in self.one_hot for one in group)
        summed = (one for total in self.sums for one in total.weights)
        return frozenset((*pairs, *groups, *summed))


def check_features(limits: Limits, n_features: int) -> None:
    """Refuse relations of features that do not exist."""
    wrong = sorted(f for f in limits.features if not 0 <= f < n_features)
    if wrong:
        raise ConfigError(f"features are numbered 0 to {n_features - 1}, got {wrong}")


def are_kept(limits: Limits, center: Floats, x: Floats) -> bool:
    """Say whether an input keeps every relation and distance, without rounding."""
    values = {f: Fraction(float(x[f])) for f in limits.features}
    moved = np.flatnonzero((x != center) & ~np.isnan(center))
    if limits.l0 is not None and moved.size > limits.l0:
        return False
    if limits.l1 is not None:
        moves = (abs(Fraction(float(x[f])) - Fraction(float(center[f]))) for f in moved)
        if sum(moves) > Fraction(limits.l1):
            return False
    return (
        all(values[i] <= values[j] for i, j in limits.order)
        and all(sorted(values[f] for f in g) == [0] * (len(g) - 1) + [1] for g in limits.one_hot)
        and all(_is_within(total, values) for total in limits.sums)
    )


def _is_within(total: Sum, values: Mapping[int, Fraction]) -> bool:
    exact = sum(Fraction(weight) * values[f] for f, weight in total.weights.items())
    return total.low <= exact <= total.high


def quantile_radii(rows: npt.ArrayLike, x: npt.ArrayLike, share: float) -> Floats:
    """Choose radii by the data: how far x can move, down and up, past `share` of the rows.

    Args:
        rows: the data, one row per sample.
        x: one input.
        share: the part of the rows that a feature may pass on either objective, 0 to 1.

    Returns:
        (2, features): how far down and how far up, as `verify` takes it.
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"share must be between 0 and 1, got {share}")
    data, center = np.asarray(rows, dtype=np.float64), np.asarray(x, dtype=np.float64)
    if data.ndim != 2 or data.shape[1:] != center.shape or not len(data):
        raise ConfigError(
            f"want rows of as many features as x, got shapes {data.shape} and {center.shape}"
        )
    ordered, steps = np.sort(data, axis=0), int(np.floor(share * len(data)))
    # Values equal to x are neither below nor above it.
    below, above = (data < center).sum(axis=0), (data <= center).sum(axis=0)
    columns, last = np.arange(center.size), len(data) - 1
    low = ordered[np.clip(below - steps, 0, last), columns]
    high = ordered[np.clip(above - 1 + steps, 0, last), columns]
    if steps == 0:
        low = high = center
    return np.stack([np.maximum(center - low, 0.0), np.maximum(high - center, 0.0)])
