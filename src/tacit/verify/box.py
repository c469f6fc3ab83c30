"""Perturbation boxes: which inputs an adversary may choose, exactly.

The claim speaks of real numbers: every float64 x' with x − below <= x' <= x + above, compared
without rounding. The library then rounds x' to its own input type. Both steps keep order, so the
reachable keys are exactly those between the keys of the two ends.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError, DataError
from tacit.verify.ensemble import Ensemble, check_rows
from tacit.verify.jit import bare

Floats = npt.NDArray[np.float64]
LARGEST = {kind: float(np.finfo(kind).max) for kind in ("float32", "float64")}
FITS = -1


@dataclass(frozen=True)
class Domain:
    """The values that features can take at all: one range for all, or one per feature."""

    low: npt.ArrayLike = -np.inf
    high: npt.ArrayLike = np.inf


@dataclass(frozen=True, eq=False)
class Box:
    """All inputs between `low` and `high` (float64, both included) around the input `center`."""

    center: Floats
    low: Floats
    high: Floats


def ball(ensemble: Ensemble, x: npt.ArrayLike, eps: npt.ArrayLike, domain: Domain) -> Box:
    """Make the box of all x' with |x'_j − x_j| <= eps_j inside the domain.

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
    wrong = _fill(center, below, above, floor, roof, LARGEST[ensemble.input_type], low, high)
    if wrong != FITS:
        _refuse(ensemble, center[wrong // n], wrong % n, floor, roof)
    box = Box(center, low, high)
    return box if ensemble.integer is None else _keep_whole(ensemble, ensemble.integer, box)


def box_cells(ensemble: Ensemble, box: Box) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Translate a box into cells, as the library rounds its ends."""
    low, high = np.empty((2, ensemble.n_features), dtype=np.int32)
    index = ensemble.index
    is_single = ensemble.input_type == "float32"
    _fill_cells(index.cuts, index.cut_start, box.low, box.high, is_single, low, high)
    return low, high


def inward(x: float, radius: float) -> tuple[float, float]:
    """Compute the float64 range inside the real interval [x − radius, x + radius]."""
    return -float(_add_down(-x, radius)), float(_add_down(x, radius))


def to_keys(ensemble: Ensemble, values: Floats) -> Floats:
    """Round inputs as the library does; what overflows becomes the largest finite key."""
    largest = np.finfo(ensemble.input_type).max
    with np.errstate(over="ignore"):
        keys = values.astype(ensemble.input_type)
    return np.asarray(np.clip(keys, -largest, largest), dtype=np.float64)


@bare
def _fill(
    x: Any, below: Any, above: Any, floor: Any, roof: Any, limit: float, low: Any, high: Any
) -> Any:
    """Write the ends of boxes; return FITS, or a place that is outside what it may be."""
    largest = np.finfo(np.float64).max
    for row in range(x.shape[0]):
        for i in range(x.shape[1]):
            value = x[row, i]
            if not (abs(value) <= limit and floor[i] <= value <= roof[i]):
                return row * x.shape[1] + i
            low[row, i] = max(-_add_down(-value, below[i]), floor[i], -largest)
            high[row, i] = min(_add_down(value, above[i]), roof[i], largest)
    return FITS


@bare
def _fill_cells(
    cuts: Any, start: Any, low: Any, high: Any, is_single: bool, cell_low: Any, cell_high: Any
) -> None:
    for f in range(low.size):
        part = cuts[start[f] : start[f + 1]]
        cell_low[f], cell_high[f] = 0, 0
        if part.size:
            low_key, high_key = low[f], high[f]
            if is_single:
                largest = np.float64(np.finfo(np.float32).max)
                low_key = max(np.float64(np.float32(low_key)), -largest)
                high_key = min(np.float64(np.float32(high_key)), largest)
            cell = np.searchsorted(part, low_key)
            cell_low[f] = cell
            while cell < part.size and part[cell] < high_key:
                cell += 1
            cell_high[f] = cell


@bare
def _add_down(x: float, y: float) -> Any:
    """Compute x + y rounded towards minus infinity."""
    total = x + y
    # Knuth's two-sum: the exact sum is total + rest; rest is NaN where total is infinite.
    part = total - x
    rest = (x - (total - part)) + (y - part)
    return np.nextafter(total, -np.inf) if rest < 0 else total


def _one_row(ensemble: Ensemble, x: npt.ArrayLike) -> npt.NDArray[Any]:
    rows = check_rows(ensemble, x)
    if rows.shape[0] != 1:
        raise DataError(f"want one input, got {rows.shape[0]}; use verify_many for several")
    return rows


def _refuse(ensemble: Ensemble, x: Floats, feature: int, floor: Floats, roof: Floats) -> None:
    if not np.isfinite(x[feature]):
        raise DataError(
            f"feature {feature} is {x[feature]}: a neighbourhood of a missing or infinite value "
            "is not defined; fill it in first"
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
