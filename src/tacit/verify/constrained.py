"""Exact verification under limits that no box can express: relations, and other distances.

What an adversary may do is said about real inputs and checked in exact arithmetic. The search
answers first, for the whole box: a proof for it is a proof for any part of it, and a counterexample
that keeps the limits is one. Otherwise Z3 gets the formula with the limits added. Where rounding
stands between reals and floats, limits are widened to prove and narrowed to refute; what is left in
between is unknown.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError, DataError
from tacit.verify.box import Box, Domain, ball, condition, to_keys
from tacit.verify.kernels.tables import Floats
from tacit.verify.models.ensemble import Ensemble
from tacit.verify.objectives import make_objectives
from tacit.verify.robustness import verify_box
from tacit.verify.smt import Formula, Term, check_z3, number
from tacit.verify.verdict import ANYWHERE, Budget, Counterexample, Robust, Unknown, Verdict

try:
    import z3
except ModuleNotFoundError:
    z3 = None

NARROW, WIDE = -4, 1
"""Limits are moved by so many roundings: inwards to refute, outwards to prove."""


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


def verify_within(
    ensemble: Ensemble,
    x: npt.ArrayLike,
    eps: npt.ArrayLike,
    limits: Limits,
    *,
    rho: float | None = None,
    domain: Domain = ANYWHERE,
    budget: Budget | None = None,
) -> Verdict:
    """Decide whether some x' of the box that keeps the limits changes the prediction at x.

    Args:
        ensemble: the model; features made whole by `with_integers` stay whole.
        x: one input, finite, that keeps the limits itself.
        eps: one radius, one per feature, or two rows (how far down, how far up). May be infinite.
        limits: relations between features, and distances in L1 and L0.
        rho: for a regression, how far the output may move.
        domain: the values that features can take at all.
        budget: for the search, and in seconds again for each formula.
    """
    check_features(limits, ensemble.n_features)
    box = _inside(ball(ensemble, x, eps, domain), limits)
    missing = sorted(f for f in limits.features if np.isnan(box.center[f]))
    if missing:
        raise DataError(f"limits relate the features {missing}, which are missing in the input")
    if not are_kept(limits, box.center, box.center):
        raise DataError("the input itself breaks the limits; only inputs that keep them are known")
    first = verify_box(ensemble, box, rho=rho, budget=budget)
    if isinstance(first, Robust):
        return first
    if isinstance(first, Counterexample) and are_kept(limits, box.center, first.x):
        return first
    check_z3("limits need")
    return _ask_z3(ensemble, box, limits, first, budget or Budget())


def _inside(box: Box, limits: Limits) -> Box:
    """Narrow the box to what the distance in L1 leaves of it."""
    if limits.l1 is None:
        return box
    # Rounded outwards: the box is only a frame, the distance itself is checked.
    low = np.nextafter(box.center - limits.l1, -np.inf)
    high = np.nextafter(box.center + limits.l1, np.inf)
    return Box(box.center, np.maximum(box.low, low), np.minimum(box.high, high))


def _ask_z3(
    ensemble: Ensemble, box: Box, limits: Limits, first: Verdict, budget: Budget
) -> Verdict:
    about = (box, first.prediction, first.rho, first.nodes)
    ensemble = condition(ensemble, box)
    objectives = make_objectives(ensemble, ensemble.predict(box.center[None])[0], first.rho)
    doubt = ""
    for k in range(objectives.plus.size):
        for sign in (NARROW, WIDE):
            formula = Formula(ensemble, box, budget, z3.Solver(), limits.features)
            formula.solver.add(
                *_relations(formula, limits, sign), *_distances(formula, limits, sign)
            )
            formula.add_objective(objectives, k)
            found, why = formula.hunt(objectives, lambda x: are_kept(limits, box.center, x))
            if found is not None:
                changed = float(ensemble.predict(found[None])[0])
                return Counterexample(*about, found, changed)
        doubt = doubt or why  # that of the widened limits
    return Unknown(*about, doubt) if doubt else Robust(*about)


def _relations(formula: Formula, limits: Limits, sign: int) -> Iterator[Term]:
    x, drift = formula.inputs, _rounding(formula)
    for i, j in limits.order:
        yield x[i] <= x[j]  # rounding keeps order
    for group in limits.one_hot:
        for f in group:
            yield z3.Or(x[f] == 0, x[f] == 1)
        yield z3.Sum([x[f] for f in group]) == 1
    for total in limits.sums:
        terms = z3.Sum([number(w) * x[f] for f, w in total.weights.items()])
        slack = sum((abs(Fraction(w)) * drift[f] for f, w in total.weights.items()), Fraction(0))
        if np.isfinite(total.low):
            yield terms >= number(Fraction(total.low) - sign * slack)
        if np.isfinite(total.high):
            yield terms <= number(Fraction(total.high) + sign * slack)


def _distances(formula: Formula, limits: Limits, sign: int) -> Iterator[Term]:
    center, drift = formula.box.center, _rounding(formula)
    keys = to_keys(formula.ensemble, center)
    if limits.l0 is not None:
        moved = [variable != number(keys[f]) for f, variable in formula.inputs.items()]
        yield z3.AtMost(*moved, limits.l0) if moved else z3.BoolVal(True)
    if limits.l1 is not None:
        moves = [z3.Real(f"d{f}") for f in formula.inputs]
        for move, (f, variable) in zip(moves, formula.inputs.items(), strict=True):
            start = number(center[f])
            yield z3.And(move >= variable - start, move >= start - variable)
        slack = sum((drift[f] for f in formula.inputs), Fraction(0))
        yield z3.Sum(moves) <= number(max(Fraction(limits.l1) + sign * slack, Fraction(0)))


def _rounding(formula: Formula) -> dict[int, Fraction]:
    """Bound, per feature, how far an input lies from its key and a float from Z3's number."""
    ensemble, ends = formula.ensemble, formula.ends
    whole = ensemble.integer
    largest = np.maximum(np.abs(ends[0]), np.abs(ends[1]))
    digits, least = (24, 149) if ensemble.input_type == "float32" else (53, 1074)
    return {
        f: Fraction(0)
        if whole is not None and whole[f]
        else Fraction(float(size)) / 2**digits + Fraction(1, 2**least)
        for f, size in enumerate(largest)
        if not np.isnan(size)
    }
