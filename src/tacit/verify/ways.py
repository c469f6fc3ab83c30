"""Compiled: from a counterexample to the features that it needs, and to others like it."""

from typing import Any

import numpy as np

from tacit.verify.glance import weigh
from tacit.verify.jit import compiled
from tacit.verify.kernel import CHANGED, add_leaves, judge

MOST_ROUNDS = 3


@compiled
def judge_cells(trees: Any, rule: Any, sides: Any, cells: Any, reached: Any, scores: Any) -> Any:
    """Say what the library makes of these cells: KEPT, CHANGED or TIED."""
    packed = trees.packed
    for tree in range(trees.roots.size):
        node = trees.roots[tree]
        while packed[node, 0] >= 0:
            node = packed[node, 2] if cells[packed[node, 0]] <= packed[node, 1] else packed[node, 3]
        reached[tree] = node
    add_leaves(trees, rule, reached, scores)
    return judge(rule, scores, sides.label, sides.low, sides.high)


@compiled
def look(index: Any, sides: Any, cells: Any) -> Any:
    """Say what the library makes of these cells: KEPT, CHANGED or TIED."""
    reached = np.empty(index.trees.roots.size, np.int32)
    scores = np.empty(index.rule.base.size)
    return judge_cells(index.trees, index.rule, sides, cells, reached, scores)


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


@compiled
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
    packed, units = trees.packed, trees.units
    for k in range(high - low + 2):
        steps[k] = 0
    for tree in askers:
        node, first, last, top = trees.roots[tree], low, high, 0
        while True:
            while packed[node, 0] >= 0 and top < stack.shape[0]:
                f, cell = packed[node, 0], packed[node, 1]
                if f != own:
                    node = packed[node, 2] if cells[f] <= cell else packed[node, 3]
                elif last <= cell:
                    node = packed[node, 2]
                elif first > cell:
                    node = packed[node, 3]
                else:
                    stack[top, 0], stack[top, 1], stack[top, 2] = packed[node, 3], cell + 1, last
                    top += 1
                    node, last = packed[node, 2], cell
            value = weigh(units[node], plus, minus)
            steps[first - low] += value
            steps[last + 1 - low] -= value
            if top == 0:
                break
            top -= 1
            node, first, last = stack[top, 0], stack[top, 1], stack[top, 2]
    height, here, best, lowest = np.int64(0), np.int64(0), low, np.int64(1) << 62
    for cell in range(low, high + 1):
        height += steps[cell - low]
        if cell == cells[own]:
            here = height
        if height < lowest:
            best, lowest = cell, height
    return best, here - lowest


@compiled
def _nearest_side(trees: Any, base_units: Any, sides: Any, reached: Any) -> int:
    """Find the side whose sum is nearest to its barrier."""
    side, least = 0, np.int64(1) << 62
    for s in range(sides.plus.size):
        total = weigh(base_units, sides.plus[s], sides.minus[s]) - sides.barrier[s]
        for tree in range(reached.size):
            total += weigh(trees.units[reached[tree]], sides.plus[s], sides.minus[s])
        if total < least:
            side, least = s, total
    return side


@compiled
def _scratch(low: Any, high: Any) -> Any:
    widest = 0
    for f in range(low.size):
        widest = max(widest, high[f] - low[f])
    return np.zeros(widest + 2, np.int64), np.empty((64, 3), np.int32)


@compiled
def descend(index: Any, sides: Any, side: int, cells: Any, low: Any, high: Any, free: Any) -> None:
    """Move features that are free, one by one, to where the sum of a side is least."""
    start, plus, minus = index.asker_start, sides.plus[side], sides.minus[side]
    steps, stack = _scratch(low, high)
    for _ in range(MOST_ROUNDS):
        has_moved = False
        for f in free:
            askers = index.askers[start[f] : start[f + 1]]
            cell, gain = best_cell(
                index.trees, askers, plus, minus, cells, f, low[f], high[f], steps, stack
            )
            if gain > 0:
                cells[f] = cell
                has_moved = True
        if not has_moved:
            break


@compiled
def find_others(
    index: Any, sides: Any, cells: Any, low: Any, high: Any, free: Any, candidates: Any
) -> Any:
    """Find candidates each of which, moved alone from these cells, changes the prediction.

    Before, features that are free are moved, one by one, so that little is missing. Whether the
    prediction changes is told by the library's arithmetic.
    """
    trees, rule, start = index.trees, index.rule, index.asker_start
    reached, scores = np.empty(trees.roots.size, np.int32), np.empty(rule.base.size)
    judge_cells(trees, rule, sides, cells, reached, scores)
    side = _nearest_side(trees, index.base_units, sides, reached)
    plus, minus = sides.plus[side], sides.minus[side]
    descend(index, sides, side, cells, low, high, free)
    steps, stack = _scratch(low, high)
    found = np.zeros(candidates.size, np.bool_)
    for i in range(candidates.size):
        f = candidates[i]
        askers = index.askers[start[f] : start[f + 1]]
        was = cells[f]
        cells[f], _ = best_cell(trees, askers, plus, minus, cells, f, low[f], high[f], steps, stack)
        found[i] = judge_cells(trees, rule, sides, cells, reached, scores) == CHANGED
        cells[f] = was
    return found
