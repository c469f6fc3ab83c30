"""Compiled: coordinate descent on the trees themselves, before any problem is built.

Feature by feature, the cell that lowers the sum most is taken. Only trees that ask for the feature
on their way to the point can tell its cells apart. Cheap where few features are open, and there it
finds most counterexamples that the greedy attack has missed.
"""

from typing import Any

import numpy as np

from tacit.verify.glance import ONE, TWO, weigh
from tacit.verify.jit import compiled, inlined
from tacit.verify.kernel import CHANGED, add_leaves, judge
from tacit.verify.paths import END
from tacit.verify.ways import best_cell

MOST_ROUNDS = 4
MOST_FEATURES, MOST_PAIRS = 16, 1000
"""Features, and pairs of a feature and a tree that asks for it, beyond which a problem is built."""
MOST_MISSING = 0.75
"""What is missing at the start, as a part of what the plain bound leaves open; beyond it the
descent hardly ever gets there."""


@compiled
def slide(
    index: Any, sides: Any, side: int, g: Any, gap: int, cell_low: Any, cell_high: Any
) -> bool:
    """Attack a side from where `rush` got stuck; if it falls, narrow the cells to a point.

    Args:
        index: the model.
        sides: what could change.
        side: the one to attack.
        g: what was found out about the row.
        gap: by how much the plain bound exceeds the barrier: a negative number.
        cell_low: the first cell of each feature.
        cell_high: the last.
    """
    trees, free = index.trees, g.free[: g.free[g.at.size]]
    widest = _measure(index, free, cell_low, cell_high)
    if widest < 0:
        return False
    for f in index.asked:
        g.point[f] = min(max(g.at[f], g.low[f]), g.high[f])
    bit, asks = np.zeros(g.at.size, np.uint64), np.empty(trees.roots.size, np.uint64)
    for k in range(free.size):
        bit[free[k]] = ONE << np.uint64(k)
    plus, minus = sides.plus[side], sides.minus[side]
    missing = weigh(index.base_units, plus, minus) - sides.barrier[side]
    for tree in range(asks.size):
        g.taken[tree], asks[tree] = _trace(trees, tree, g.point, bit, cell_low, cell_high)
        missing += weigh(trees.units[g.taken[tree]], plus, minus)
    if missing > MOST_MISSING * -gap:
        return False
    askers = np.empty(asks.size, np.int32)
    steps, stack = np.zeros(widest + 2, np.int64), np.empty((trees.depth + 1, 3), np.int32)
    for _ in range(MOST_ROUNDS):
        before = missing
        for f in free:
            few = askers[: _list_askers(asks, bit[f], askers)]
            g.point[f], gain = best_cell(
                trees, few, plus, minus, g.point, f, cell_low[f], cell_high[f], steps, stack
            )
            if gain == 0:
                continue
            missing -= gain
            for tree in few:
                g.taken[tree], asks[tree] = _trace(trees, tree, g.point, bit, cell_low, cell_high)
            if missing < 0 and _falls(index, sides, g):
                for h in free:
                    cell_low[h], cell_high[h] = g.point[h], g.point[h]
                return True
        # What is missing is more than the last round has brought: the next brings less.
        if missing >= before - missing:
            break
    return False


@inlined
def _measure(index: Any, free: Any, cell_low: Any, cell_high: Any) -> int:
    """Count the cells of the widest feature; a negative number if there is too much to look at."""
    pairs, widest = 0, 0
    if free.size > MOST_FEATURES:
        return -1
    for f in free:
        pairs += index.asker_start[f + 1] - index.asker_start[f]
        widest = max(widest, cell_high[f] - cell_low[f])
    return widest if pairs <= MOST_PAIRS else -1


@inlined
def _trace(trees: Any, tree: int, point: Any, bit: Any, cell_low: Any, cell_high: Any) -> Any:
    """Find the leaf of a tree at a point, and the open features that it asks for on the way."""
    walk, node, asks = trees.walk, np.uint64(trees.roots[tree]) << TWO, np.uint64(0)
    while walk[node + ONE] != END:
        f, rank = np.uint64(walk[node]), walk[node + ONE]
        is_open = (cell_low[f] <= rank) & (cell_high[f] > rank)
        asks |= bit[f] * np.uint64(is_open)
        node = np.uint64(walk[node + TWO + np.uint64(point[f] > rank)])
    return node >> TWO, asks


@inlined
def _list_askers(asks: Any, bit: Any, askers: Any) -> int:
    """List the trees that ask for a feature on their way; return how many they are."""
    count = 0
    for tree in range(asks.size):
        askers[count] = tree
        count += (asks[tree] & bit) != 0
    return count


@inlined
def _falls(index: Any, sides: Any, g: Any) -> bool:
    """Ask the library's arithmetic about the leaves that are taken."""
    add_leaves(index.trees, index.rule, g.taken, g.scores)
    return judge(index.rule, g.scores, sides.label, sides.low, sides.high) == CHANGED
