"""Compiled: coordinate descent on the trees themselves, before any problem is built.

Feature by feature, the cell that lowers the sum most is taken. Cheap where few trees ask for few
features, and there it finds most counterexamples that the greedy attack has missed.
"""

from typing import Any

import numpy as np

from tacit.verify.glance import weigh
from tacit.verify.jit import compiled
from tacit.verify.kernel import CHANGED
from tacit.verify.ways import best_cell, judge_cells

MOST_ROUNDS = 4
MOST_FEATURES, MOST_PAIRS = 16, 1000
"""Features, and pairs of a feature and a tree that asks for it, beyond which a problem is built."""


@compiled
def slide(index: Any, sides: Any, side: int, g: Any, cell_low: Any, cell_high: Any) -> bool:
    """Attack a side from where `rush` got stuck; if it falls, narrow the cells to a point."""
    trees, start = index.trees, index.asker_start
    free = g.free[: g.free[g.at.size]]
    if free.size > MOST_FEATURES:
        return False
    pairs, widest = 0, 0
    for f in free:
        pairs += start[f + 1] - start[f]
        widest = max(widest, cell_high[f] - cell_low[f])
    if pairs > MOST_PAIRS:
        return False
    for f in index.asked:
        g.point[f] = min(max(g.at[f], g.low[f]), g.high[f])
    plus, minus = sides.plus[side], sides.minus[side]
    steps, stack = np.zeros(widest + 2, np.int64), np.empty((trees.depth + 1, 3), np.int32)
    judge_cells(trees, index.rule, sides, g.point, g.taken, g.scores)
    total = weigh(index.base_units, plus, minus)
    for leaf in g.taken:
        total += weigh(trees.units[leaf], plus, minus)
    for _ in range(MOST_ROUNDS):
        before = total
        for f in free:
            askers = index.askers[start[f] : start[f + 1]]
            g.point[f], gain = best_cell(
                trees, askers, plus, minus, g.point, f, cell_low[f], cell_high[f], steps, stack
            )
            total -= gain
            if gain == 0 or total >= sides.barrier[side]:
                continue
            verdict = judge_cells(trees, index.rule, sides, g.point, g.taken, g.scores)
            if verdict == CHANGED:
                for h in free:
                    cell_low[h], cell_high[h] = g.point[h], g.point[h]
                return True
        # What is missing is more than the last round has brought: the next brings less.
        if total - sides.barrier[side] >= before - total:
            break
    return False
