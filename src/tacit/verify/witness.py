"""From cells back to inputs: the point of a cell that lies nearest to where we started."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.verify.box import Box, Floats, to_keys
from tacit.verify.ensemble import Ensemble
from tacit.verify.jit import bare

Cells = npt.NDArray[np.int32]


def place_witness(ensemble: Ensemble, box: Box, low: Cells, high: Cells) -> Floats:
    """Move each feature of the center as little as possible into its cells."""
    x = box.center.copy()
    index = ensemble.index
    is_single = ensemble.input_type == "float32"
    whole = np.zeros(x.size, dtype=bool) if ensemble.integer is None else ensemble.integer
    move(index.cuts, index.cut_start, to_keys(ensemble, x), low, high, is_single, whole, x)
    return np.clip(x, box.low, box.high)


@bare
def move(
    cuts: Any, start: Any, keys: Any, low: Any, high: Any, is_single: bool, whole: Any, x: Any
) -> None:
    """Move an input, in place, into the cells of a box."""
    for f in range(x.size):
        part = cuts[start[f] : start[f + 1]]
        x[f] = move_one(part, x[f], keys[f], low[f], high[f], is_single, whole[f])


@bare
def move_one(
    cuts: Any, x: float, key: float, low: int, high: int, is_single: bool, is_whole: bool
) -> Any:
    """Move one feature, of which these are the cuts, into some of its cells."""
    if low > 0 and key <= cuts[low - 1]:
        return above(cuts[low - 1], is_single, is_whole)
    if high < cuts.size and key > cuts[high]:
        return at_most(cuts[high], is_single, is_whole)
    return x


@bare
def above(cut: float, is_single: bool, is_whole: bool) -> Any:
    """Find the least input whose key exceeds a cut."""
    if is_whole:
        return np.floor(cut) + 1.0
    if not is_single:
        return np.nextafter(cut, np.inf)
    upper = np.nextafter(np.float32(cut), np.float32(np.inf))
    middle = 0.5 * cut + 0.5 * np.float64(upper)
    return middle if np.float32(middle) == upper else np.nextafter(middle, np.inf)


@bare
def at_most(cut: float, is_single: bool, is_whole: bool) -> Any:
    """Find the greatest input whose key does not exceed a cut."""
    if is_whole:
        return np.floor(cut)
    if not is_single:
        return cut
    upper = np.nextafter(np.float32(cut), np.float32(np.inf))
    middle = 0.5 * cut + 0.5 * np.float64(upper)
    return middle if np.float32(middle) == np.float32(cut) else np.nextafter(middle, -np.inf)
