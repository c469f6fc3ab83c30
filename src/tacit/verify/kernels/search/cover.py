"""Compiled: a proof cover: boxes that cover what is proved, each with the messages that close it.

Freeing one more feature makes the proved box a little larger. Nearly always every box of the cover,
stretched along, is closed at once by messages that go on from those that closed it before. Only
boxes that stay open are searched, and their parts take their place in the cover.
"""

from typing import NamedTuple

import numpy as np

from tacit.jit import bare, compiled
from tacit.verify.kernels.attack.diving import Instance, dive, try_point
from tacit.verify.kernels.layout.reach import Reach, Segments
from tacit.verify.kernels.search.branch import choose_split, grow
from tacit.verify.kernels.search.mplp import Mplp, price, restore, revive, tighten
from tacit.verify.kernels.tables import Ints, Longs, Outcome, worse

TABU_EVERY, DIVE_EVERY = 4, 16
"""Nodes between two tabu searches, and between two dives, but for the first."""

FEW_ROWS = 4
"""Rows that a table has room for at first."""


class Cover(NamedTuple):
    """Boxes of ranks, with messages, and the split that each comes from."""

    low: Ints  # (rows, features)
    high: Ints
    min_marginal: Longs  # (rows, segments): what messages follow from
    inner_low: Ints  # (rows, features): what is left of the box in a search
    inner_high: Ints
    origin: Longs  # (rows, 3): feature, branch, bound before the split; -1 for none


@compiled
def make_cover(count: int, n_features: int, n_segments: int) -> Cover:
    """Make room for rows."""
    return Cover(
        low=np.zeros((count, n_features), np.int32),
        high=np.zeros((count, n_features), np.int32),
        min_marginal=np.zeros((count, n_segments), np.int64),
        inner_low=np.zeros((count, n_features), np.int32),
        inner_high=np.zeros((count, n_features), np.int32),
        origin=np.full((count, 3), -1, np.int64),
    )


@compiled
def cover_whole(r: Reach, n_segments: int) -> Cover:
    """Make a cover of one row: the whole box, with no messages."""
    cover = make_cover(FEW_ROWS, r.feature_id.size, n_segments)
    for f in range(r.feature_id.size):
        cover.high[0, f] = r.rank_start[f + 1] - r.rank_start[f] - 1
    return cover


@compiled
def match_segments(
    old: Reach, old_cut: Segments, new: Reach, new_cut: Segments, n_trees: int, n_features: int
) -> Longs:
    """Find, for every segment of a problem, the one of another box that it goes on from, or -1."""
    slot_at = np.full((n_trees, n_features), -1, np.int32)
    for s in range(old.slot_feature.size):
        slot_at[old.tree_id[old.slot_tree[s]], old.feature_id[old.slot_feature[s]]] = s
    source = np.full(new_cut.first.size, -1, np.int64)
    for s in range(new.slot_feature.size):
        g = new.slot_feature[s]
        was = slot_at[new.tree_id[new.slot_tree[s]], new.feature_id[g]]
        if was < 0:
            continue
        start, at = old.rank_start[old.slot_feature[was]], old_cut.start[was]
        for k in range(new_cut.start[s], new_cut.start[s + 1]):
            first = new.rank_low[new.rank_start[g] + new_cut.first[k]]
            while at + 1 < old_cut.start[was + 1] and (
                old.rank_low[start + old_cut.first[at + 1]] <= first
            ):
                at += 1
            source[k] = at
    return source


@bare
def _rank_of(r: Reach, g: int, interval: int) -> int:
    """Find the rank of an interval; those beyond the box count as its last."""
    first, last, rank = r.rank_start[g], r.rank_start[g + 1] - 1, 0
    while first + rank < last and r.rank_high[first + rank] < interval:
        rank += 1
    return rank


@compiled
def transfer(
    old: Reach, new: Reach, source: Longs, cover: Cover, size: int, n_features: int
) -> Cover:
    """Write the cover of one box as a cover of another, usually a larger one.

    Rows that lie at an end of the old box reach to the same end of the new one; so every point of
    the new box is in the row that its nearest point of the old box is in.
    """
    n_new = new.feature_id.size
    here = np.full(n_features, -1, np.int32)
    for g in range(old.feature_id.size):
        here[old.feature_id[g]] = g
    moved = make_cover(size + FEW_ROWS, n_new, source.size)
    for i in range(size):
        for g in range(n_new):
            was = here[new.feature_id[g]]
            moved.high[i, g] = new.rank_start[g + 1] - new.rank_start[g] - 1
            if was < 0:
                continue
            begin, end = old.rank_start[was], old.rank_start[was + 1]
            low, high = cover.low[i, was], cover.high[i, was]
            if low > 0:
                moved.low[i, g] = _rank_of(new, g, old.rank_low[begin + low])
            if begin + high + 1 < end:
                moved.high[i, g] = _rank_of(new, g, old.rank_high[begin + high])
        for k in range(source.size):
            if source[k] >= 0:
                moved.min_marginal[i, k] = cover.min_marginal[i, source[k]]
    return moved


@compiled
def close(
    instance: Instance, cover: Cover, size: int, most: int, intervals: Ints
) -> tuple[Outcome, Cover, int, int]:
    """Close every row of a cover, searching where that is needed.

    Returns:
        the outcome, the table, its size and the nodes visited. All rows are closed only if the
        outcome is ROBUST; `intervals` holds a COUNTEREXAMPLE.
    """
    r, task, a = instance.r, instance.task, instance.state.mplp
    low, high = np.empty_like(cover.low[0]), np.empty_like(cover.low[0])
    stack = make_cover(FEW_ROWS, low.size, a.min_marginal.size)
    is_replaced = np.zeros(size, np.bool_)
    more, visited, worst = size, 0, Outcome.ROBUST
    for i in range(size):
        restore(r, a, cover.min_marginal[i])
        low[:], high[:] = cover.low[i], cover.high[i]
        revive(r, a)
        if price(r, task, a, low, high) >= task.threshold:
            continue
        is_replaced[i] = True
        stack = _write(stack, 0, low, high, cover.min_marginal[i])
        stack.inner_low[0], stack.inner_high[0] = low, high
        stack.origin[0, 0] = -1
        outcome, cover, more, stack, count = _search(
            instance, cover, more, stack, most - visited, intervals
        )
        visited += count
        worst = worse(worst, outcome)
        if outcome in (Outcome.COUNTEREXAMPLE, Outcome.UNDECIDED):
            return outcome, cover, more, visited
    for i in range(size - 1, -1, -1):
        if is_replaced[i]:
            more -= 1
            cover.low[i], cover.high[i] = cover.low[more], cover.high[more]
            cover.min_marginal[i] = cover.min_marginal[more]
    return worst, cover, more, visited


@compiled
def _search(
    instance: Instance, cover: Cover, size: int, stack: Cover, most: int, intervals: Ints
) -> tuple[Outcome, Cover, int, Cover, int]:
    """Search the box in row 0 of the stack; what is closed is added to the cover."""
    r, task, state = instance.r, instance.task, instance.state
    a, costs = state.mplp, state.pseudo_costs
    low, high = np.empty_like(stack.low[0]), np.empty_like(stack.low[0])
    top, visited, worst = 1, 0, Outcome.ROBUST
    while top > 0:
        if visited >= most:
            return Outcome.UNDECIDED, cover, size, stack, visited
        visited += 1
        top -= 1
        low[:], high[:] = stack.inner_low[top], stack.inner_high[top]
        restore(r, a, stack.min_marginal[top])
        revive(r, a)
        bound = min(tighten(r, task, a, low, high), task.threshold)
        f, branch = stack.origin[top, 0], 2 * stack.origin[top, 1]
        if f >= 0:
            costs[f, branch] += bound - stack.origin[top, 2]
            costs[f, branch + 1] += 1
        f, cut = -1, -1
        if bound < task.threshold:
            outcome = _attack(instance, low, high, visited, intervals)
            if outcome == Outcome.COUNTEREXAMPLE:
                return outcome, cover, size, stack, visited
            worst = worse(worst, outcome)
            f, cut = choose_split(r, a, costs, low, high, float(task.threshold - bound))
        if f < 0:
            cover = _write(cover, size, stack.low[top], stack.high[top], a.min_marginal)
            size += 1
            continue
        stack = _split(stack, top, a, low, high, f, cut)
        stack.origin[top, 2] = stack.origin[top + 1, 2] = bound
        top += 2
    return worst, cover, size, stack, visited


@compiled
def _attack(instance: Instance, low: Ints, high: Ints, visited: int, intervals: Ints) -> Outcome:
    """Look for a counterexample from a node."""
    a = instance.state.mplp
    for g in range(low.size):
        a.pick[g] = min(max(a.pick[g], low[g]), high[g])
    outcome = try_point(instance, a.pick, intervals, visited % TABU_EVERY == 1)
    is_due = visited in (1, TABU_EVERY) or visited % DIVE_EVERY == 0
    if outcome == Outcome.COUNTEREXAMPLE or not is_due:
        return outcome
    kept, pick = a.min_marginal.copy(), a.pick.copy()
    second = dive(instance, low.copy(), high.copy(), intervals)
    if second == Outcome.COUNTEREXAMPLE:
        return second
    # Everything is left as it was.
    restore(instance.r, a, kept)
    a.pick[:] = pick
    revive(instance.r, a)
    price(instance.r, instance.task, a, low, high)
    return worse(outcome, second)


@compiled
def _split(stack: Cover, top: int, a: Mplp, low: Ints, high: Ints, f: int, cut: int) -> Cover:
    """Put both branches of the row at `top` in its place, that of the best rank above the other."""
    outer_low, outer_high = stack.low[top].copy(), stack.high[top].copy()
    is_below = a.pick[f] <= cut
    for at in (top, top + 1):
        stack = _write(stack, at, outer_low, outer_high, a.min_marginal)
        stack.inner_low[at], stack.inner_high[at] = low, high
        branch = int(is_below == (at == top))
        stack.origin[at, 0], stack.origin[at, 1] = f, branch
        if branch == 1:
            stack.low[at, f] = stack.inner_low[at, f] = cut + 1
        else:
            stack.high[at, f] = stack.inner_high[at, f] = cut
    return stack


@compiled
def _write(cover: Cover, at: int, low: Ints, high: Ints, min_marginal: Longs) -> Cover:
    """Write a row; the table may have to grow."""
    if at == cover.low.shape[0]:
        cover = Cover(
            low=grow(cover.low),
            high=grow(cover.high),
            min_marginal=grow(cover.min_marginal),
            inner_low=grow(cover.inner_low),
            inner_high=grow(cover.inner_high),
            origin=grow(cover.origin),
        )
    cover.low[at], cover.high[at], cover.min_marginal[at] = low, high, min_marginal
    return cover
