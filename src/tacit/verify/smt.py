"""A second opinion: the question as a formula of linear arithmetic, answered by Z3.

Slower than the search by orders of magnitude and independent of it: features are real variables,
each tree is one variable that equals one of its leaf values, the sum is exact. The barrier allows
for the library's rounding, and a model that Z3 finds is replayed, so an answer is never wrong.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError
from tacit.verify.box import Domain, Floats, ball, to_keys
from tacit.verify.kernels.search.problem import Sides
from tacit.verify.models.ensemble import Ensemble
from tacit.verify.objectives import make_sides
from tacit.verify.robustness import ANYWHERE, Budget, Certificate, Counterexample, Unknown, Verdict

try:
    import z3
except ModuleNotFoundError:
    z3 = None

MOST_REPLAYS = 100
"""How many points within rounding of a tie are tried before the answer is unknown."""


def verify_smt(
    ensemble: Ensemble,
    x: npt.ArrayLike,
    eps: npt.ArrayLike,
    *,
    rho: float | None = None,
    domain: Domain = ANYWHERE,
    budget: Budget | None = None,
) -> Verdict:
    """Answer the question of `verify` with Z3; the budget's seconds apply to each side."""
    if z3 is None:
        raise ConfigError("verify_smt needs Z3; install it with: pip install 'tacit-ml[verify]'")
    box = ball(ensemble, x, eps, domain)
    prediction = ensemble.predict(box.center[None])[0]
    about = (box, float(prediction), rho, 0)
    sides = make_sides(ensemble, prediction, rho)
    seconds = (budget or Budget()).seconds
    reason = ""
    for side in range(sides.plus.size):
        solver = z3.SolverFor("QF_LRA")
        if seconds is not None:
            solver.set("timeout", int(1000 * seconds))
        inputs = _state(solver, ensemble, (to_keys(ensemble, box.low), to_keys(ensemble, box.high)))
        state_side(solver, ensemble, inputs, sides, side)
        found, why = _hunt(solver, ensemble, inputs, sides, box.center)
        if found is not None:
            x_found = np.clip(found, box.low, box.high)
            return Counterexample(*about, x_found, float(ensemble.predict(x_found[None])[0]))
        reason = reason or why
    return Unknown(*about, reason) if reason else Certificate(*about)


def _hunt(
    solver: Any, ensemble: Ensemble, inputs: Any, sides: Sides, center: Floats
) -> tuple[Floats | None, str]:
    """Look for a model that replays; rule out those that only come close."""
    for _ in range(MOST_REPLAYS):
        answer = solver.check()
        if answer == z3.unsat:
            return None, ""
        if answer != z3.sat:
            return None, "the budget ran out"
        point = _read(solver.model(), ensemble, inputs, center)
        changed = ensemble.predict(point[None])[0]
        if ensemble.task == "regress":
            has_changed = not sides.low <= float(changed) <= sides.high
        else:
            has_changed = int(changed) != sides.label
        if has_changed:
            return point, ""
        solver.add(z3.Not(z3.And([*same_cell(ensemble, inputs, point)])))
    return None, "too many points lie within rounding of a tie"


def _state(solver: Any, ensemble: Ensemble, ends: tuple[Floats, Floats]) -> dict[int, Any]:
    """Declare the features that the trees ask for, within the box."""
    inputs = {}
    for f in np.unique(ensemble.feature[ensemble.feature >= 0]).tolist():
        inputs[f] = z3.Real(f"x{f}")
        solver.add(inputs[f] >= number(ends[0][f]), inputs[f] <= number(ends[1][f]))
    return inputs


def state_side(
    solver: Any, ensemble: Ensemble, inputs: dict[int, Any], sides: Sides, side: int
) -> None:
    """Say that the side's sum, in units, falls below its barrier."""
    plus, minus = int(sides.plus[side]), int(sides.minus[side])
    index = ensemble.index
    weight = sum(sign * row for sign, row in _columns(index.trees.units, plus, minus))
    base = sum(sign * row for sign, row in _columns(index.base_units[None], plus, minus))
    terms = []
    for tree, root in enumerate(ensemble.roots):
        out = z3.Real(f"t{tree}")
        for leaf, path in _paths(ensemble, int(root)):
            conditions = [
                inputs[f] <= number(t) if is_left else inputs[f] > number(t)
                for f, t, is_left in path
            ]
            solver.add(z3.Implies(z3.And(conditions), out == int(weight[leaf])))
        terms.append(out)
    solver.add(z3.Sum(terms) + int(base[0]) < int(sides.barrier[side]))


def _columns(table: npt.NDArray[Any], plus: int, minus: int) -> Iterator[tuple[int, Any]]:
    if plus >= 0:
        yield 1, table[:, plus]
    if minus >= 0:
        yield -1, table[:, minus]


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


def _read(model: Any, ensemble: Ensemble, inputs: dict[int, Any], center: Floats) -> Floats:
    """Turn Z3's rational point into one of floats in the same cells."""
    index = ensemble.index
    point = center.copy()
    for f, variable in inputs.items():
        value = model.eval(variable, model_completion=True)
        exact = Fraction(value.numerator_as_long(), value.denominator_as_long())
        cuts = index.cuts[index.cut_start[f] : index.cut_start[f + 1]]
        cell = sum(fraction(cut) < exact for cut in cuts)
        # The upper end of a cell is a key; in the last cell the variable's own bounds are keys.
        point[f] = cuts[cell] if cell < cuts.size else np.inf
    return point


def same_cell(ensemble: Ensemble, inputs: dict[int, Any], point: Floats) -> Iterator[Any]:
    """Say that the features are in the cells of a point of keys."""
    index = ensemble.index
    for f, variable in inputs.items():
        cuts = index.cuts[index.cut_start[f] : index.cut_start[f + 1]]
        cell = int(np.searchsorted(cuts, point[f]))
        if cell < cuts.size:
            yield variable <= number(cuts[cell])
        if cell > 0:
            yield variable > number(cuts[cell - 1])


def fraction(value: float) -> Fraction:
    """Write a float as an exact fraction."""
    # An infinite threshold lies beyond every finite input.
    return (
        Fraction(float(value)) if np.isfinite(value) else int(np.sign(value)) * Fraction(1 << 1100)
    )


def number(value: float | Fraction) -> Any:
    """Write a number for Z3, exactly."""
    exact = value if isinstance(value, Fraction) else fraction(value)
    return z3.Q(exact.numerator, exact.denominator)
