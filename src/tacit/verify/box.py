"""Perturbation boxes: which inputs an adversary may choose, exactly.

The claim speaks of real numbers: every float64 x' with x − below <= x' <= x + above, compared
without rounding. The library then rounds x' to its own input type. Both steps keep order, so the
reachable keys are exactly those between the keys of the two ends.

Numbers move. What is missing stays missing and a category stays what it is, so every question about
them has one answer in the whole box; *conditioned* on these answers the ensemble is one of numbers
alone, which the search, the proof and its checker know.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError, DataError
from tacit.verify.kernels.layout.rounding import FITS, add_down, fill_box, fill_intervals, move
from tacit.verify.kernels.tables import Bools, Floats, Ints, Reals
from tacit.verify.models.categories import GOES_LEFT, GOES_RIGHT, LEFT, MISSING, OPEN
from tacit.verify.models.ensemble import Ensemble, check_rows

Intervals = Ints
LARGEST = {kind: float(np.finfo(kind).max) for kind in ("float32", "float64")}


@dataclass(frozen=True)
class Domain:
    """The values that features can take at all: one range for all, or one per feature."""

    low: npt.ArrayLike = -np.inf
    high: npt.ArrayLike = np.inf


@dataclass(frozen=True, eq=False)
class Box:
    """All inputs between `low` and `high` (float64, both included) around the input `center`.

    Where all three are NaN the value is missing, in all inputs of the box.
    """

    center: Floats
    low: Floats
    high: Floats


def ball(ensemble: Ensemble, x: npt.ArrayLike, eps: npt.ArrayLike, domain: Domain) -> Box:
    """Make the box of all x' with |x'_j − x_j| <= eps_j inside the domain.

    Numbers move; what is missing (NaN) stays missing, and a category stays what it is.

    Args:
        ensemble: says which features are whole numbers.
        x: one input.
        eps: one radius, one per feature, or two rows (how far down, how far up). May be infinite.
        domain: the range of each feature; `x` must lie in it.
    """
    rows = balls(ensemble, _one_row(ensemble, x), eps, domain)
    return Box(rows.center[0], rows.low[0], rows.high[0])


def balls(ensemble: Ensemble, rows: npt.ArrayLike, eps: npt.ArrayLike, domain: Domain) -> Box:
    """Make the boxes of many inputs, as `ball` does; center and ends have one row per input."""
    center = np.array(check_rows(ensemble, rows), dtype=np.float64, order="C")
    below, above = _radii(ensemble, eps)
    n = ensemble.n_features
    floor, roof = _wide(domain.low, n), _wide(domain.high, n)
    low, high = np.empty_like(center), np.empty_like(center)
    is_missing = np.isnan(center)
    if is_missing.any():
        if not ensemble.takes_missing:
            raise _refuse_missing(ensemble, int(np.argwhere(is_missing)[0, 1]))
        center = np.where(is_missing, np.clip(0.0, floor, roof), center)
    if ensemble.categories is not None:
        below, above = (np.where(ensemble.is_category, 0.0, radius) for radius in (below, above))
    wrong = fill_box(center, below, above, floor, roof, LARGEST[ensemble.input_type], low, high)
    if wrong != FITS:
        _refuse(ensemble, center[wrong // n], wrong % n, floor, roof)
    box = Box(center, low, high)
    if ensemble.integer is not None:
        box = _keep_whole(ensemble, ensemble.integer, box)
    if is_missing.any():
        for end in (box.center, box.low, box.high):
            end[is_missing] = np.nan
    return box


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


def box_intervals(ensemble: Ensemble, box: Box) -> tuple[Intervals, Intervals]:
    """Translate a box into intervals, as the library rounds its ends."""
    low, high = np.empty((2, ensemble.n_features), dtype=np.int32)
    index = ensemble.index
    is_single = ensemble.input_type == "float32"
    fill_intervals(index.cuts, index.cut_start, box.low, box.high, is_single, low, high)
    return low, high


def place_witness(ensemble: Ensemble, box: Box, low: Intervals, high: Intervals) -> Floats:
    """Move each feature of the center as little as possible into its intervals."""
    x = box.center.copy()
    index = ensemble.index
    is_single = ensemble.input_type == "float32"
    whole = np.zeros(x.size, dtype=bool) if ensemble.integer is None else ensemble.integer
    move(index.cuts, index.cut_start, to_keys(ensemble, x), low, high, is_single, whole, x)
    return np.clip(x, box.low, box.high)


def inward(x: float, radius: float) -> tuple[float, float]:
    """Compute the float64 range inside the real interval [x − radius, x + radius]."""
    return -float(add_down(-x, radius)), float(add_down(x, radius))


def to_keys(ensemble: Ensemble, values: Floats) -> Floats:
    """Round inputs as the library does; what overflows becomes the largest finite key."""
    largest = np.finfo(ensemble.input_type).max
    with np.errstate(over="ignore"):
        keys = values.astype(ensemble.input_type)
    return np.asarray(np.clip(keys, -largest, largest), dtype=np.float64)


def _refuse_missing(ensemble: Ensemble, feature: int) -> DataError:
    """Say that a value is missing where none may be."""
    return DataError(
        f"feature {feature} is missing (NaN), and {ensemble.origin} takes no missing values; fill "
        "it in first"
    )


def _check_stays(ensemble: Ensemble, boxes: Box, is_missing: Bools) -> None:
    if is_missing.any() and not ensemble.takes_missing:
        raise _refuse_missing(ensemble, int(np.argwhere(is_missing)[0, 1]))
    for end in (boxes.low, boxes.high):
        is_same = np.where(is_missing, np.isnan(end), boxes.center == end)
        wrong = np.argwhere(~is_same & (is_missing | ensemble.is_category))
        if wrong.size:
            raise DataError(
                f"feature {wrong[0, 1]} is missing or a category: it must not move within a box"
            )


def _state_answers(ensemble: Ensemble, rows: Floats, is_missing: Bools) -> npt.NDArray[np.uint8]:
    answers = np.zeros((len(rows), ensemble.width), dtype=np.uint8)
    answers[:, : ensemble.n_features] = np.where(is_missing, MISSING, OPEN)
    is_left = ensemble.to_columns(rows)[:, ensemble.n_features :] == LEFT
    answers[:, ensemble.n_features :] = np.where(is_left, GOES_LEFT, GOES_RIGHT)
    return answers


def _one_row(ensemble: Ensemble, x: npt.ArrayLike) -> Reals:
    rows = check_rows(ensemble, x)
    if rows.shape[0] != 1:
        raise DataError(f"want one input, got {rows.shape[0]}; use verify_many for several")
    return rows


def _refuse(ensemble: Ensemble, x: Floats, feature: int, floor: Floats, roof: Floats) -> None:
    if not np.isfinite(x[feature]):
        raise DataError(
            f"feature {feature} is {x[feature]}: a neighbourhood of an infinite value is not "
            "defined; fill it in first"
        )
    if abs(x[feature]) > LARGEST[ensemble.input_type]:
        raise DataError(
            f"feature {feature} is {x[feature]:g}, beyond what {ensemble.input_type} can hold"
        )
    raise DataError(
        f"feature {feature} is {x[feature]:g}, outside its domain "
        f"[{floor[feature]:g}, {roof[feature]:g}]"
    )


def _radii(ensemble: Ensemble, eps: npt.ArrayLike) -> tuple[Floats, Floats]:
    n = ensemble.n_features
    radii = np.asarray(eps, dtype=np.float64)
    if radii.ndim == 0 and radii >= 0:
        both = np.full(n, radii)
        return both, both
    if radii.shape not in ((), (n,), (2, n)):
        raise ConfigError(
            f"eps must be one radius, {n} radii or two rows of {n}, got shape {radii.shape}"
        )
    if np.isnan(radii).any() or (radii < 0).any():
        raise ConfigError(f"eps must not be negative or NaN, got {radii.min():g}")
    if radii.shape == (2, n):
        return np.ascontiguousarray(radii[0]), np.ascontiguousarray(radii[1])
    both = np.ascontiguousarray(np.broadcast_to(radii, (n,)))
    return both, both


def _wide(bound: npt.ArrayLike, count: int) -> Floats:
    bounds = np.asarray(bound, dtype=np.float64)
    # Faster than a broadcast, which every question would pay for.
    if bounds.ndim == 0:
        return np.full(count, bounds)
    return np.ascontiguousarray(np.broadcast_to(bounds, (count,)))


def _keep_whole(ensemble: Ensemble, whole: npt.NDArray[np.bool_], box: Box) -> Box:
    limit = 2.0**24 if ensemble.input_type == "float32" else 2.0**53
    farthest = np.maximum(np.abs(box.low), np.abs(box.high))[:, whole]
    if (box.center[:, whole] != np.rint(box.center[:, whole])).any() or (farthest > limit).any():
        raise DataError(
            f"whole-numbered features must hold whole numbers and stay within ±{limit:g}; "
            "check the input and give the domain"
        )
    low, high = np.where(whole, np.ceil(box.low), box.low), np.floor(box.high)
    return Box(box.center, low, np.where(whole, high, box.high))
