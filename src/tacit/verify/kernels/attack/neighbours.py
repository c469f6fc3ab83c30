"""Compiled: from a counterexample to the features that it needs, and to others like it."""

from typing import Any

import numpy as np

from tacit.verify.kernels.jit import bare, compiled
from tacit.verify.kernels.layout.collect import ONE, THREE, TWO
from tacit.verify.kernels.layout.nodes import END
from tacit.verify.kernels.presolve.scores import CHANGED, add_leaves, judge, weigh


@bare
def judge_cells(trees: Any, rule: Any, sides: Any, cells: Any, reached: Any, scores: Any) -> Any:
    """Say what the library makes of these cells: KEPT, CHANGED or TIED."""
    walk = trees.walk
    for tree in range(trees.roots.size):
        node = np.uint64(trees.roots[tree]) << TWO
        while walk[node + ONE] != END:
            goes_right = np.uint64(cells[np.uint64(walk[node])] > walk[node + ONE])
            node = np.uint64(walk[node + TWO + goes_right])
        reached[tree] = node >> TWO
    add_leaves(trees, rule, reached, scores)
    return judge(rule, scores, sides.label, sides.low, sides.high)


@compiled
def look(trees: Any, rule: Any, sides: Any, cells: Any) -> Any:
    """Say what the library makes of these cells: KEPT, CHANGED or TIED."""
    reached, scores = np.empty(trees.roots.size, np.int32), np.empty(rule.base.size)
    return judge_cells(trees, rule, sides, cells, reached, scores)


@compiled
def put_back(
    trees: Any, rule: Any, sides: Any, cells: Any, low: Any, high: Any, order: Any
) -> None:
    """Bring features back within eps, one by one, as long as the prediction stays changed."""
    reached, scores = np.empty(trees.roots.size, np.int32), np.empty(rule.base.size)
    for f in order:
        was = cells[f]
        if low[f] <= was <= high[f]:
            continue
        cells[f] = min(max(was, low[f]), high[f])
        if judge_cells(trees, rule, sides, cells, reached, scores) != CHANGED:
            cells[f] = was


@bare
def _rank(walk: Any, node: Any) -> Any:
    return np.int32(walk[node + ONE])


@bare
def best_cell(
    trees: Any,
    askers: Any,
    plus: int,
    minus: int,
    cells: Any,
    own: int,
    low: int,
    high: int,
    steps: Any,
    stack: Any,
) -> Any:
    """Find the cell of one feature that lowers a sum most, and by how much.

    With all other features held, the sum is a step function of this one.
    """
    walk, units = trees.walk, trees.units
    for k in range(high - low + 2):
        steps[k] = 0
    for tree in askers:
        node, first, last, top = np.uint64(trees.roots[tree]) << TWO, low, high, 0
        while True:
            while walk[node + ONE] != END and top < stack.shape[0]:
                f, rank = np.uint64(walk[node]), _rank(walk, node)
                if f != own:
                    node = np.uint64(walk[node + TWO + np.uint64(cells[f] > rank)])
                elif last <= rank:
                    node = np.uint64(walk[node + TWO])
                elif first > rank:
                    node = np.uint64(walk[node + THREE])
                else:
                    stack[top, 0], stack[top, 1], stack[top, 2] = walk[node + THREE], rank + 1, last
                    top += 1
                    node, last = np.uint64(walk[node + TWO]), rank
            value = weigh(units[node >> TWO], plus, minus)
            steps[first - low] += value
            steps[last + 1 - low] -= value
            if top == 0:
                break
            top -= 1
            node, first, last = np.uint64(stack[top, 0]), stack[top, 1], stack[top, 2]
    height, here, best, lowest = np.int64(0), np.int64(0), low, np.int64(1) << 62
    for cell in range(low, high + 1):
        height += steps[cell - low]
        if cell == cells[own]:
            here = height
        if height < lowest:
            best, lowest = cell, height
    return best, here - lowest


@bare
def _nearest_side(trees: Any, base_units: Any, sides: Any, reached: Any) -> Any:
    """Find the side whose sum is nearest to its barrier, and how far above it that is."""
    side, least = 0, np.int64(1) << 62
    for s in range(sides.plus.size):
        total = weigh(base_units, sides.plus[s], sides.minus[s]) - sides.barrier[s]
        for tree in range(reached.size):
            total += weigh(trees.units[reached[tree]], sides.plus[s], sides.minus[s])
        if total < least:
            side, least = s, total
    return side, least


@compiled
def _scratch(low: Any, high: Any) -> Any:
    widest = 0
    for f in range(low.size):
        widest = max(widest, high[f] - low[f])
    return np.zeros(widest + 2, np.int64), np.empty((64, 3), np.int32)


@compiled
def find_others(index: Any, sides: Any, cells: Any, low: Any, high: Any, candidates: Any) -> Any:
    """Find candidates each of which, moved alone from these cells, changes the prediction.

    Whether it does is told by the library's arithmetic.
    """
    trees, rule, start = index.trees, index.rule, index.asker_start
    reached, scores = np.empty(trees.roots.size, np.int32), np.empty(rule.base.size)
    judge_cells(trees, rule, sides, cells, reached, scores)
    side, missing = _nearest_side(trees, index.base_units, sides, reached)
    plus, minus = sides.plus[side], sides.minus[side]
    steps, stack = _scratch(low, high)
    found = np.zeros(candidates.size, np.bool_)
    for i in range(candidates.size):
        f = candidates[i]
        askers = index.askers[start[f] : start[f + 1]]
        cell, gain = best_cell(trees, askers, plus, minus, cells, f, low[f], high[f], steps, stack)
        if gain <= missing:
            continue
        was, cells[f] = cells[f], cell
        found[i] = judge_cells(trees, rule, sides, cells, reached, scores) == CHANGED
        cells[f] = was
    return found
