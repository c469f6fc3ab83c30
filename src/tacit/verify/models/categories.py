"""Questions about categories: is the value one of a set?

Libraries disagree about what is no whole number: some cut it down to one, some know only what they
have seen. A category is therefore a range of keys here, both ends included: all that are looked up
as this category.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tacit.errors import DataError
from tacit.verify.kernels.tables import Bools, Floats, Ints

if TYPE_CHECKING:
    from tacit.verify.models.ensemble import Ensemble

LEFT, RIGHT = 0.0, 1.0
"""What a column of answers holds; a node asks whether it is at most one half."""
OPEN, MISSING, GOES_LEFT, GOES_RIGHT = range(4)
"""What is known of a column: nothing, that it is missing, or the answer about a category."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CategorySet:
    """The categories that one node lists, as ranges of keys, and where they go."""

    low: Floats
    high: Floats
    listed_left: bool
    """Whether what is listed goes left, and everything else right; or the other way round."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Categories:
    """Every question about a category that an ensemble asks.

    Args:
        feature: (questions): the feature that is asked for.
        start: (questions + 1): where the ranges of each begin.
        low: (ranges): the least key of a listed category.
        high: (ranges): the greatest.
        listed_left: (questions): whether a listed category goes left, and all others right.
        missing_left: (questions): whether a missing value (NaN) goes left.
    """

    feature: Ints
    start: Ints
    low: Floats
    high: Floats
    listed_left: Bools
    missing_left: Bools

    def __post_init__(self) -> None:
        count, ranges = self.feature.size, self.low.size
        shapes = [one.shape for one in (self.feature, self.listed_left, self.missing_left)]
        is_cut = self.start.shape == (count + 1,) and bool((np.diff(self.start) >= 0).all())
        is_whole = is_cut and self.start[0] == 0 and self.start[-1] == ranges
        if shapes != [(count,)] * 3 or not is_whole or self.high.shape != (ranges,):
            raise DataError("the questions about categories do not fit together")

    def answer(self, keys: Floats) -> Floats:
        """Answer each question about each row of keys: LEFT or RIGHT."""
        asked = np.repeat(self.feature, np.diff(self.start))
        is_inside = (self.low <= keys[:, asked]) & (keys[:, asked] <= self.high)
        count = np.zeros((len(keys), self.low.size + 1), np.int64)
        np.cumsum(is_inside, axis=1, out=count[:, 1:])
        is_listed = count[:, self.start[1:]] > count[:, self.start[:-1]]
        is_left = np.where(
            np.isnan(keys[:, self.feature]), self.missing_left, is_listed == self.listed_left
        )
        return np.where(is_left, LEFT, RIGHT)


def join_sets(
    sets: Sequence[CategorySet], feature: Sequence[int], missing_left: Sequence[bool]
) -> Categories:
    """Put the sets of many nodes, and what their nodes ask for, into flat arrays."""
    sizes = [one.low.size for one in sets]
    return Categories(
        feature=np.array(feature, np.int32),
        start=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32),
        low=np.concatenate([one.low for one in sets]).astype(np.float64),
        high=np.concatenate([one.high for one in sets]).astype(np.float64),
        listed_left=np.array([one.listed_left for one in sets], np.bool_),
        missing_left=np.array(missing_left, np.bool_),
    )


def take_out(ensemble: "Ensemble", told: bytes) -> "Ensemble":
    """Lead past every question that is answered; all trees stay, in their order.

    Args:
        ensemble: the trees.
        told: what is known of each column, one byte each.
    """
    inner, known = ensemble.feature >= 0, np.frombuffer(told, np.uint8)
    answer = np.where(inner, known[ensemble.feature], OPEN)
    goes_left = np.where(answer == MISSING, ensemble.missing_left, answer == GOES_LEFT)
    here = np.arange(inner.size)
    way = np.where(answer == OPEN, here, np.where(goes_left, ensemble.left, ensemble.right))
    while ((further := way[way]) != way).any():
        way = further
    roots = way[ensemble.roots]
    left, right = (np.where(inner, way[side], -1) for side in (ensemble.left, ensemble.right))
    kept = _reachable(roots, left, right)
    moved = np.cumsum(kept) - 1

    def renumber(places: Ints) -> Ints:
        return np.where(places >= 0, moved[places], -1).astype(np.int32)

    return replace(
        ensemble,
        roots=renumber(roots),
        left=renumber(left[kept]),
        right=renumber(right[kept]),
        feature=ensemble.feature[kept],
        threshold=ensemble.threshold[kept],
        missing_left=ensemble.missing_left[kept],
        value=ensemble.value[kept],
        categories=None,
    )


def _reachable(roots: Ints, left: Ints, right: Ints) -> Bools:
    seen, front = np.zeros(left.size, dtype=bool), roots
    while front.size:
        seen[front] = True
        front = front[left[front] >= 0]
        front = np.concatenate([left[front], right[front]])
    return seen
