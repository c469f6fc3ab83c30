"""The ways in which a prediction can change, as thresholds on fixed-point sums."""

from fractions import Fraction

import numpy as np

from tacit.errors import ConfigError
from tacit.verify.box import inward
from tacit.verify.kernels.presolve.workspace import UNTOLD, Cases
from tacit.verify.kernels.tables import Floats, Index, Longs, Objectives, Outputs
from tacit.verify.models.ensemble import Ensemble
from tacit.verify.models.index import to_fixed

FARTHEST = 1 << 60


def make_objectives(ensemble: Ensemble, prediction: float, rho: float | None) -> Objectives:
    """List every objective from which the prediction could be overturned.

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
    if label not in ensemble.objectives:
        make = _binary if ensemble.n_scores == 1 else _rivals
        ensemble.objectives[label] = make(ensemble, label)
    return ensemble.objectives[label]


def state_cases(
    ensemble: Ensemble, centers: Floats, rho: float | None
) -> tuple[Outputs | None, Cases, Longs]:
    """List the objectives of many boxes: one case per class, or one per box of a regression.

    Returns:
        the outputs at the centers of a regression, else None; the cases; the case of each box.
    """
    if rho is None and ensemble.task != "regress":
        if not ensemble.cases:
            every = [make_objectives(ensemble, label, None) for label in range(ensemble.n_classes)]
            ensemble.cases.append(_stack(every))
        return None, ensemble.cases[0], np.full(len(centers), UNTOLD, dtype=np.int64)
    outputs = ensemble.predict(centers)
    cases = _stack([make_objectives(ensemble, output, rho) for output in outputs])
    return outputs, cases, np.arange(len(centers))


def _stack(every: list[Objectives]) -> Cases:
    return Cases(*(np.array(column) for column in zip(*every, strict=True)))


def _binary(ensemble: Ensemble, label: int) -> Objectives:
    index = ensemble.index
    cutoff = Fraction(ensemble.cutoff) * Fraction(ensemble.divisor)
    if label == 1:
        return _pack([(0, -1, to_fixed(cutoff, index.exponent, up=True) + index.slack)], label)
    # The score must stay strictly below the cutoff.
    threshold = to_fixed(-cutoff, index.exponent, up=False) + 1 + index.slack
    return _pack([(-1, 0, threshold)], label)


def _rivals(ensemble: Ensemble, label: int) -> Objectives:
    index = ensemble.index
    guard = to_fixed(Fraction(ensemble.guard) * Fraction(ensemble.divisor), index.exponent, up=True)
    thresholds = []
    for rival in range(ensemble.n_scores):
        if rival == label:
            continue
        # With exact sums a tie goes to the lower class; otherwise a tie is near, not decided.
        strict = 1 if index.slack or rival < label else 0
        thresholds.append((label, rival, 2 * index.slack + guard + strict))
    return _pack(thresholds, label)


def _regression(ensemble: Ensemble, output: float, rho: float) -> Objectives:
    if not rho >= 0:
        raise ConfigError(f"rho must not be negative, got {rho}")
    index = ensemble.index
    low, high = inward(output, rho)
    objectives = [(0, -1, _clip(index, low, ensemble)), (-1, 0, _clip(index, -high, ensemble))]
    return _pack(objectives, 0, low, high)


def _clip(index: Index, bound: float, ensemble: Ensemble) -> int:
    if np.isinf(bound):
        return -FARTHEST
    return to_fixed(Fraction(bound) * Fraction(ensemble.divisor), index.exponent, up=True) + (
        index.slack
    )


def _pack(
    objectives: list[tuple[int, int, int]], label: int, low: float = -np.inf, high: float = np.inf
) -> Objectives:
    plus, minus, threshold = zip(*objectives, strict=True)
    whole = [max(-FARTHEST, min(FARTHEST, b)) for b in threshold]
    return Objectives(
        plus=np.array(plus, dtype=np.int64),
        minus=np.array(minus, dtype=np.int64),
        threshold=np.array(whole, dtype=np.int64),
        label=label,
        low=float(low),
        high=float(high),
    )
