"""Compiled: the small search that answers most questions, before anything larger is compiled.

One walk tells which trees a box leaves undecided; the point of the marginal minimisers is tried;
the least leaves bound every objective, and what they leave open is bisected. It works in fixed
point alone: a proof stands, and a point counts only if no rounding could bring it back. What it
cannot decide in a few parts is left to branch and bound.
"""

import numpy as np

from tacit.jit import bare, compiled
from tacit.verify.kernels.clock import PROCESSOR, make_hand, read_clock
from tacit.verify.kernels.layout.rounding import find_interval, move_one, round_key
from tacit.verify.kernels.presolve.bisect import (
    FAR,
    bisect_objective,
    choose_end,
    excess_at_center,
    find_leaf,
    next_leaf,
    try_point,
)
from tacit.verify.kernels.presolve.scores import weigh
from tacit.verify.kernels.presolve.workspace import (
    UNTOLD,
    Answers,
    Boxes,
    Cases,
    Model,
    Workspace,
)
from tacit.verify.kernels.tables import (
    END,
    ONE,
    TWO,
    Floats,
    Ints,
    Longs,
    Objectives,
    Outcome,
    Words,
)

MOST_PARTS, ONE_PART = 32, np.int64(1)
"""Parts of a box that are looked at, one after another. A plain 1 would be a type of its own, and
what is called with it be compiled twice; so are other numbers given a type where they are
counted."""


@compiled
def answer(
    m: Model, s: Workspace, cases: Cases, boxes: Boxes, most: int, out: Answers, seconds: float
) -> tuple[int, int, int]:
    """Decide boxes one after another, until the seconds are over.

    Returns:
        how many were begun, how many of them are not decided, and how many have a
        counterexample.
    """
    hand = make_hand()
    then = read_clock(PROCESSOR, hand)
    end, left, found, count = then + seconds, 0, 0, 0
    for i in range(boxes.center.shape[0]):
        outcome = _decide(m, s, cases, boxes, i, most, out.case)
        out.outcome[i] = outcome
        left += outcome == Outcome.UNDECIDED
        if outcome == Outcome.COUNTEREXAMPLE:
            found += 1
            _place(m, s, boxes, i, out.x)
        now = read_clock(PROCESSOR, hand)
        out.seconds[i], then, count = now - then, now, count + 1
        if now > end:
            break
    return count, left, found


@bare
def _decide(
    m: Model, s: Workspace, cases: Cases, boxes: Boxes, i: int, most: int, case: Longs
) -> Outcome:
    """Decide one box; the point of a counterexample is kept."""
    case[i] = boxes.case[i]
    if not _locate(m, s, boxes, i):
        return Outcome.UNDECIDED
    walk_trees(m, s)
    if case[i] == UNTOLD:
        case[i] = _tell(m, s, cases)
    if case[i] == UNTOLD:
        return Outcome.UNDECIDED
    at = case[i]
    return decide_objectives(m, s, cases.plus[at], cases.minus[at], cases.threshold[at], most)


@bare
def _tell(m: Model, s: Workspace, cases: Cases) -> int:
    """Name the class that is beyond every threshold at the center, or UNTOLD."""
    for case in range(cases.plus.shape[0]):
        is_kept = True
        for objective in range(cases.plus.shape[1]):
            plus, minus = cases.plus[case, objective], cases.minus[case, objective]
            if excess_at_center(m, s, plus, minus, cases.threshold[case, objective]) < 0:
                is_kept = False
                break
        if is_kept:
            return case
    return UNTOLD


@compiled
def decide_box(
    m: Model, s: Workspace, objectives: Objectives, low: Ints, high: Ints, most: int
) -> Outcome:
    """Decide a box of intervals; a counterexample narrows it to a point."""
    count = 0
    for f in range(low.size):
        s.at[f], s.point[f], s.low[0, f], s.high[0, f] = low[f], low[f], low[f], high[f]
        s.free[count] = f
        count += low[f] < high[f]
    s.free[low.size] = count
    walk_trees(m, s)
    outcome = decide_objectives(m, s, objectives.plus, objectives.minus, objectives.threshold, most)
    if outcome == Outcome.COUNTEREXAMPLE:
        for f in m.asked:
            low[f], high[f] = s.point[f], s.point[f]
    return outcome


@bare
def walk_trees(m: Model, s: Workspace) -> None:
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
        s.center_leaf[min(first + 3, last)], s.fork[min(first + 3, last)] = d, fork_d
        s.center_leaf[min(first + 2, last)], s.fork[min(first + 2, last)] = c, fork_c
        s.center_leaf[min(first + 1, last)], s.fork[min(first + 1, last)] = b, fork_b
        s.center_leaf[first], s.fork[first] = a, fork_a
    count = 0
    for score in range(s.sums.size):
        s.sums[score] = 0
    for tree in range(entry.size):
        s.undecided[count] = tree
        count += s.fork[tree] != none
        for score in range(s.sums.size):
            s.sums[score] += m.fixed[s.center_leaf[tree] >> TWO, score]
    s.undecided[entry.size] = count


@bare
def _step(
    walk: Words, at: Ints, low: Ints, high: Ints, node: np.uint64, fork: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """Go from a node to its child; keep the first node at which the box goes two ways."""
    f, rank = np.uint64(walk[node]), walk[node + ONE]
    is_fork = (fork == END) & (low[f] <= rank) & (high[f] > rank)
    to = np.uint64(walk[node + TWO + np.uint64(at[f] > rank)])
    return to, (node if is_fork else fork)


@bare
def decide_objectives(
    m: Model, s: Workspace, plus: Longs, minus: Longs, threshold: Longs, most: int
) -> Outcome:
    """Decide a box after its walk; the point of a counterexample is kept."""
    doubt = 2 * m.slack + 2 if m.base.size == 1 else 2 * threshold[0] + 4
    # Where most trees are undecided, a bound takes longer than an attack that is likely to do.
    is_wide = 2 * s.undecided[m.entry.size] > m.entry.size
    if is_wide and _probe(m, s, plus, minus, threshold, doubt):
        return Outcome.COUNTEREXAMPLE
    _bound(m, s, plus, minus, threshold)
    worst = Outcome.ROBUST
    for turn in range(plus.size):
        objective = _lowest(s.bound)
        if s.bound[objective] >= 0:
            break
        has_minimiser = m.minimiser.shape[0] > 0
        if (
            turn == 0
            and has_minimiser
            and not is_wide
            and _probe(m, s, plus, minus, threshold, doubt)
        ):
            return Outcome.COUNTEREXAMPLE
        s.bound[objective] = FAR
        told = bisect_objective(
            m, s, plus[objective], minus[objective], threshold[objective], doubt, most
        )
        if told == Outcome.COUNTEREXAMPLE:
            return Outcome.COUNTEREXAMPLE
        if told == Outcome.UNDECIDED:
            worst = Outcome.UNDECIDED
    return worst


@bare
def _lowest(bound: Longs) -> int:
    """Name the most endangered objective."""
    lowest = 0
    for objective in range(1, bound.size):
        if bound[objective] < bound[lowest]:
            lowest = objective
    return lowest


@bare
def _probe(m: Model, s: Workspace, plus: Longs, minus: Longs, threshold: Longs, doubt: int) -> bool:
    """Attack the nearest rival, where the ensemble leads on average; or else greedily."""
    objective, lowest = 0, FAR
    for other in range(plus.size):
        excess = excess_at_center(m, s, plus[other], minus[other], threshold[other])
        if excess < lowest:
            objective, lowest = other, excess
    if m.minimiser.shape[0] == 0:
        return (
            bisect_objective(
                m, s, plus[objective], minus[objective], threshold[objective], doubt, ONE_PART
            )
            == Outcome.COUNTEREXAMPLE
        )
    row = (
        np.int64(plus[objective] != 0)
        if m.n_groups == 1
        else plus[objective] * m.n_groups + minus[objective]
    )
    for k in range(s.free[s.at.size]):
        f = s.free[k]
        s.point[f] = min(max(m.minimiser[row, f], s.low[0, f]), s.high[0, f])
    for k in range(s.undecided[m.entry.size]):
        s.least[s.undecided[k]] = 0
    there, _ = try_point(m, s, plus[objective], minus[objective])
    return bool(lowest + there < -doubt)


@bare
def _bound(m: Model, s: Workspace, plus: Longs, minus: Longs, threshold: Longs) -> None:
    """Bound every objective by least leaves, against its threshold."""
    low, high = s.low[0], s.high[0]
    for objective in range(plus.size):
        s.bound[objective] = excess_at_center(
            m, s, plus[objective], minus[objective], threshold[objective]
        )
    for k in range(s.undecided[m.entry.size]):
        tree, loss, is_known = s.undecided[k], 0, False
        if m.ends.size == 0:
            _bound_all(m, s, tree, plus, minus)
            continue
        for objective in range(plus.size):
            column = choose_end(m, tree, plus[objective], minus[objective])
            if column < 0:
                continue
            if not is_known:
                least, _ = find_leaf(m, s, tree, column, low, high)
                loss = least - m.ends[(s.center_leaf[tree] >> ONE) + np.uint64(column)]
            # A tree of the class itself counts alike for all objectives.
            is_known = m.n_groups > 1
            s.bound[objective] += loss


@bare
def _bound_all(m: Model, s: Workspace, tree: int, plus: Longs, minus: Longs) -> None:
    """Add what a tree loses at most to every bound, where leaves add to many scores."""
    mins, stack, here = s.mins, s.stack, s.center_leaf[tree]
    for objective in range(plus.size):
        mins[objective] = FAR
    stack[0], top = s.fork[tree], np.int64(1)
    while top > 0:
        place, top = next_leaf(m.walk, stack, top, s.low[0], s.high[0])
        for objective in range(plus.size):
            mins[objective] = min(
                mins[objective], weigh(m.fixed[place >> TWO], plus[objective], minus[objective])
            )
    for objective in range(plus.size):
        s.bound[objective] += mins[objective] - weigh(
            m.fixed[here >> TWO], plus[objective], minus[objective]
        )


@bare
def _locate(m: Model, s: Workspace, boxes: Boxes, i: int) -> bool:
    """Find the intervals of a box and its center; say whether the center is a number inside."""
    count = 0
    for f in m.asked:
        low, center, high = boxes.low[i, f], boxes.center[i, f], boxes.high[i, f]
        if not low <= center <= high:
            return False
        first, last = m.cut_start[f], m.cut_start[f + 1]
        at = interval = find_interval(m.cuts, first, last, round_key(low, boxes.is_single))
        key = round_key(center, boxes.is_single)
        while first + at < last and m.cuts[first + at] < key:
            at += 1
        end, key = at, round_key(high, boxes.is_single)
        while first + end < last and m.cuts[first + end] < key:
            end += 1
        s.low[0, f], s.at[f], s.high[0, f], s.point[f] = interval, at, end, at
        s.free[count] = f
        count += interval < end
    s.free[s.at.size] = count
    return True


@bare
def _place(m: Model, s: Workspace, boxes: Boxes, i: int, x: Floats) -> None:
    """Write the counterexample: the center, moved as little as possible to the point."""
    for f in range(s.at.size):
        x[i, f] = min(max(boxes.center[i, f], boxes.low[i, f]), boxes.high[i, f])
    for k in range(s.free[s.at.size]):
        f = s.free[k]
        to = s.point[f]
        if to == s.at[f]:
            continue
        key, cuts = round_key(x[i, f], boxes.is_single), m.cuts[m.cut_start[f] : m.cut_start[f + 1]]
        moved = move_one(cuts, x[i, f], key, to, to, boxes.is_single, boxes.is_whole[f])
        x[i, f] = min(max(moved, boxes.low[i, f]), boxes.high[i, f])
