"""What the peers of ``verify/robustness.py`` share: the problem file, pruning, and answering.

The file is an npz: trees as flat arrays (a node goes left when x < split; feature -1 is a leaf),
boxes as the least and the largest value of each feature, the class and the scores at the center of
each box, and per row a budget in seconds. A class with one score is 1 when the sum is at least 0.

``PEER PROBLEM QUANTITY [PATIENCE]`` answers ``measure``; no row is begun after PATIENCE seconds.
"""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import monotonic, process_time
from typing import Any

import numpy as np

Answer = tuple[int, float]
"""1 robust, 0 fragile, -1 unsolved; and seconds of processor time."""
Solve = Callable[["Problem", int], Answer]


@dataclass(frozen=True)
class Leaf:
    """A leaf that a box can reach and, per feature it constrains, the range [low, high)."""

    node: int
    ranges: dict[int, tuple[float, float]]


@dataclass(frozen=True)
class Problem:
    """Trees, boxes and what is asked of them."""

    roots: Any
    feature: Any
    split: Any
    left: Any
    right: Any
    value: Any
    base: Any
    low: Any
    high: Any
    label: Any
    scores: Any
    seconds: float

    def sides(self, row: int) -> list[tuple[Any, float]]:
        """List (leaf weights, base): the class changes when base + weights fall below zero.

        The class that comes closest at the center of the box is first.
        """
        label = int(self.label[row])
        if self.value.shape[1] == 1:
            return [self._side(label, -1)]
        rivals = [int(rival) for rival in np.argsort(-self.scores[row]) if rival != label]
        return [self._side(label, rival) for rival in rivals]

    def _side(self, label: int, rival: int) -> tuple[Any, float]:
        if (label, rival) not in self._made:
            if rival < 0:
                sign = 1.0 if label == 1 else -1.0
                made = sign * self.value[:, 0], sign * float(self.base[0])
            else:
                weight = self.value[:, label] - self.value[:, rival]
                made = weight, float(self.base[label] - self.base[rival])
            self._made[label, rival] = made
        return self._made[label, rival]

    @cached_property
    def _made(self) -> dict[tuple[int, int], tuple[Any, float]]:
        return {}

    def open_leaves(self, row: int) -> list[list[Leaf]]:
        """List, tree by tree, the leaves that a box can reach."""
        return [list(self._walk(int(root), row, {})) for root in self.roots]

    def _walk(self, node: int, row: int, ranges: dict[int, tuple[float, float]]) -> Iterator[Leaf]:
        f = int(self.feature[node])
        if f < 0:
            yield Leaf(node, ranges)
            return
        split = float(self.split[node])
        low, high = ranges.get(f, (-np.inf, np.inf))
        if self.low[row, f] < split and low < split:
            is_new = self.high[row, f] >= split and split < high
            narrow = ranges | {f: (low, split)} if is_new else ranges
            yield from self._walk(int(self.left[node]), row, narrow)
        if self.high[row, f] >= split and high > split:
            is_new = self.low[row, f] < split and split > low
            narrow = ranges | {f: (split, high)} if is_new else ranges
            yield from self._walk(int(self.right[node]), row, narrow)


def load(path: Path) -> Problem:
    """Read a problem file."""
    with np.load(path) as arrays:
        told = {name: arrays[name] for name in arrays.files}
    return Problem(**told | {"seconds": float(told["seconds"])})


def serve(name: str, solve: Solve) -> None:
    """Answer ``measure`` with the quantity in argv[2]; rows are solved once and remembered."""
    path, quantity = Path(sys.argv[1]), sys.argv[2]
    patience = float(sys.argv[3]) if len(sys.argv) > 3 else np.inf
    for line in sys.stdin:
        if line.strip() == "measure":
            answers = _remember(name, path, solve, patience)
            print(json.dumps({"value": summarise(answers, quantity)}), flush=True)


def summarise(answers: list[Answer], quantity: str) -> float:
    """Reduce answers to the median or p95 in milliseconds, or the unsolved share."""
    if quantity == "unsolved":
        return 100.0 * sum(verdict < 0 for verdict, _ in answers) / len(answers)
    times = [1e3 * seconds for _, seconds in answers]
    return float(np.quantile(times, {"median": 0.5, "p95": 0.95}[quantity]))


def each_side(problem: Problem, row: int, ask: Callable[[Any, float, float], Answer]) -> Answer:
    """Ask side by side until one changes the class or the budget is gone."""
    spent, worst = 0.0, 1
    for weight, base in problem.sides(row):
        left = problem.seconds - spent
        if left <= 0:
            return -1, spent
        verdict, seconds = ask(weight, base, left)
        spent += seconds
        if verdict == 0:
            return 0, spent
        worst = min(worst, verdict)
    return worst, spent


def that_count(trees: list[list[Leaf]], weight: Any) -> list[list[Leaf]]:
    """Leave out trees that a side does not ask about: in boosting, those of other classes."""
    return [leaves for leaves in trees if any(weight[leaf.node] for leaf in leaves)]


def _remember(name: str, path: Path, solve: Solve, patience: float) -> list[Answer]:
    memory = path.with_suffix(f".{name}.json")
    if not memory.exists():
        problem = load(path)
        solve(problem, 0)  # what is loaded on first use is not what a row costs
        end, found, whole = monotonic() + patience, [], []
        for row in range(problem.label.size):
            begun = process_time()
            found.append(solve(problem, row))
            whole.append(process_time() - begun)
            if monotonic() > end:
                break
        memory.write_text(json.dumps(found))
        memory.with_suffix(".whole").write_text(json.dumps(whole))
    return [(int(verdict), float(seconds)) for verdict, seconds in json.loads(memory.read_text())]


__all__ = [
    "Answer",
    "Leaf",
    "Problem",
    "each_side",
    "load",
    "process_time",
    "serve",
    "summarise",
    "that_count",
]
