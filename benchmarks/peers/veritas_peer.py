"""Veritas: ``veritas_peer.py PROBLEM QUANTITY`` answers ``measure``.

The search is set up as its own robustness search does. Counted is processor time of pruning and
search; making the ensemble and the list of intervals is not counted.
"""

import importlib
from typing import Any

import numpy as np
from _verify_problem import Answer, Problem, each_side, process_time, serve

veritas: Any = importlib.import_module("veritas")
MEMORY = 4 << 30


class Ensembles:
    """The ensemble of each side, made once."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}

    def get(self, problem: Problem, weight: Any, base: float) -> Any:
        """Return the ensemble whose largest output says whether a side falls."""
        if not self._made:  # all at once: making them is not what a row costs
            sides = [side for row in range(len(problem.label)) for side in problem.sides(row)]
            self._made = {id(one[0]): one for one in sides}
            for key, side in self._made.items():
                self._made[key] = _build(problem, *side)
        return self._made[id(weight)]  # the problem keeps its weights


def _build(problem: Problem, weight: Any, base: float) -> Any:
    trees = veritas.AddTree(1, veritas.AddTreeType.REGR)
    trees.set_base_score(0, -base)
    for root in problem.roots:
        if not weight[_nodes(problem, int(root))].any():
            continue  # boosting: a tree of a class that this side does not ask about
        tree = trees.add_tree()
        todo = [(tree.root(), int(root))]
        while todo:
            at, node = todo.pop()
            if problem.feature[node] < 0:
                tree.set_leaf_value(at, 0, -float(weight[node]))
                continue
            tree.split(at, int(problem.feature[node]), float(problem.split[node]))
            todo += [
                (tree.left(at), int(problem.left[node])),
                (tree.right(at), int(problem.right[node])),
            ]
    return trees


def _nodes(problem: Problem, root: int) -> list[int]:
    found, todo = [], [root]
    while todo:
        node = todo.pop()
        found.append(node)
        if problem.feature[node] >= 0:
            todo += [int(problem.left[node]), int(problem.right[node])]
    return found


def solve(problem: Problem, row: int, ensembles: Ensembles) -> Answer:
    """Decide one row."""
    top = np.nextafter(problem.high[row], np.inf)
    ends = zip(problem.low[row].tolist(), top.tolist(), strict=True)
    box = [veritas.Interval(low, high) for low, high in ends]

    def ask(weight: Any, base: float, seconds: float) -> Answer:
        trees = ensembles.get(problem, weight, base)
        begun = process_time()
        config = veritas.Config(veritas.HeuristicType.MAX_OUTPUT)
        config.stop_when_optimal = True
        config.ignore_state_when_worse_than = 0.0
        config.stop_when_num_solutions_exceeds = 1
        config.max_focal_size = 1000
        config.focal_eps = 0.2
        config.max_memory = MEMORY
        search = config.get_search(trees, box)
        reason = search.step_for(seconds, 100)
        spent = process_time() - begun
        if search.num_solutions() > 0:
            return (0 if search.get_solution(0).output > 0 else 1), spent
        out = (veritas.StopReason.OUT_OF_TIME, veritas.StopReason.OUT_OF_MEMORY)
        is_open = reason in out or reason == veritas.StopReason.NONE
        return (-1 if is_open and search.current_bounds().best >= 0 else 1), spent

    return each_side(problem, row, ask)


if __name__ == "__main__":
    cache = Ensembles()
    serve("veritas", lambda problem, row: solve(problem, row, cache))
