"""Exact verification under limits that no box can express.

The search answers first, for the whole box: a proof for it is a proof for any part of it, and a
counterexample that keeps the limits is one. Otherwise Z3 gets the formula with the limits added.
Where rounding stands between reals and floats, limits are widened to prove and narrowed to refute;
what is left in between is unknown.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError, DataError
from tacit.verify.box import Box, Domain, Floats, ball, to_keys
from tacit.verify.kernels.layout.rounding import above
from tacit.verify.kernels.search.problem import Sides
from tacit.verify.limits import Limits, are_kept, check_features
from tacit.verify.models.ensemble import Ensemble
from tacit.verify.objectives import make_sides
from tacit.verify.robustness import (
    ANYWHERE,
    Budget,
    Certificate,
    Counterexample,
    Unknown,
    Verdict,
    verify_box,
)
from tacit.verify.smt import MOST_REPLAYS, number, same_cell, state_side

try:
    import z3
except ModuleNotFoundError:
    z3 = None


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
    if not are_kept(limits, box.center, box.center):
        raise DataError("the input itself breaks the limits; only inputs that keep them are known")
    first = verify_box(ensemble, box, rho=rho, budget=budget)
    if isinstance(first, Certificate):
        return first
    if isinstance(first, Counterexample) and are_kept(limits, box.center, first.x):
        return first
    if z3 is None:
        raise ConfigError("limits need Z3; install it with: pip install 'tacit-ml[verify]'")
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
    prediction = ensemble.predict(box.center[None])[0]
    sides = make_sides(ensemble, prediction, first.rho)
    doubt = ""
    for side in range(sides.plus.size):
        for is_narrow in (True, False):
            formula = _Formula(ensemble, box, limits, budget, is_narrow=is_narrow)
            state_side(formula.solver, ensemble, formula.inputs, sides, side)
            found, why = _hunt(formula, sides)
            if found is not None:
                changed = float(ensemble.predict(found[None])[0])
                return Counterexample(*about, found, changed)
        doubt = doubt or why  # that of the widened limits
    return Unknown(*about, doubt) if doubt else Certificate(*about)


def _hunt(formula: "_Formula", sides: Sides) -> tuple[Floats | None, str]:
    """Look for a point that replays and keeps the limits; leave out the cells of others."""
    doubt = ""
    for _ in range(MOST_REPLAYS):
        answer = formula.solver.check()
        if answer == z3.unsat:
            return None, doubt
        if answer != z3.sat:
            return None, "the budget ran out"
        point = formula.read()
        if formula.refutes(point, sides):
            if are_kept(formula.limits, formula.box.center, point):
                return point, ""
            doubt = "a point that changes the answer lies within rounding of the limits"
        formula.leave_out(point)
    return None, "too many points lie within rounding of a tie"


class _Formula:
    """The box and the limits, stated to Z3 about the keys to which the library rounds."""

    def __init__(
        self, ensemble: Ensemble, box: Box, limits: Limits, budget: Budget, *, is_narrow: bool
    ) -> None:
        self.ensemble, self.box, self.limits = ensemble, box, limits
        self.solver = z3.Solver()
        if budget.seconds is not None:
            self.solver.set("timeout", int(1000 * budget.seconds))
        ends = to_keys(ensemble, box.low), to_keys(ensemble, box.high)
        used = set(np.unique(ensemble.feature[ensemble.feature >= 0]).tolist())
        self.inputs = {f: self._declare(f, *ends) for f in sorted(used | limits.features)}
        self._drift = _rounding(ensemble, ends)
        sign = -4 if is_narrow else 1
        self.solver.add(*self._relations(sign), *self._distances(sign))

    def _declare(self, f: int, low: Floats, high: Floats) -> Any:
        whole = self.ensemble.integer is not None and self.ensemble.integer[f]
        variable = z3.ToReal(z3.Int(f"x{f}")) if whole else z3.Real(f"x{f}")
        self.solver.add(variable >= number(low[f]), variable <= number(high[f]))
        return variable

    def _relations(self, sign: int) -> Iterator[Any]:
        x = self.inputs
        for i, j in self.limits.order:
            yield x[i] <= x[j]  # rounding keeps order
        for group in self.limits.one_hot:
            for f in group:
                yield z3.Or(x[f] == 0, x[f] == 1)
            yield z3.Sum([x[f] for f in group]) == 1
        for total in self.limits.sums:
            terms = z3.Sum([number(w) * x[f] for f, w in total.weights.items()])
            slack = sum(
                (abs(Fraction(w)) * self._drift[f] for f, w in total.weights.items()), Fraction(0)
            )
            if np.isfinite(total.low):
                yield terms >= number(Fraction(total.low) - sign * slack)
            if np.isfinite(total.high):
                yield terms <= number(Fraction(total.high) + sign * slack)

    def _distances(self, sign: int) -> Iterator[Any]:
        keys = to_keys(self.ensemble, self.box.center)
        if self.limits.l0 is not None:
            moved = [variable != number(keys[f]) for f, variable in self.inputs.items()]
            yield z3.AtMost(*moved, self.limits.l0) if moved else z3.BoolVal(True)
        if self.limits.l1 is not None:
            moves = [z3.Real(f"d{f}") for f in self.inputs]
            for move, (f, variable) in zip(moves, self.inputs.items(), strict=True):
                center = number(self.box.center[f])
                yield z3.And(move >= variable - center, move >= center - variable)
            slack = sum((self._drift[f] for f in self.inputs), Fraction(0))
            yield z3.Sum(moves) <= number(max(Fraction(self.limits.l1) + sign * slack, Fraction(0)))

    def read(self) -> Floats:
        """Turn Z3's rational point into floats in the same cells; what need not move does not."""
        model, index = self.solver.model(), self.ensemble.index
        point, keys = self.box.center.copy(), to_keys(self.ensemble, self.box.center)
        is_single = self.ensemble.input_type == "float32"
        for f, variable in self.inputs.items():
            value = model.eval(variable, model_completion=True)
            exact = Fraction(value.numerator_as_long(), value.denominator_as_long())
            if exact == Fraction(float(keys[f])):
                continue
            cuts = index.cuts[index.cut_start[f] : index.cut_start[f + 1]]
            cell = int(np.searchsorted(cuts, float(exact)))
            while cell > 0 and Fraction(float(cuts[cell - 1])) >= exact:
                cell -= 1
            while cell < cuts.size and Fraction(float(cuts[cell])) < exact:
                cell += 1
            point[f] = float(exact)
            # Rounded to the key below, it would fall into the cell before.
            if cell > 0 and to_keys(self.ensemble, point[f : f + 1])[0] <= cuts[cell - 1]:
                point[f] = above(cuts[cell - 1], is_single, False)
        return np.clip(point, self.box.low, self.box.high)

    def refutes(self, point: Floats, sides: Sides) -> bool:
        """Say whether a point changes the prediction in the library's arithmetic."""
        changed = self.ensemble.predict(point[None])[0]
        if self.ensemble.task == "regress":
            return not sides.low <= float(changed) <= sides.high
        return bool(int(changed) != sides.label)

    def leave_out(self, point: Floats) -> None:
        """Rule out the cells of a point."""
        cells = [*same_cell(self.ensemble, self.inputs, to_keys(self.ensemble, point))]
        self.solver.add(z3.Not(z3.And(cells)) if cells else z3.BoolVal(False))


def _rounding(ensemble: Ensemble, ends: tuple[Floats, Floats]) -> dict[int, Fraction]:
    """Bound, per feature, how far an input lies from its key and a float from Z3's number."""
    whole = ensemble.integer
    largest = np.maximum(np.abs(ends[0]), np.abs(ends[1]))
    digits, least = (24, 149) if ensemble.input_type == "float32" else (53, 1074)
    return {
        f: Fraction(0)
        if whole is not None and whole[f]
        else Fraction(float(size)) / 2**digits + Fraction(1, 2**least)
        for f, size in enumerate(largest)
    }
