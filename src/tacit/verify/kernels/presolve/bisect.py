"""Compiled: one objective of a box, decided by cutting the box where trees disagree.

A branch and bound on plain bounds: the least leaf of every tree in a part adds up to a bound; where
that does not suffice, trees take their least leaf, one after another, while it is still possible,
and the point where that leads is tried. The tree that missed most tells where to cut.
"""

import numpy as np

from tacit.jit import bare
from tacit.verify.kernels.presolve.scores import weigh
from tacit.verify.kernels.presolve.workspace import LEVELS, Model, Workspace
from tacit.verify.kernels.tables import END, ONE, THREE, TWO, Ints, Outcome, Places, Words

FAR = 1 << 61
"""Beyond every sum."""


@bare
def bisect_objective(
    m: Model, s: Workspace, plus: int, minus: int, threshold: int, doubt: int, most: int | np.int64
) -> Outcome:
    """Decide an objective by cutting its box, into so many parts at most."""
    excess = excess_at_center(m, s, plus, minus, threshold)
    _copy(m.asked, s.low[0], s.low[1])
    _copy(m.asked, s.high[0], s.high[1])
    top, parts = np.int64(1), 0
    while top > 0:
        parts += 1
        if parts > most:
            return Outcome.UNDECIDED
        low, high = s.low[top], s.high[top]
        gap = excess + _find_least(m, s, plus, minus, low, high)
        if gap >= 0:
            top -= 1
            continue
        _attack_greedily(m, s, low, high)
        there, worst = try_point(m, s, plus, minus)
        if excess + there < -doubt:
            return Outcome.COUNTEREXAMPLE
        if worst < 0 or top + 1 == LEVELS:
            return Outcome.UNDECIDED
        _cut(m, s, worst, top)
        top += 1
    return Outcome.ROBUST


@bare
def _copy(asked: Ints, intervals: Ints, to: Ints) -> None:
    for f in asked:
        to[f] = intervals[f]


@bare
def _find_least(m: Model, s: Workspace, plus: int, minus: int, low: Ints, high: Ints) -> int:
    """Find the least leaf of every undecided tree in a box; return what all lose in sum."""
    total = 0
    for k in range(s.undecided[m.entry.size]):
        tree = s.undecided[k]
        column = -1 if m.ends.size == 0 else choose_end(m, tree, plus, minus)
        if column >= 0:
            least, leaf = find_leaf(m, s, tree, column, low, high)
        elif m.ends.size == 0:
            least, leaf = _least_of_all(m, s, tree, plus, minus, low, high)
        else:
            least, leaf = 0, s.center_leaf[tree]
        s.least[tree], s.leaf[tree] = least, leaf
        s.loss[tree] = least - weigh(m.fixed[s.center_leaf[tree] >> TWO], plus, minus)
        total += s.loss[tree]
    return total


@bare
def choose_end(m: Model, tree: int, plus: int, minus: int) -> int:
    """Say which end of a tree counts for an objective: the first, the second, or -1 for neither."""
    if m.n_groups == 1:
        return 0 if plus == 0 else 1
    if m.group[tree] == plus:
        return 0
    return 1 if m.group[tree] == minus else -1


@bare
def find_leaf(
    m: Model, s: Workspace, tree: int, column: int, low: Ints, high: Ints
) -> tuple[int, np.uint64]:
    """Find the least leaf of a tree in a box, where every node knows the least one below it."""
    walk, ends, stack, to = m.walk, m.ends, s.stack, np.uint64(column)
    stack[0], top, least, leaf = s.fork[tree], np.int64(1), FAR, s.fork[tree]
    while top > 0:
        top -= 1
        node = stack[top]
        while ends[(node >> ONE) + to] < least:
            f, rank = np.uint64(walk[node]), walk[node + ONE]
            if rank == END:
                least, leaf = ends[(node >> ONE) + to], node
            elif high[f] <= rank:
                node = np.uint64(walk[node + TWO])
            elif low[f] > rank:
                node = np.uint64(walk[node + THREE])
            else:
                one, other = np.uint64(walk[node + TWO]), np.uint64(walk[node + THREE])
                if ends[(one >> ONE) + to] > ends[(other >> ONE) + to]:
                    one, other = other, one
                # The one that promises less waits.
                stack[top], node = other, one
                top += 1
    return least, leaf


@bare
def _least_of_all(
    m: Model, s: Workspace, tree: int, plus: int, minus: int, low: Ints, high: Ints
) -> tuple[int, np.uint64]:
    """Find the least leaf of a tree in a box, where leaves pull many scores."""
    s.stack[0], top = s.fork[tree], np.int64(1)
    least, leaf = FAR, s.fork[tree]
    while top > 0:
        place, top = next_leaf(m.walk, s.stack, top, low, high)
        weight = weigh(m.fixed[place >> TWO], plus, minus)
        if weight < least:
            least, leaf = weight, place
    return least, leaf


@bare
def next_leaf(
    walk: Words, stack: Places, top: np.int64, low: Ints, high: Ints
) -> tuple[np.uint64, np.int64]:
    """Go to the next leaf that a box can reach below the places of a stack."""
    top -= 1
    node = stack[top]
    while walk[node + ONE] != END:
        f, rank = np.uint64(walk[node]), walk[node + ONE]
        goes_right = low[f] > rank
        # Written in any case and counted only if the box goes both ways: no branch to mistake.
        stack[top] = np.uint64(walk[node + THREE])
        top += (high[f] > rank) & (not goes_right)
        node = np.uint64(walk[node + TWO + np.uint64(goes_right)])
    return node, top


@bare
def _attack_greedily(m: Model, s: Workspace, low: Ints, high: Ints) -> None:
    """Narrow a box to the least leaves of trees, one after another, while they fit."""
    near_low, near_high = s.near_low, s.near_high
    _copy(m.asked, low, near_low)
    _copy(m.asked, high, near_high)
    for k in range(s.undecided[m.entry.size]):
        tree = s.undecided[k]
        if s.loss[tree] <= 0 and _fits(m.rise, s.leaf[tree], near_low, near_high):
            _narrow(m.rise, s.leaf[tree], near_low, near_high)
    for k in range(s.free[s.at.size]):
        f = s.free[k]
        s.point[f] = min(max(s.at[f], near_low[f]), near_high[f])


@bare
def _fits(rise: Words, node: np.uint64, low: Ints, high: Ints) -> bool:
    """Say whether intervals leave a way to a leaf."""
    while rise[node] != END:
        f = np.uint64(rise[node + ONE])
        if (low[f] > rise[node + THREE]) | (high[f] < rise[node + TWO]):
            return False
        node = np.uint64(rise[node])
    return True


@bare
def _narrow(rise: Words, node: np.uint64, low: Ints, high: Ints) -> None:
    """Narrow intervals to what reaches a leaf."""
    while rise[node] != END:
        f = np.uint64(rise[node + ONE])
        low[f], high[f] = max(low[f], rise[node + TWO]), min(high[f], rise[node + THREE])
        node = np.uint64(rise[node])


@bare
def try_point(m: Model, s: Workspace, plus: int, minus: int) -> tuple[int, int]:
    """Sum what changes at the point against the center; name the tree that missed most, or -1."""
    walk, point, total, most, worst = m.walk, s.point, 0, 0, -1
    for k in range(s.undecided[m.entry.size]):
        tree = s.undecided[k]
        node = s.fork[tree]
        while walk[node + ONE] != END:
            goes_right = np.uint64(point[np.uint64(walk[node])] > walk[node + ONE])
            node = np.uint64(walk[node + TWO + goes_right])
        weight = weigh(m.fixed[node >> TWO], plus, minus)
        total += weight - weigh(m.fixed[s.center_leaf[tree] >> TWO], plus, minus)
        if weight - s.least[tree] > most:
            most, worst = weight - s.least[tree], tree
    return total, worst


@bare
def _cut(m: Model, s: Workspace, tree: int, top: np.int64) -> None:
    """Cut a box where the point leaves the way to a tree's least leaf; that part comes next."""
    rise, node = m.rise, s.leaf[tree]
    feature, rank, is_above = np.uint64(0), np.int64(0), False
    while rise[node] != END:
        f = np.uint64(rise[node + ONE])
        first, last = np.int64(rise[node + TWO]), np.int64(rise[node + THREE])
        # The question nearest to the root comes last, and cuts most.
        if s.point[f] < first:
            feature, rank, is_above = f, first - 1, True
        elif s.point[f] > last:
            feature, rank, is_above = f, last, False
        node = np.uint64(rise[node])
    _copy(m.asked, s.low[top], s.low[top + 1])
    _copy(m.asked, s.high[top], s.high[top + 1])
    without, within = top, top + 1
    if is_above:
        s.high[without, feature], s.low[within, feature] = rank, rank + 1
    else:
        s.low[without, feature], s.high[within, feature] = rank + 1, rank


@bare
def excess_at_center(m: Model, s: Workspace, plus: int, minus: int, threshold: int) -> int:
    """Return by how much the sum at the center exceeds a threshold."""
    total = -threshold
    if plus >= 0:
        total += s.sums[plus] + m.base[plus]
    if minus >= 0:
        total -= s.sums[minus] + m.base[minus]
    return total
