"""Compiled: boxes that cover what is proved, each kept with the messages that close it.

Freeing one more feature makes the proved box a little larger. Nearly always every box of the cover,
stretched along, is closed at once by messages that go on from those that closed it before. Only
boxes that stay open are searched, and their parts take their place in the cover.
"""

from typing import Any, NamedTuple

import numpy as np

from tacit.verify.kernels.attack.diving import plunge, try_point
from tacit.verify.kernels.jit import bare, compiled
from tacit.verify.kernels.presolve.scores import BLURRED, CHANGED, FOUND, PAUSED, PROVED, TIED
from tacit.verify.kernels.search.branch import choose, count_live
from tacit.verify.kernels.search.messages import price, squeeze

WALK_EVERY, PLUNGE_EVERY = 4, 16
"""Nodes between two walks, and between two plunges, but for the first."""

FEW_ROWS = 4
"""Rows that a table has room for at first."""


class Rows(NamedTuple):
    """Boxes of ranks, with messages, and the split that each comes from."""

    low: Any  # (rows, features)
    high: Any
    message: Any  # (rows, messages)
    inner_low: Any  # (rows, features): what is left of the box in a search
    inner_high: Any
    trail: Any  # (rows, 3): feature, side, bound before the split; -1 for none


@compiled
def make_rows(count: int, n_features: int, n_messages: int) -> Any:
    """Make room for rows."""
    return Rows(
        np.zeros((count, n_features), np.int32),
        np.zeros((count, n_features), np.int32),
        np.zeros((count, n_messages), np.int64),
        np.zeros((count, n_features), np.int32),
        np.zeros((count, n_features), np.int32),
        np.full((count, 3), -1, np.int64),
    )


@compiled
def whole(r: Any, n_messages: int) -> Any:
    """Make a cover of one row: the whole box, with no messages."""
    rows = make_rows(FEW_ROWS, r.feature_id.size, n_messages)
    for f in range(r.feature_id.size):
        rows.high[0, f] = r.rank_start[f + 1] - r.rank_start[f] - 1
    return rows


@compiled
def trace(old: Any, new: Any, n_trees: int, n_features: int) -> Any:
    """Find, for every message of a problem, the one of another box that it goes on from, or -1."""
    slot_at = np.full((n_trees, n_features), -1, np.int32)
    start = np.zeros(old.slot_feature.size + 1, np.int64)
    for s in range(old.slot_feature.size):
        g = old.slot_feature[s]
        slot_at[old.tree_id[old.slot_tree[s]], old.feature_id[g]] = s
        start[s + 1] = start[s] + old.rank_start[g + 1] - old.rank_start[g]
    total = 0
    for g in new.slot_feature:
        total += new.rank_start[g + 1] - new.rank_start[g]
    source, at = np.full(total, -1, np.int64), 0
    for s in range(new.slot_feature.size):
        g = new.slot_feature[s]
        from_slot = slot_at[new.tree_id[new.slot_tree[s]], new.feature_id[g]]
        rank = 0
        for place in range(new.rank_start[g], new.rank_start[g + 1]):
            if from_slot >= 0:
                rank = _rank_of(old, old.slot_feature[from_slot], new.rank_low[place], rank)
                source[at] = start[from_slot] + rank
            at += 1
    return source


@bare
def _rank_of(r: Any, g: int, cell: int, rank: int) -> int:
    """Find the rank of a cell, from a lower rank on; cells beyond the box count as its last."""
    first, last = r.rank_start[g], r.rank_start[g + 1] - 1
    while first + rank < last and r.rank_high[first + rank] < cell:
        rank += 1
    return rank


@compiled
def carry(old: Any, new: Any, source: Any, rows: Any, size: int, n_features: int) -> Any:
    """Write the cover of one box as a cover of another, usually a larger one.

    Rows that lie at an end of the old box reach to the same end of the new one; so every point of
    the new box is in the row that its nearest point of the old box is in.
    """
    n_new = new.feature_id.size
    here = np.full(n_features, -1, np.int32)
    for g in range(old.feature_id.size):
        here[old.feature_id[g]] = g
    carried = make_rows(size + FEW_ROWS, n_new, source.size)
    for i in range(size):
        for g in range(n_new):
            was = here[new.feature_id[g]]
            carried.high[i, g] = new.rank_start[g + 1] - new.rank_start[g] - 1
            if was < 0:
                continue
            begin, end = old.rank_start[was], old.rank_start[was + 1]
            low, high = rows.low[i, was], rows.high[i, was]
            if low > 0:
                carried.low[i, g] = _rank_of(new, g, old.rank_low[begin + low], 0)
            if begin + high + 1 < end:
                carried.high[i, g] = _rank_of(new, g, old.rank_high[begin + high], 0)
        for k in range(source.size):
            if source[k] >= 0:
                carried.message[i, k] = rows.message[i, source[k]]
        _balance(new, carried.message[i])
    return carried


@compiled
def _balance(r: Any, message: Any) -> None:
    """Let no rank's messages add up to less than nothing: some of its trees may be constant now."""
    start = np.zeros(r.slot_feature.size + 1, np.int64)
    for s in range(r.slot_feature.size):
        g = r.slot_feature[s]
        start[s + 1] = start[s] + r.rank_start[g + 1] - r.rank_start[g]
    for g in range(r.feature_id.size):
        slots = r.slots_of[r.slots_of_start[g] : r.slots_of_start[g + 1]]
        for rank in range(r.rank_start[g + 1] - r.rank_start[g]):
            total = 0
            for s in slots:
                total += message[start[s] + rank]
            if total < 0:
                message[start[slots[0]] + rank] -= total


@compiled
def _write(rows: Any, at: int, low: Any, high: Any, message: Any) -> Any:
    """Write a row; the table may have to grow."""
    if at == rows.low.shape[0]:
        rows = Rows(
            _taller(rows.low),
            _taller(rows.high),
            _taller(rows.message),
            _taller(rows.inner_low),
            _taller(rows.inner_high),
            _taller(rows.trail),
        )
    rows.low[at], rows.high[at], rows.message[at] = low, high, message
    return rows


@compiled
def _taller(table: Any) -> Any:
    higher = np.empty((2 * table.shape[0], table.shape[1]), table.dtype)
    higher[: table.shape[0]] = table
    return higher


@compiled
def _dive(ground: Any, low: Any, high: Any, cells: Any) -> Any:
    """Plunge from a node, and leave everything as it was."""
    d = ground.deep.dual
    message, pick, second = d.message.copy(), d.pick.copy(), d.second.copy()
    verdict = plunge(ground, low.copy(), high.copy(), cells)
    d.message[:], d.pick[:], d.second[:] = message, pick, second
    price(ground.r, ground.task, d, low, high)
    return verdict


@compiled
def _look_for(ground: Any, low: Any, high: Any, visited: int, cells: Any) -> Any:
    """Look for a counterexample from a node."""
    d = ground.deep.dual
    for g in range(low.size):
        d.pick[g] = min(max(d.pick[g], low[g]), high[g])
    verdict = try_point(ground, d.pick, cells, visited % WALK_EVERY == 1)
    is_due = visited in (1, WALK_EVERY) or visited % PLUNGE_EVERY == 0
    if verdict == CHANGED or not is_due:
        return verdict
    second = _dive(ground, low, high, cells)
    return second if second == CHANGED else max(verdict, second)


@compiled
def _split(stack: Any, top: int, message: Any, low: Any, high: Any, f: int, cut: int) -> Any:
    """Put both parts of the row at `top` in its place; the part above the cut lies below."""
    outer_low, outer_high = stack.low[top].copy(), stack.high[top].copy()
    for at in (top, top + 1):
        stack = _write(stack, at, outer_low, outer_high, message)
        stack.inner_low[at], stack.inner_high[at] = low, high
        stack.trail[at, 0], stack.trail[at, 1] = f, int(at == top)
    stack.low[top, f] = stack.inner_low[top, f] = cut + 1
    stack.high[top + 1, f] = stack.inner_high[top + 1, f] = cut
    return stack


@compiled
def _swap(table: Any, i: int, j: int) -> None:
    kept = table[i].copy()
    table[i] = table[j]
    table[j] = kept


@compiled
def _search(ground: Any, cover: Any, size: int, stack: Any, nodes: int, cells: Any) -> Any:
    """Search the box in row 0 of the stack; what is closed is added to the cover."""
    r, task, deep = ground.r, ground.task, ground.deep
    d = deep.dual
    low, high = np.empty_like(stack.low[0]), np.empty_like(stack.low[0])
    top, visited, worst = 1, 0, PROVED
    while top > 0:
        if visited >= nodes:
            return PAUSED, cover, size, stack, visited
        visited += 1
        top -= 1
        low[:], high[:] = stack.inner_low[top], stack.inner_high[top]
        d.message[:] = stack.message[top]
        bound = min(squeeze(r, task, d, low, high), task.barrier)
        f, part = stack.trail[top, 0], 2 * stack.trail[top, 1]
        if f >= 0:
            deep.gains[f, part] += bound - stack.trail[top, 2]
            deep.gains[f, part + 1] += 1
        f = -1
        if bound < task.barrier:
            verdict = _look_for(ground, low, high, visited, cells)
            if verdict == CHANGED:
                return FOUND, cover, size, stack, visited
            if verdict == TIED:
                worst = BLURRED
            count_live(r, deep, low, high)
            f, cut = choose(r, deep, low, high, float(task.barrier - bound))
        if f < 0:
            cover = _write(cover, size, stack.low[top], stack.high[top], d.message)
            size += 1
            continue
        stack = _split(stack, top, d.message, low, high, f, cut)
        if d.pick[f] > cut:  # the side of the best rank goes on top
            for table in (stack.low, stack.high, stack.inner_low, stack.inner_high):
                _swap(table, top, top + 1)
            _swap(stack.trail, top, top + 1)
        stack.trail[top, 2] = stack.trail[top + 1, 2] = bound
        top += 2
    return worst, cover, size, stack, visited


@compiled
def close(ground: Any, cover: Any, size: int, nodes: int, cells: Any) -> Any:
    """Close every row of a cover, searching where that is needed.

    Returns:
        the outcome, the table, its size and the nodes visited. All rows are closed only if the
        outcome is PROVED; if it is FOUND, `cells` holds a counterexample.
    """
    r, task, d = ground.r, ground.task, ground.deep.dual
    low, high = np.empty_like(cover.low[0]), np.empty_like(cover.low[0])
    stack = make_rows(FEW_ROWS, low.size, d.message.size)
    is_replaced = np.zeros(size, np.bool_)
    more, visited, worst = size, 0, PROVED
    for i in range(size):
        d.message[:] = cover.message[i]
        low[:], high[:] = cover.low[i], cover.high[i]
        if price(r, task, d, low, high) >= task.barrier:
            continue
        is_replaced[i] = True
        stack = _write(stack, 0, low, high, cover.message[i])
        stack.inner_low[0], stack.inner_high[0] = low, high
        stack.trail[0, 0] = -1
        outcome, cover, more, stack, count = _search(
            ground, cover, more, stack, nodes - visited, cells
        )
        visited += count
        worst = max(worst, outcome)
        if outcome in (FOUND, PAUSED):
            return outcome, cover, more, visited
    for i in range(size - 1, -1, -1):
        if is_replaced[i]:
            more -= 1
            cover.low[i], cover.high[i] = cover.low[more], cover.high[more]
            cover.message[i] = cover.message[more]
    return worst, cover, more, visited
