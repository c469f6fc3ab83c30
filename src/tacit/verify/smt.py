"""A second opinion: the question as a formula of linear arithmetic, answered by Z3.

Slower than the search by orders of magnitude and independent of it: features are real variables,
each tree is one variable that equals one of its leaf values, the sum is exact. The threshold allows
for the library's rounding, and a point that Z3 finds is replayed, so an answer is never wrong.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError
from tacit.verify.box import Box, Domain, ball, condition, to_keys
from tacit.verify.kernels.layout.rounding import above
from tacit.verify.kernels.tables import Floats, Longs, Objectives
from tacit.verify.models.ensemble import Ensemble
from tacit.verify.objectives import make_objectives
from tacit.verify.verdict import ANYWHERE, Budget, Counterexample, Robust, Unknown, Verdict

try:
    import z3
except ModuleNotFoundError:
    z3 = None

MOST_REPLAYS = 100
"""How many points within rounding of a tie are tried before the answer is unknown."""


Term = Any
"""A number or a condition of Z3, which has no types of its own."""
Solver = Any
"""A solver of Z3."""


def verify_smt(
    ensemble: Ensemble,
    x: npt.ArrayLike,
    eps: npt.ArrayLike,
    *,
    rho: float | None = None,
    domain: Domain = ANYWHERE,
    budget: Budget | None = None,
) -> Verdict:
    """Answer the question of `verify` with Z3; the budget's seconds apply to each objective."""
    check_z3("verify_smt needs")
    box = ball(ensemble, x, eps, domain)
    ensemble = condition(ensemble, box)
    prediction = ensemble.predict(box.center[None])[0]
    about = (box, float(prediction), rho, 0)
    objectives = make_objectives(ensemble, prediction, rho)
    reason = ""
    for k in range(objectives.plus.size):
        solver = z3.SolverFor("QF_LRA") if ensemble.integer is None else z3.Solver()
        formula = Formula(ensemble, box, budget or Budget(), solver)
        formula.add_objective(objectives, k)
        found, why = formula.hunt(objectives, lambda point: True)
        if found is not None:
            return Counterexample(*about, found, float(ensemble.predict(found[None])[0]))
        reason = reason or why
    return Unknown(*about, reason) if reason else Robust(*about)


def check_z3(who: str) -> None:
    """Refuse to go on without Z3."""
    if z3 is None:
        raise ConfigError(f"{who} Z3; install it with: pip install 'tacit-ml[verify]'")


class Formula:
    """The box, stated to Z3 about the keys to which the library rounds.

    Args:
        ensemble: the model.
        box: the inputs that are asked about.
        budget: its seconds are the time-out of one answer.
        solver: of Z3, with nothing stated yet.
        others: features that are stated though no tree asks for them.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        box: Box,
        budget: Budget,
        solver: Solver,
        others: frozenset[int] = frozenset(),
    ) -> None:
        self.ensemble, self.box = ensemble, box
        self.ends = to_keys(ensemble, box.low), to_keys(ensemble, box.high)
        self.solver = solver
        if budget.seconds is not None:
            self.solver.set("timeout", int(1000 * budget.seconds))
        used = set(np.unique(ensemble.feature[ensemble.feature >= 0]).tolist())
        self.inputs = {f: self._declare(f) for f in sorted(used | others)}

    def _declare(self, f: int) -> Term:
        whole = self.ensemble.integer is not None and self.ensemble.integer[f]
        variable: Term = z3.ToReal(z3.Int(f"x{f}")) if whole else z3.Real(f"x{f}")
        low, high = (number(end[f]) for end in self.ends)
        self.solver.add(variable >= low, variable <= high)
        return variable

    def add_objective(self, objectives: Objectives, k: int) -> None:
        """Say that the sum of an objective, in fixed point, falls below its threshold."""
        plus, minus = int(objectives.plus[k]), int(objectives.minus[k])
        index = self.ensemble.index
        weight = _weigh(index.trees.fixed, plus, minus)
        terms = []
        for tree, root in enumerate(self.ensemble.roots):
            out = z3.Real(f"t{tree}")
            for leaf, path in _paths(self.ensemble, int(root)):
                conditions = [
                    self.inputs[f] <= number(t) if is_left else self.inputs[f] > number(t)
                    for f, t, is_left in path
                ]
                self.solver.add(z3.Implies(z3.And(conditions), out == int(weight[leaf])))
            terms.append(out)
        base = int(_weigh(index.base_fixed[None], plus, minus)[0])
        self.solver.add(z3.Sum(terms) + base < int(objectives.threshold[k]))

    def hunt(
        self, objectives: Objectives, is_allowed: Callable[[Floats], bool]
    ) -> tuple[Floats | None, str]:
        """Look for a point that replays and is allowed; leave out the intervals of others.

        Returns:
            the point, if there is one; else why the answer is not known, or nothing.
        """
        doubt = ""
        for _ in range(MOST_REPLAYS):
            answer = self.solver.check()
            if answer == z3.unsat:
                return None, doubt
            if answer != z3.sat:
                return None, "the budget ran out"
            point = self._read()
            if self._refutes(point, objectives):
                if is_allowed(point):
                    return point, ""
                doubt = "a point that changes the answer lies within rounding of the limits"
            self._leave_out(point)
        return None, "too many points lie within rounding of a tie"

    def _read(self) -> Floats:
        """Turn Z3's point into floats in the same intervals; what need not move stays."""
        model, index = self.solver.model(), self.ensemble.index
        point, keys = self.box.center.copy(), to_keys(self.ensemble, self.box.center)
        is_single = self.ensemble.input_type == "float32"
        for f, variable in self.inputs.items():
            value = model.eval(variable, model_completion=True)
            exact = Fraction(value.numerator_as_long(), value.denominator_as_long())
            if exact == Fraction(float(keys[f])):
                continue
            cuts = index.cuts[index.cut_start[f] : index.cut_start[f + 1]]
            interval = sum(fraction(cut) < exact for cut in cuts)
            point[f] = float(exact)
            # Rounded to the key below, it would fall into the interval before.
            if interval > 0 and to_keys(self.ensemble, point[f : f + 1])[0] <= cuts[interval - 1]:
                point[f] = above(cuts[interval - 1], is_single, False)
        return np.clip(point, self.box.low, self.box.high)

    def _refutes(self, point: Floats, objectives: Objectives) -> bool:
        """Say whether a point changes the prediction in the library's arithmetic."""
        changed = self.ensemble.predict(point[None])[0]
        if self.ensemble.task == "regress":
            return not objectives.low <= float(changed) <= objectives.high
        return bool(int(changed) != objectives.label)

    def _leave_out(self, point: Floats) -> None:
        """Rule out the intervals of a point."""
        index, keys, inside = self.ensemble.index, to_keys(self.ensemble, point), list[Term]()
        for f, variable in self.inputs.items():
            cuts = index.cuts[index.cut_start[f] : index.cut_start[f + 1]]
            interval = int(np.searchsorted(cuts, keys[f]))
            if interval < cuts.size:
                inside.append(variable <= number(cuts[interval]))
            if interval > 0:
                inside.append(variable > number(cuts[interval - 1]))
        self.solver.add(z3.Not(z3.And(inside)) if inside else z3.BoolVal(False))


def fraction(value: float) -> Fraction:
    """Write a float as an exact fraction."""
    # An infinite threshold lies beyond every finite input.
    return (
        Fraction(float(value)) if np.isfinite(value) else int(np.sign(value)) * Fraction(1 << 1100)
    )


def number(value: float | Fraction) -> Term:
    """Write a number for Z3, exactly."""
    exact = value if isinstance(value, Fraction) else fraction(value)
    term: Term = z3.Q(exact.numerator, exact.denominator)
    return term


def _weigh(table: Longs, plus: int, minus: int) -> Longs:
    total = np.zeros(len(table), np.int64)
    if plus >= 0:
        total += table[:, plus]
    if minus >= 0:
        total -= table[:, minus]
    return total


def _paths(
    ensemble: Ensemble, root: int
) -> Iterator[tuple[int, tuple[tuple[int, float, bool], ...]]]:
    walk: list[tuple[int, tuple[tuple[int, float, bool], ...]]] = [(root, ())]
    while walk:
        node, path = walk.pop()
        if ensemble.feature[node] < 0:
            yield node, path
            continue
        f, t = int(ensemble.feature[node]), float(ensemble.threshold[node])
        walk.append((int(ensemble.left[node]), (*path, (f, t, True))))
        walk.append((int(ensemble.right[node]), (*path, (f, t, False))))
