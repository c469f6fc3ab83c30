"""CP-SAT of OR-tools: ``cpsat_peer.py PROBLEM QUANTITY`` answers ``measure``.

One literal per split inside the box, ordered along each feature; one literal per reachable leaf,
exactly one per tree. Counted is processor time of the solver, one worker; making the model is not.
"""

import importlib
from itertools import pairwise
from typing import Any

from _verify_problem import Answer, Leaf, Problem, each_side, process_time, serve, that_count

cp_model: Any = importlib.import_module("ortools.sat.python.cp_model")
SCALE = 1 << 30
"""Leaf values become whole numbers of this part."""


def solve(problem: Problem, row: int) -> Answer:
    """Decide one row."""
    trees = problem.open_leaves(row)
    return each_side(
        problem, row, lambda weight, *side: _ask(that_count(trees, weight), weight, *side)
    )


def _ask(trees: list[list[Leaf]], weight: Any, base: float, seconds: float) -> Answer:
    model, trees = cp_model.CpModel(), that_count(trees, weight)
    literals = _splits(model, trees)
    total = [round(base * SCALE)]
    for leaves in trees:
        chosen = [model.new_bool_var("") for _ in leaves]
        model.add_exactly_one(chosen)
        for leaf, literal in zip(leaves, chosen, strict=True):
            for f, (low, high) in leaf.ranges.items():
                if (f, high) in literals:
                    model.add_implication(literal, literals[f, high])
                if (f, low) in literals:
                    model.add_implication(literal, ~literals[f, low])
            total.append(round(float(weight[leaf.node]) * SCALE) * literal)
    model.add(sum(total) < 0)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = seconds
    begun = process_time()
    status = solver.solve(model)
    spent = process_time() - begun
    found = {cp_model.INFEASIBLE: 1, cp_model.OPTIMAL: 0, cp_model.FEASIBLE: 0}
    return found.get(status, -1), spent


def _splits(model: Any, trees: list[list[Leaf]]) -> dict[tuple[int, float], Any]:
    """Make one literal "x_f < split" for each split that separates leaves, in order."""
    places: dict[int, set[float]] = {}
    for leaf in (leaf for leaves in trees for leaf in leaves):
        for f, ends in leaf.ranges.items():
            places.setdefault(f, set()).update(end for end in ends if abs(end) < float("inf"))
    literals = {}
    for f, cuts in places.items():
        for cut in sorted(cuts):
            literals[f, cut] = model.new_bool_var("")
        for lower, upper in pairwise(sorted(cuts)):
            model.add_implication(literals[f, lower], literals[f, upper])
    return literals


if __name__ == "__main__":
    serve("cpsat", solve)
