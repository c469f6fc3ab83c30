"""HiGHS on the mixed-integer program of Kantchelian et al. (2016).

``highs_peer.py PROBLEM QUANTITY`` answers ``measure``. Splits are binary, leaves continuous.
Counted is the solver's own time on one thread; making the program is not.
"""

import importlib
from itertools import pairwise
from typing import Any

from _verify_problem import Answer, Leaf, Problem, each_side, process_time, serve, that_count

highspy: Any = importlib.import_module("highspy")


def solve(problem: Problem, row: int) -> Answer:
    """Decide one row."""
    trees = problem.open_leaves(row)
    return each_side(
        problem, row, lambda weight, *side: _ask(that_count(trees, weight), weight, *side)
    )


def _ask(trees: list[list[Leaf]], weight: Any, base: float, seconds: float) -> Answer:
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("time_limit", seconds)
    solver.setOptionValue("objective_target", -1e-9)
    total = _state(solver, that_count(trees, weight), weight)
    solver.addRow(-highspy.kHighsInf, -base, len(total), list(total), list(total.values()))
    for column, cost in total.items():
        solver.changeColCost(column, cost)
    solver.changeObjectiveOffset(base)
    begun = process_time()
    solver.run()
    spent = process_time() - begun
    status = highspy.HighsModelStatus
    found = {status.kInfeasible: 1, status.kOptimal: 0, status.kObjectiveTarget: 0}
    return found.get(solver.getModelStatus(), -1), spent


def _state(solver: Any, trees: list[list[Leaf]], weight: Any) -> dict[int, float]:
    """Write the program; return the weight of each leaf's column."""
    literals = _splits(solver, trees)
    total: dict[int, float] = {}
    for leaves in trees:
        columns = []
        below: dict[tuple[int, float], list[int]] = {}
        above: dict[tuple[int, float], list[int]] = {}
        for leaf in leaves:
            solver.addVar(0.0, 1.0)
            column = solver.getNumCol() - 1
            columns.append(column)
            total[column] = float(weight[leaf.node])
            for f, (low, high) in leaf.ranges.items():
                if (f, high) in literals:
                    below.setdefault((f, high), []).append(column)
                if (f, low) in literals:
                    above.setdefault((f, low), []).append(column)
        solver.addRow(1.0, 1.0, len(columns), columns, [1.0] * len(columns))
        for key, those in below.items():
            _add(solver, 0.0, [*those, literals[key]], [*[1.0] * len(those), -1.0])
        for key, those in above.items():
            _add(solver, 1.0, [*those, literals[key]], [1.0] * (len(those) + 1))
    return total


def _add(solver: Any, most: float, columns: list[int], weights: list[float]) -> None:
    solver.addRow(-highspy.kHighsInf, most, len(columns), columns, weights)


def _splits(solver: Any, trees: list[list[Leaf]]) -> dict[tuple[int, float], int]:
    """Make one binary "x_f < split" for each split that separates leaves, in order."""
    places: dict[int, set[float]] = {}
    for leaf in (leaf for leaves in trees for leaf in leaves):
        for f, ends in leaf.ranges.items():
            places.setdefault(f, set()).update(end for end in ends if abs(end) < float("inf"))
    literals = {}
    for f, cuts in places.items():
        for cut in sorted(cuts):
            solver.addVar(0.0, 1.0)
            literals[f, cut] = solver.getNumCol() - 1
            solver.changeColIntegrality(literals[f, cut], highspy.HighsVarType.kInteger)
        for lower, upper in pairwise(sorted(cuts)):
            _add(solver, 0.0, [literals[f, lower], literals[f, upper]], [1.0, -1.0])
    return literals


if __name__ == "__main__":
    serve("highs", solve)
