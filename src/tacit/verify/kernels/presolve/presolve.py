"""Compiled: the small search that answers most questions, before anything larger is compiled.

One walk tells which trees a box leaves undecided; the point where the ensemble leads on average is
tried; least leaves bound every side, and what they leave open is cut (`split`). It works on whole
units alone: a proof stands, and a point counts only if no rounding could bring it back. What it
cannot decide in a few parts is left to the deep search.

Its kernels take two short records and are compiled one by one: forced into one another, with all
arrays of a model handed on, such kernels took minutes to compile.
"""

from typing import Any, NamedTuple

import numpy as np

from tacit.verify.kernels.jit import bare, compiled
from tacit.verify.kernels.layout.collect import ONE, TWO
from tacit.verify.kernels.layout.nodes import END
from tacit.verify.kernels.presolve.bisect import (
    FAR,
    FELL,
    LEVELS,
    OPEN,
    choose_end,
    find_leaf,
    next_leaf,
    split_side,
    stand,
    try_point,
)
from tacit.verify.kernels.presolve.scores import FOUND, PAUSED, PROVED, weigh

MOST_PARTS, ONE_PART = 32, np.int64(1)
"""Parts of a box that are looked at, side by side. A plain 1 would be a type of its own, and what
is called with it be compiled twice; so are other numbers given a type where they are counted."""


class Model(NamedTuple):
    """What is read of an index."""

    entry: Any  # (trees): places of the roots
    walk: Any
    rise: Any
    units: Any
    base: Any
    cuts: Any
    cut_start: Any
    asked: Any
    slack: Any
    ends: Any  # per node the least weight below, and the least of its opposite; may be empty
    group: Any  # (trees): the score that a tree pulls, where each pulls one of several
    n_groups: Any
    lure: Any  # (pairs of groups, features): the cell to which an attack is drawn first


class Scratch(NamedTuple):
    """Room to work in, made once for many rows."""

    at: Any  # (features): the cell of the center
    free: Any  # (features + 1): those of which the box holds several cells; how many they are
    low: Any  # (levels, features): the box, and the parts that wait
    high: Any
    near_low: Any  # (features): the intervals that the attack has left
    near_high: Any
    point: Any  # (features): where it stands
    team: Any  # (trees + 1): the undecided ones come first; how many they are
    fork: Any  # (trees): the place at which the box goes two ways
    here: Any  # (trees): the leaf at the center
    least: Any  # (trees): the least weight in the part
    leaf: Any  # (trees): the place of the leaf that has it
    loss: Any  # (trees): what it is beyond the center's
    sums: Any  # (scores): units at the center
    bound: Any  # (sides): by how much the least leaves exceed the barrier
    mins: Any  # (sides): of one tree
    stack: Any  # places still to be seen


def pick_model(index: Any) -> Model:
    """Pick what the small search reads."""
    paths, trees = index.paths, index.trees
    n_groups = paths.group_start.size - 1
    group = np.repeat(np.arange(n_groups), np.diff(paths.group_start))[np.argsort(paths.order)]
    return Model(
        4 * trees.roots.astype(np.uint32),
        paths.walk,
        paths.rise,
        trees.units,
        index.base_units,
        index.cuts,
        index.cut_start,
        index.asked,
        index.slack,
        paths.ends,
        group,
        n_groups,
        index.lure,
    )


def make_scratch(index: Any, n_sides: int) -> Scratch:
    """Allocate room for a model."""
    n, trees, scores = index.cut_start.size - 1, index.trees.roots.size, index.base_units.size
    return Scratch(
        np.zeros(n, np.int32),
        np.zeros(n + 1, np.int64),
        np.zeros((LEVELS, n), np.int32),
        np.zeros((LEVELS, n), np.int32),
        np.zeros(n, np.int32),
        np.zeros(n, np.int32),
        np.zeros(n, np.int32),
        np.zeros(trees + 1, np.int64),
        np.zeros(trees, np.uint64),
        np.zeros(trees, np.uint64),
        np.zeros(trees, np.int64),
        np.zeros(trees, np.uint64),
        np.zeros(trees, np.int64),
        np.zeros(scores, np.int64),
        np.zeros(n_sides, np.int64),
        np.zeros(n_sides, np.int64),
        np.zeros(index.trees.depth + 2, np.uint64),
    )


@compiled
def decide_cells(m: Any, s: Any, sides: Any, low: Any, high: Any, most: int) -> int:
    """Decide a box of cells: PROVED, FOUND or PAUSED; if it is FOUND, narrow it to a point."""
    count = 0
    for f in range(low.size):
        s.at[f], s.point[f], s.low[0, f], s.high[0, f] = low[f], low[f], low[f], high[f]
        s.free[count] = f
        count += low[f] < high[f]
    s.free[low.size] = count
    walk_center(m, s)
    outcome = decide_sides(m, s, sides.plus, sides.minus, sides.barrier, most)
    if outcome == FOUND:
        for f in m.asked:
            low[f], high[f] = s.point[f], s.point[f]
    return outcome


@bare
def walk_center(m: Any, s: Any) -> None:
    """Find the leaf of each tree at the center, where its box goes two ways, and the sums.

    Four trees at a time, and a leaf leads back to itself: none has to wait for the one before.
    """
    walk, at, low, high, entry = m.walk, s.at, s.low[0], s.high[0], m.entry
    last, none = entry.size - 1, np.uint64(END)
    for first in range(0, entry.size, 4):
        a, b = np.uint64(entry[first]), np.uint64(entry[min(first + 1, last)])
        c, d = np.uint64(entry[min(first + 2, last)]), np.uint64(entry[min(first + 3, last)])
        fork_a, fork_b, fork_c, fork_d, moved = none, none, none, none, True
        while moved:
            before = a, b, c, d
            a, fork_a = _step(walk, at, low, high, a, fork_a)
            b, fork_b = _step(walk, at, low, high, b, fork_b)
            c, fork_c = _step(walk, at, low, high, c, fork_c)
            d, fork_d = _step(walk, at, low, high, d, fork_d)
            moved = (a, b, c, d) != before
        # From the last on, so that a tree that was walked twice is written once.
        s.here[min(first + 3, last)], s.fork[min(first + 3, last)] = d, fork_d
        s.here[min(first + 2, last)], s.fork[min(first + 2, last)] = c, fork_c
        s.here[min(first + 1, last)], s.fork[min(first + 1, last)] = b, fork_b
        s.here[first], s.fork[first] = a, fork_a
    count = 0
    for score in range(s.sums.size):
        s.sums[score] = 0
    for tree in range(entry.size):
        s.team[count] = tree
        count += s.fork[tree] != none
        for score in range(s.sums.size):
            s.sums[score] += m.units[s.here[tree] >> TWO, score]
    s.team[entry.size] = count


@bare
def _step(walk: Any, at: Any, low: Any, high: Any, node: Any, fork: Any) -> Any:
    """Go from a node to its child; keep the first node at which the box goes two ways."""
    f, rank = np.uint64(walk[node]), walk[node + ONE]
    is_fork = (fork == END) & (low[f] <= rank) & (high[f] > rank)
    to = np.uint64(walk[node + TWO + np.uint64(at[f] > rank)])
    return to, (node if is_fork else fork)


@bare
def decide_sides(m: Any, s: Any, plus: Any, minus: Any, barrier: Any, most: int) -> int:
    """Decide a box after its walk: PROVED, FOUND or PAUSED; if it is FOUND, its point is kept."""
    doubt = 2 * m.slack + 2 if m.base.size == 1 else 2 * barrier[0] + 4
    # Where most trees are undecided, a bound takes longer than an attack that is likely to do.
    is_wide = 2 * s.team[m.entry.size] > m.entry.size
    if is_wide and _lunge(m, s, plus, minus, barrier, doubt):
        return FOUND
    _bound(m, s, plus, minus, barrier)
    worst = PROVED
    for turn in range(plus.size):
        side = _lowest(s.bound)
        if s.bound[side] >= 0:
            break
        has_lure = m.lure.shape[0] > 0
        if turn == 0 and has_lure and not is_wide and _lunge(m, s, plus, minus, barrier, doubt):
            return FOUND
        s.bound[side] = FAR
        told = split_side(m, s, plus[side], minus[side], barrier[side], doubt, most)
        if told == FELL:
            return FOUND
        if told == OPEN:
            worst = PAUSED
    return worst


@bare
def _lowest(bound: Any) -> int:
    """Name the most endangered side."""
    lowest = 0
    for side in range(1, bound.size):
        if bound[side] < bound[lowest]:
            lowest = side
    return lowest


@bare
def _lunge(m: Any, s: Any, plus: Any, minus: Any, barrier: Any, doubt: int) -> bool:
    """Attack the nearest rival, where the ensemble leads on average; or else greedily."""
    side, lowest = 0, FAR
    for other in range(plus.size):
        excess = stand(m, s, plus[other], minus[other], barrier[other])
        if excess < lowest:
            side, lowest = other, excess
    if m.lure.shape[0] == 0:
        return split_side(m, s, plus[side], minus[side], barrier[side], doubt, ONE_PART) == FELL
    row = np.int64(plus[side] != 0) if m.n_groups == 1 else plus[side] * m.n_groups + minus[side]
    for k in range(s.free[s.at.size]):
        f = s.free[k]
        s.point[f] = min(max(m.lure[row, f], s.low[0, f]), s.high[0, f])
    for k in range(s.team[m.entry.size]):
        s.least[s.team[k]] = 0
    there, _ = try_point(m, s, plus[side], minus[side])
    return bool(lowest + there < -doubt)


@bare
def _bound(m: Any, s: Any, plus: Any, minus: Any, barrier: Any) -> None:
    """Bound every side by least leaves, against its barrier."""
    low, high = s.low[0], s.high[0]
    for side in range(plus.size):
        s.bound[side] = stand(m, s, plus[side], minus[side], barrier[side])
    for k in range(s.team[m.entry.size]):
        tree, loss, is_known = s.team[k], 0, False
        if m.ends.size == 0:
            _bound_all(m, s, tree, plus, minus)
            continue
        for side in range(plus.size):
            column = choose_end(m, tree, plus[side], minus[side])
            if column < 0:
                continue
            if not is_known:
                least, _ = find_leaf(m, s, tree, column, low, high)
                loss = least - m.ends[(s.here[tree] >> ONE) + np.uint64(column)]
            # A tree of the class itself counts alike for all sides.
            is_known = m.n_groups > 1
            s.bound[side] += loss


@bare
def _bound_all(m: Any, s: Any, tree: int, plus: Any, minus: Any) -> None:
    """Add what a tree loses at most to the bound of every side, where leaves pull many scores."""
    mins, stack, here = s.mins, s.stack, s.here[tree]
    for side in range(plus.size):
        mins[side] = FAR
    stack[0], top = s.fork[tree], np.int64(1)
    while top > 0:
        place, top = next_leaf(m.walk, stack, top, s.low[0], s.high[0])
        for side in range(plus.size):
            mins[side] = min(mins[side], weigh(m.units[place >> TWO], plus[side], minus[side]))
    for side in range(plus.size):
        s.bound[side] += mins[side] - weigh(m.units[here >> TWO], plus[side], minus[side])
