"""The ways in which a prediction can change, as barriers on sums of units."""

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError
from tacit.verify.box import inward
from tacit.verify.kernels.layout.index import Index, to_units
from tacit.verify.kernels.presolve.batch import UNTOLD, Cases
from tacit.verify.kernels.search.problem import Sides
from tacit.verify.models.ensemble import Ensemble

FARTHEST = 1 << 60


def make_sides(ensemble: Ensemble, prediction: Any, rho: float | None) -> Sides:
    """List every side from which the prediction could be overturned.

    Args:
        ensemble: the model.
        prediction: the class index, or the output, at the center.
        rho: how far the output of a regression may move.
    """
    if (rho is not None) != (ensemble.task == "regress"):
        raise ConfigError(
            "rho, how far the output may move, belongs to a regression and to nothing else; "
            f"this is a model to {ensemble.task} and rho is {rho}"
        )
    if rho is not None:
        return _regression(ensemble, float(prediction), rho)
    label = int(prediction)
    if label not in ensemble.sides:
        make = _binary if ensemble.n_scores == 1 else _rivals
        ensemble.sides[label] = make(ensemble, label)
    found: Sides = ensemble.sides[label]
    return found


def state_cases(
    ensemble: Ensemble, centers: Any, rho: float | None
) -> tuple[Any, Cases, npt.NDArray[np.int64]]:
    """List the sides of many boxes: one case per class, or one per box of a regression.

    Returns:
        the outputs at the centers of a regression, else None; the cases; the case of each box.
    """
    if rho is None and ensemble.task != "regress":
        if UNTOLD not in ensemble.sides:
            every = [make_sides(ensemble, label, None) for label in range(ensemble.n_classes)]
            ensemble.sides[UNTOLD] = _stack(every)
        return None, ensemble.sides[UNTOLD], np.full(len(centers), UNTOLD, dtype=np.int64)
    outputs = ensemble.predict(centers)
    cases = _stack([make_sides(ensemble, output, rho) for output in outputs])
    return outputs, cases, np.arange(len(centers))


def _stack(every: list[Sides]) -> Cases:
    return Cases(*(np.array(column) for column in zip(*every, strict=True)))


def _binary(ensemble: Ensemble, label: int) -> Sides:
    index = ensemble.index
    cutoff = Fraction(ensemble.cutoff) * Fraction(ensemble.divisor)
    if label == 1:
        return _pack([(0, -1, to_units(cutoff, index.exponent, up=True) + index.slack)], label)
    # The score must stay strictly below the cutoff.
    barrier = to_units(-cutoff, index.exponent, up=False) + 1 + index.slack
    return _pack([(-1, 0, barrier)], label)


def _rivals(ensemble: Ensemble, label: int) -> Sides:
    index = ensemble.index
    guard = to_units(Fraction(ensemble.guard) * Fraction(ensemble.divisor), index.exponent, up=True)
    barriers = []
    for rival in range(ensemble.n_scores):
        if rival == label:
            continue
        # With exact sums a tie goes to the lower class; otherwise a tie is near, not decided.
        strict = 1 if index.slack or rival < label else 0
        barriers.append((label, rival, 2 * index.slack + guard + strict))
    return _pack(barriers, label)


def _regression(ensemble: Ensemble, output: float, rho: float) -> Sides:
    if not rho >= 0:
        raise ConfigError(f"rho must not be negative, got {rho}")
    index = ensemble.index
    low, high = inward(output, rho)
    sides = [(0, -1, _clip(index, low, ensemble)), (-1, 0, _clip(index, -high, ensemble))]
    return _pack(sides, 0, low, high)


def _clip(index: Index, bound: float, ensemble: Ensemble) -> int:
    if np.isinf(bound):
        return -FARTHEST
    return to_units(Fraction(bound) * Fraction(ensemble.divisor), index.exponent, up=True) + (
        index.slack
    )


def _pack(
    sides: list[tuple[int, int, int]], label: int, low: float = -np.inf, high: float = np.inf
) -> Sides:
    plus, minus, barrier = zip(*sides, strict=True)
    whole = [max(-FARTHEST, min(FARTHEST, b)) for b in barrier]
    return Sides(
        np.array(plus, dtype=np.int64),
        np.array(minus, dtype=np.int64),
        np.array(whole, dtype=np.int64),
        label,
        float(low),
        float(high),
    )
