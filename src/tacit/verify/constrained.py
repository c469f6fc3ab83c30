"""Exact verification under limits that no box can express.

The search answers first, for the whole box: a proof for it is a proof for any part of it, and a
counterexample that keeps the limits is one. Otherwise Z3 gets the formula with the limits added.
Where rounding stands between reals and floats, limits are widened to prove and narrowed to refute;
what is left in between is unknown.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tacit.errors import DataError
from tacit.verify.box import Box, Domain, ball, condition, to_keys
from tacit.verify.limits import Limits, are_kept, check_features
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
