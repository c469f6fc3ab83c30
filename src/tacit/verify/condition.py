"""Conditioning: the ensemble that is left once a row's missing values and categories are known.

Within a distance numbers move. What is missing stays missing and a category stays what it is, so
every question about them has one answer in the whole box; without these questions the ensemble is
one of numbers alone, which the search, the proof and its checker know.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import DataError
from tacit.verify.box import Box, refuse_missing
from tacit.verify.kernels.arrays import Bools
from tacit.verify.models.answered import GOES_LEFT, GOES_RIGHT, MISSING, OPEN
from tacit.verify.models.categories import LEFT
from tacit.verify.models.ensemble import Ensemble

Answers = npt.NDArray[np.uint8]


def condition(ensemble: Ensemble, box: Box) -> Ensemble:
    """Decide every question that the center of a box answers by a missing value or a category.

    Raises:
        DataError: a missing value or a category moves in the box, or the model takes no missing
            values.
    """
    rows = Box(box.center[None], box.low[None], box.high[None])
    return next(condition_each(ensemble, rows))[0]


def condition_each(ensemble: Ensemble, boxes: Box) -> Iterator[tuple[Ensemble, slice]]:
    """Condition on box after box; what follows each other and is alike comes together."""
    is_missing = np.isnan(boxes.center)
    if ensemble.categories is None and not is_missing.any():
        yield ensemble, slice(0, len(is_missing))
        return
    _check_stays(ensemble, boxes, is_missing)
    answers = _state_answers(ensemble, boxes.center, is_missing)
    changes = np.flatnonzero((answers[1:] != answers[:-1]).any(axis=1)) + 1
    ends = [0, *changes.tolist(), len(answers)]
    for first, last in pairwise(ends):
        yield ensemble.conditioned(answers[first].tobytes()), slice(first, last)


def _check_stays(ensemble: Ensemble, boxes: Box, is_missing: Bools) -> None:
    if is_missing.any() and not ensemble.takes_missing:
        raise refuse_missing(ensemble, int(np.argwhere(is_missing)[0, 1]))
    for end in (boxes.low, boxes.high):
        is_same = np.where(is_missing, np.isnan(end), boxes.center == end)
        wrong = np.argwhere(~is_same & (is_missing | ensemble.is_category))
        if wrong.size:
            raise DataError(
                f"feature {wrong[0, 1]} is missing or a category: it must not move within a box"
            )


def _state_answers(ensemble: Ensemble, rows: npt.NDArray[Any], is_missing: Bools) -> Answers:
    answers = np.zeros((len(rows), ensemble.width), dtype=np.uint8)
    answers[:, : ensemble.n_features] = np.where(is_missing, MISSING, OPEN)
    is_left = ensemble.to_columns(rows)[:, ensemble.n_features :] == LEFT
    answers[:, ensemble.n_features :] = np.where(is_left, GOES_LEFT, GOES_RIGHT)
    return answers
