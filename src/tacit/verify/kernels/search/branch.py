"""Compiled: branch and bound with the bound of `mplp`, for what presolve leaves open.

Nodes are cheap: one or two sweeps of messages, which go on from those of the node above. The
feature to split is the one whose earlier splits raised the bound most on both branches
(pseudo-costs); its ranks are bisected.
"""

from typing import NamedTuple, TypeVar

import numpy as np

from tacit.jit import bare, compiled
from tacit.verify.kernels.attack.descent import descend, evaluate_point
from tacit.verify.kernels.layout.reach import Reach, make_segments
from tacit.verify.kernels.presolve.scores import add_leaves, judge
from tacit.verify.kernels.search.mplp import GONE, Mplp, make_mplp, restore, save, tighten
from tacit.verify.kernels.search.problem import Problem, whole_box
from tacit.verify.kernels.tables import Bools, Floats, Ints, Longs, Outcome, Rule, Trees

DESCENT_EVERY, DESCENT_WIDE = 4, 12
"""Nodes between two attempts to improve a point feature by feature; where that costs more."""
SLIGHT = 0.001
"""The part of the gap that a split gains at least, for the choice of splits."""
EXPECTED = 0.02
"""The part of the gap that a split is expected to gain, per tree, before one was tried."""
ORIGIN = 3
"""Words before the messages of an open box: split feature, branch, bound before the split."""
MANY_RANKS = 12
"""Ranks per feature, on average, from which on coordinate descent costs more than it brings."""

Ends = tuple[Ints, Ints]
Table = TypeVar("Table", Ints, Longs)


class State(NamedTuple):
    """What the search carries from node to node."""

    mplp: Mplp
    pseudo_costs: Floats  # (features, 4): sum and count of gains below and above its splits
    reached: Ints  # (trees): the leaf of every tree at the last point
    scores: Floats
    is_tied: Bools  # (1): a point was too close to a tie to be judged


class Open(NamedTuple):
    """The boxes that are open, as a stack."""

    box: Ints  # (rows, 2 × features + trees): first ranks, last ranks, leaves alive
    origin: Longs  # (rows, ORIGIN + segments): the split it comes from, and messages to go on from


@compiled
def make_state(r: Reach, n_scores: int) -> State:
    """Start with no experience and no messages."""
    return State(
        mplp=make_mplp(r, make_segments(r)),
        pseudo_costs=np.zeros((r.feature_id.size, 4)),
        reached=r.fixed_leaf.copy(),
        scores=np.zeros(n_scores, np.float64),
        is_tied=np.zeros(1, np.bool_),
    )


@compiled
def open_whole(r: Reach, a: Mplp) -> Open:
    """Open the whole box, which comes from no split."""
    row = whole_box(r)
    box = np.empty((16, row.size + a.n_alive.size), np.int32)
    origin = np.full((16, ORIGIN + a.min_marginal.size), -1, np.int64)
    box[0, : row.size], box[0, row.size :] = row, a.n_alive
    save(a, origin[0, ORIGIN:])
    return Open(box=box, origin=origin)


@compiled
def branch_and_bound(
    trees: Trees,
    rule: Rule,
    r: Reach,
    task: Problem,
    state: State,
    stack: Open,
    top: int,
    most: int,
) -> tuple[Outcome, Open, int, int]:
    """Explore open boxes, `most` of them at most.

    Returns:
        the outcome, the stack, how many boxes are open, and how many were explored. The ranks of a
        counterexample are in row 0.
    """
    explored, a, ends, point = 0, state.mplp, _make_ends(r), _make_ends(r)
    every = DESCENT_WIDE if _is_wide(r) else DESCENT_EVERY
    while top > 0:
        if explored == most:
            return Outcome.UNDECIDED, stack, top, explored
        explored += 1
        top -= 1
        bound = _enter(r, task, state, stack, top, ends)
        if bound == task.threshold:
            continue
        is_due = explored % every == DESCENT_EVERY % every
        if _aim(r, task, state, ends, point, is_due) < task.threshold:
            add_leaves(trees, rule, state.reached, state.scores)
            outcome = judge(rule, state.scores, task.label, task.low, task.high)
            if outcome == Outcome.COUNTEREXAMPLE:
                stack = _push(stack, 0, point, a)
                return outcome, stack, 1, explored
            if outcome == Outcome.NEAR_TIE:
                state.is_tied[0] = True
        stack, top = _bisect(r, task, state, stack, top, ends, bound)
    return (Outcome.NEAR_TIE if state.is_tied[0] else Outcome.ROBUST), stack, 0, explored


@compiled
def minimise(
    r: Reach, task: Problem, state: State, stack: Open, top: int, floor: int, best: Ints, most: int
) -> tuple[Open, int, int, int]:
    """Look for sums below the threshold, which each of them lowers, in `most` boxes at most.

    Args:
        r: the reachable leaves.
        task: where the threshold stands at first.
        state: what was learned so far.
        stack: the open boxes.
        top: how many are open.
        floor: a sum below it ends the search.
        best: becomes the ranks, first and last, that reach the last sum found.
        most: how many boxes to look at.

    Returns:
        the stack, its height, the threshold, and how many boxes were explored. No sum outside of
        the boxes on the stack is below the threshold.
    """
    explored, ends, point = 0, _make_ends(r), _make_ends(r)
    n_features = r.feature_id.size
    every = DESCENT_WIDE if _is_wide(r) else DESCENT_EVERY
    while top > 0 and explored < most:
        explored += 1
        top -= 1
        bound = _enter(r, task, state, stack, top, ends)
        if bound == task.threshold:
            continue
        is_due = explored % every == DESCENT_EVERY % every
        total = _aim(r, task, state, ends, point, is_due)
        if total < task.threshold:
            task = with_threshold(task, total)
            best[:n_features], best[n_features:] = point
        if bound < task.threshold:
            stack, top = _bisect(r, task, state, stack, top, ends, bound)
        if task.threshold < floor:
            break
    return stack, top, task.threshold, explored


@compiled
def with_threshold(task: Problem, threshold: int) -> Problem:
    """Ask the same against another threshold."""
    return Problem(
        value=task.value,
        base=task.base,
        threshold=threshold,
        label=task.label,
        low=task.low,
        high=task.high,
    )


@bare
def choose_split(
    r: Reach, a: Mplp, pseudo_costs: Floats, low: Ints, high: Ints, gap: float
) -> tuple[int, int]:
    """Pick the feature that promises most on both branches, and the middle of its ranks; or -1."""
    best, chosen = -1.0, -1
    for f in range(low.size):
        if low[f] == high[f]:
            continue
        score = _score_split(r, pseudo_costs, f, gap)
        if score > best and _is_live(r, a, f, low[f], high[f]):
            best, chosen = score, f
    if chosen < 0:
        return -1, -1
    return chosen, (low[chosen] + high[chosen] - 1) // 2


@bare
def _score_split(r: Reach, pseudo_costs: Floats, f: int, gap: float) -> float:
    """Multiply what a split of a feature promises on either branch."""
    trees = r.slots_of_start[f + 1] - r.slots_of_start[f]
    below, above = EXPECTED * gap * trees, EXPECTED * gap * trees
    if pseudo_costs[f, 1] > 0:
        below = pseudo_costs[f, 0] / pseudo_costs[f, 1]
    if pseudo_costs[f, 3] > 0:
        above = pseudo_costs[f, 2] / pseudo_costs[f, 3]
    score: float = max(below, SLIGHT * gap) * max(above, SLIGHT * gap)
    return score


@bare
def _is_live(r: Reach, a: Mplp, f: int, low: int, high: int) -> bool:
    """Say whether some leaf that is open needs a part of a feature's ranks."""
    for i in range(r.slots_of_start[f], r.slots_of_start[f + 1]):
        s = r.slots_of[i]
        t = r.slot_tree[s]
        for at in range(r.leaf_start[t], r.leaf_start[t] + a.n_alive[t]):
            leaf = a.alive[at]
            pair = a.cut.pair_start[s] + leaf - r.leaf_start[t]
            first, last = a.cut.first[a.cut.pair_first[pair]], a.cut.last[a.cut.pair_last[pair]]
            if a.cost[leaf] != GONE and (first > low or last < high):
                return True
    return False


@bare
def _is_wide(r: Reach) -> bool:
    return bool(r.rank_low.size > MANY_RANKS * r.feature_id.size)


@compiled
def _make_ends(r: Reach) -> Ends:
    n_features = r.feature_id.size
    return np.empty(n_features, np.int32), np.empty(n_features, np.int32)


@bare
def _enter(r: Reach, task: Problem, state: State, stack: Open, top: int, ends: Ends) -> int:
    """Go to a box of the stack and tighten its bound; return it, the threshold at most."""
    (low, high), a, origin = ends, state.mplp, stack.origin
    n_features = low.size
    for f in range(n_features):
        low[f], high[f] = stack.box[top, f], stack.box[top, n_features + f]
    for t in range(a.n_alive.size):
        a.n_alive[t] = stack.box[top, 2 * n_features + t]
    restore(r, a, origin[top, ORIGIN:])
    bound = min(tighten(r, task, a, low, high), task.threshold)
    if origin[top, 0] >= 0:
        f, branch = origin[top, 0], 2 * origin[top, 1]
        state.pseudo_costs[f, branch] += bound - origin[top, 2]
        state.pseudo_costs[f, branch + 1] += 1
    return bound


@compiled
def _aim(r: Reach, task: Problem, state: State, ends: Ends, point: Ends, is_due: bool) -> int:
    """Go to the best ranks of a box; return the sum there. The point becomes what reaches it."""
    (low, high), (first, last), pick = ends, point, state.mplp.pick
    for f in range(low.size):
        pick[f] = min(max(pick[f], low[f]), high[f])
        first[f], last[f] = low[f], high[f]
    total = evaluate_point(r, task, state.reached, pick, first, last)
    if total >= task.threshold and is_due:
        for f in range(low.size):
            first[f] = pick[f]
        total = descend(r, task, state.reached, first, last)
    return total


@compiled
def _bisect(
    r: Reach, task: Problem, state: State, stack: Open, top: int, ends: Ends, bound: int
) -> tuple[Open, int]:
    """Put both branches of a box on the stack, if it can be split; return the stack."""
    low, high = ends
    a, gap = state.mplp, float(task.threshold - bound)
    f, place = choose_split(r, a, state.pseudo_costs, low, high, gap)
    if f < 0:
        return stack, top
    # The branch of the best rank goes on top.
    is_below = a.pick[f] <= place
    for branch in (int(is_below), int(not is_below)):
        stack = _push(stack, top, ends, a)
        if branch == 1:
            stack.box[top, f] = place + 1
        else:
            stack.box[top, low.size + f] = place
        stack.origin[top, 0], stack.origin[top, 1], stack.origin[top, 2] = f, branch, bound
        top += 1
    return stack, top


@compiled
def _push(stack: Open, top: int, ends: Ends, a: Mplp) -> Open:
    """Write a box on top of the stack, which may have to grow, and messages to go on from."""
    low, high = ends
    if top == stack.box.shape[0]:
        stack = Open(box=grow(stack.box), origin=grow(stack.origin))
    for f in range(low.size):
        stack.box[top, f], stack.box[top, low.size + f] = low[f], high[f]
    for t in range(a.n_alive.size):
        stack.box[top, 2 * low.size + t] = a.n_alive[t]
    save(a, stack.origin[top, ORIGIN:])
    return stack


@compiled
def grow(table: Table) -> Table:
    """Double the rows of a table of any type."""
    taller: Table = np.empty((2 * table.shape[0], table.shape[1]), table.dtype)
    taller[: table.shape[0]] = table
    return taller
