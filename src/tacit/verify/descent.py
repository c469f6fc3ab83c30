"""Compiled: coordinate descent on the trees themselves, before any problem is built.

Feature by feature, the cell that lowers the sum most is taken. Only trees that ask for the feature
on their way to the point can tell its cells apart. Cheap where few features are open, and there it
finds nearly all counterexamples.
"""

from typing import Any

import numpy as np

from tacit.verify.glance import FAR, ONE, THREE, TWO, tally, tally_group, weigh
from tacit.verify.jit import bare, inlined
from tacit.verify.kernel import CHANGED, judge
from tacit.verify.paths import END
from tacit.verify.room import make_slope

MOST_ROUNDS = 3
MOST_FEATURES = 32
"""Open features beyond which there is no descent."""
MOST_MISSING = 0.75
"""What is missing at the start, as a part of what the plain bound leaves open; beyond it the
descent hardly ever gets there."""
LEAST_PULL = 2
"""A round that brings less than so many times of what is still missing is the last."""


@bare
def slide(
    index: Any, sides: Any, side: int, g: Any, gap: int, cell_low: Any, cell_high: Any
) -> bool:
    """Attack a side from where a greedy attack got stuck; if it falls, narrow the cells to a point.

    Args:
        index: the model; all its trees are in one group.
        sides: what could change.
        side: the one to attack.
        g: what was found out about the row, and the intervals where the attack got stuck.
        gap: by how much the plain bound exceeds the barrier: a negative number.
        cell_low: the first cell of each feature.
        cell_high: the last.
    """
    if not can_slide(g):
        return False
    for f in index.asked:
        g.point[f] = min(max(g.at[f], g.low[f]), g.high[f])
    walk, units = index.trees.walk, index.trees.units
    plus, minus = sides.plus[side], sides.minus[side]
    missing = weigh(index.base_units, plus, minus) - sides.barrier[side]
    for tree in range(g.taken.size):
        node = np.uint64(index.paths.entry[tree])
        while walk[node + ONE] != END:
            goes_right = np.uint64(g.point[np.uint64(walk[node])] > walk[node + ONE])
            node = np.uint64(walk[node + TWO + goes_right])
        g.taken[tree] = node >> TWO
        missing += weigh(units[g.taken[tree]], plus, minus)
    if missing > MOST_MISSING * -gap:
        return False
    return slide_on(index, sides, side, g, missing, cell_low, cell_high)


@bare
def slide_apart(
    index: Any, sides: Any, side: int, g: Any, missing: int, cell_low: Any, cell_high: Any
) -> bool:
    """Do as `slide_on` does, in a kernel of its own: within another it makes that one slower."""
    return slide_on(index, sides, side, g, missing, cell_low, cell_high)


@inlined
def slide_on(
    index: Any, sides: Any, side: int, g: Any, missing: int, cell_low: Any, cell_high: Any
) -> bool:
    """Attack a side from the point; if it falls, narrow the cells to where it does.

    Args:
        index: the model.
        sides: what could change.
        side: the one to attack.
        g: what was found out about the row; where decided trees lead is taken already.
        missing: by how much the sum at the point exceeds the barrier.
        cell_low: the first cell of each feature.
        cell_high: the last.
    """
    n_free, plus, minus = g.free[g.at.size], sides.plus[side], sides.minus[side]
    w = make_slope(index, g.words, g.longs)
    size = _gather(index, g, w, plus, minus, cell_low, cell_high)
    for _ in range(MOST_ROUNDS):
        before = missing
        for k in range(n_free):
            f = w.ranked[k]
            count = _list_askers(w, size, w.bit[f])
            if count == 0:
                continue
            cell, gain = _best_cell(index, g, w, count, plus, minus, f, cell_low[f], cell_high[f])
            if gain == 0:
                continue
            g.point[f] = cell
            missing -= gain
            for i in range(count):
                _trace(index.paths, g, w, w.few[i], cell_low, cell_high)
            if missing < 0 and _falls(index, sides, side, g):
                for i in range(n_free):
                    h = g.free[i]
                    cell_low[h], cell_high[h] = g.point[h], g.point[h]
                return True
        if LEAST_PULL * missing >= before - missing:
            break
    return False


@inlined
def can_slide(g: Any) -> bool:
    """Say whether so few features are open that a descent is worth it."""
    return g.free[g.at.size] <= MOST_FEATURES  # type: ignore[no-any-return]


@inlined
def _gather(
    index: Any, g: Any, w: Any, plus: int, minus: int, cell_low: Any, cell_high: Any
) -> int:
    """List the undecided trees of a side, and the features by what they promise."""
    paths, promise, size = index.paths, w.promise, 0
    for k in range(g.free[g.at.size]):
        f = g.free[k]
        w.bit[f], promise[f] = 1 << k, 0
    is_grouped, has_ends = paths.group_start.size > 2, paths.ends.size > 0
    for turn in range(1 + is_grouped):
        # With two groups, the second is pulled the other way.
        group, to = (plus, minus)[turn] if is_grouped else 0, np.uint64(turn)
        if not is_grouped:
            to = np.uint64(plus != 0)
        for k in range(g.open_start[group], g.open_start[group + 1]):
            tree = g.undecided[k]
            w.team[size] = tree
            size += 1
            _trace(paths, g, w, tree, cell_low, cell_high)
            gain = 1
            for way in range(g.pending_start[tree], g.pending_end[tree]):
                place = np.uint64(g.pending[way])
                if has_ends:
                    here = paths.ends[(np.uint64(g.reached[tree]) << ONE) + to]
                    gain = here - paths.ends[(place >> ONE) + to]
                promise[np.uint64(paths.rise[place + ONE])] += gain
    _rank(g, w)
    return size


@inlined
def _rank(g: Any, w: Any) -> None:
    """Sort the open features by what they promise."""
    ranked, promise = w.ranked, w.promise
    for k in range(g.free[g.at.size]):
        f, at = g.free[k], k
        while at > 0 and promise[ranked[at - 1]] < promise[f]:
            ranked[at] = ranked[at - 1]
            at -= 1
        ranked[at] = f


@inlined
def _list_askers(w: Any, size: int, bit: int) -> int:
    """List the trees that ask for a feature on their way; return how many they are."""
    count = 0
    for i in range(size):
        tree = w.team[i]
        w.few[count] = tree
        count += (w.asks[tree] & bit) != 0
    return count


@inlined
def _trace(paths: Any, g: Any, w: Any, tree: int, cell_low: Any, cell_high: Any) -> None:
    """Find the leaf of a tree at the point, and the open features that it asks for on the way."""
    walk, point, bit = paths.walk, g.point, w.bit
    node, asks = np.uint64(paths.entry[tree]), 0
    while walk[node + ONE] != END:
        f, rank = np.uint64(walk[node]), walk[node + ONE]
        is_open = (cell_low[f] <= rank) & (cell_high[f] > rank)
        asks |= bit[f] * is_open
        node = np.uint64(walk[node + TWO + np.uint64(point[f] > rank)])
    g.taken[tree], w.asks[tree] = node >> TWO, asks


@inlined
def _best_cell(
    index: Any,
    g: Any,
    w: Any,
    count: int,
    plus: int,
    minus: int,
    feature: int,
    low: int,
    high: int,
) -> Any:
    """Find the cell of one feature that lowers the sum most, and by how much.

    With all other features held, the sum is a step function of this one.
    """
    walk, units, point, steps, fork = index.paths.walk, index.trees.units, g.point, w.steps, w.fork
    own, was = np.uint64(feature), point[feature]
    for k in range(high - low + 2):
        steps[k] = 0
    for i in range(count):
        node, top = np.uint64(index.paths.entry[w.few[i]]), np.uint64(0)
        first, last = np.uint32(low), np.uint32(high)
        # All cells from the first to the last go the same way, so the first stands for them.
        point[own] = first
        while True:
            while walk[node + ONE] != END:
                f, rank = np.uint64(walk[node]), walk[node + ONE]
                if (f == own) & (first <= rank) & (last > rank):
                    fork[top], fork[top + ONE] = walk[node + THREE], rank + np.uint32(1)
                    fork[top + TWO] = last
                    top += THREE
                    last = rank
                node = np.uint64(walk[node + TWO + np.uint64(point[f] > rank)])
            value = weigh(units[node >> TWO], plus, minus)
            steps[np.uint64(first) - np.uint64(low)] += value
            steps[np.uint64(last) - np.uint64(low) + ONE] -= value
            if top == 0:
                break
            top -= THREE
            node, first, last = np.uint64(fork[top]), fork[top + ONE], fork[top + TWO]
            point[own] = first
    point[own] = was
    height, here, best, lowest = np.int64(0), np.int64(0), low, FAR
    for k in range(high - low + 1):
        height += steps[k]
        if height < lowest:
            best, lowest = low + k, height
    for k in range(was - low + 1):
        here += steps[k]
    return best, here - lowest


@inlined
def _falls(index: Any, sides: Any, side: int, g: Any) -> bool:
    """Ask the library's arithmetic about the leaves that are taken."""
    if index.paths.group_start.size == 2:
        tally(index, g, g.taken)
    else:
        # The other classes can only make it fall the more.
        for rival in range(g.scores.size):
            g.scores[rival] = -np.inf
        for group in (sides.plus[side], sides.minus[side]):
            g.scores[group] = tally_group(index.paths, index.rule, g.taken, group)
    return judge(index.rule, g.scores, sides.label, sides.low, sides.high) == CHANGED
