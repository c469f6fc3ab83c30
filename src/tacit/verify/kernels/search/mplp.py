"""Compiled: the bound of `dual`, with messages written down in little room.

After a feature's trees have agreed, what a tree pays for a rank is the cost of the rank's segment
in that tree less the *fare* of the rank, which is the same for all trees. So messages are one
number per segment and one per rank, instead of one per tree and rank; the least fare of a segment
comes from a table of least fares of 1, 2, 4, ... ranks.

Fares are the sum of what the segments cost, shared out evenly and rounded down: no rank's messages
add up to less than nothing, inside the box or outside of it. So they stay valid in every box.
"""

from typing import Any, NamedTuple

import numpy as np

from tacit.verify.kernels.jit import bare, compiled
from tacit.verify.kernels.search.messages import GONE

MOST_SWEEPS = 15
LEAST_SHARE = 5
"""A sweep that closes less than this part of the gap is the last."""


class Accord(NamedTuple):
    """Messages and what follows from them."""

    cut: Any
    toll: Any  # (segments): what the segment cost when its feature was last agreed on
    fare: Any  # (levels, ranks): the least fare of 2**level ranks from this one on
    level: Any  # (widest + 1): the level for so many ranks
    most: Any  # (segments): the largest message within the box; -GONE outside of it
    seg_least: Any  # (segments): the least cost of a leaf, but for the slot's own message
    cost: Any  # (leaves): of a leaf, less the messages; GONE if out of reach
    least: Any  # (open trees): the least cost
    alive: Any  # (leaves): the leaves of every tree, those within the box first
    count: Any  # (open trees): how many those are
    total: Any  # (widest + 1): scratch
    pick: Any  # (features): the rank that costs least


@compiled
def make_accord(r: Any, cut: Any) -> Any:
    """Start without messages."""
    n_features, n_open, widest = r.feature_id.size, r.tree_id.size, 1
    for f in range(n_features):
        widest = max(widest, r.rank_start[f + 1] - r.rank_start[f])
    level = np.zeros(widest + 1, np.int32)
    for width in range(2, widest + 1):
        level[width] = level[width >> 1] + 1
    n_segments = cut.first.size
    return Accord(
        cut,
        np.zeros(n_segments, np.int64),
        np.zeros((level[widest] + 1, r.rank_low.size), np.int64),
        level,
        np.zeros(n_segments, np.int64),
        np.zeros(n_segments, np.int64),
        np.zeros(r.leaf_node.size, np.int64),
        np.zeros(n_open, np.int64),
        np.arange(r.leaf_node.size).astype(np.int32),
        (r.leaf_start[1:] - r.leaf_start[:-1]).astype(np.int32),
        np.zeros(widest + 1, np.int64),
        np.zeros(n_features, np.int32),
    )


@bare
def _most(a: Any, at: int) -> Any:
    """Find the largest message of the segments that reach a leaf."""
    first, last = np.uintp(a.cut.pair_first[np.uintp(at)]), np.uintp(a.cut.pair_last[np.uintp(at)])
    most = a.most[first]
    for k in range(first + np.uintp(1), last + np.uintp(1)):
        most = max(most, a.most[k])
    return most


@bare
def _least_fare(a: Any, first: int, last: int) -> Any:
    """Find the least fare from one rank to another."""
    level = a.level[last - first + 1]
    return min(a.fare[level, first], a.fare[level, last + 1 - (1 << level)])


@bare
def _price_slot(a: Any, s: int, start: int, low: int, high: int) -> None:
    """Find the largest message of every segment of a slot within the box."""
    for k in range(a.cut.start[s], a.cut.start[s + 1]):
        first, last = max(a.cut.first[k], low), min(a.cut.last[k], high)
        if first > last:
            a.most[k] = -GONE
            continue
        a.most[k] = a.toll[k] - _least_fare(a, start + first, start + last)


@bare
def price(r: Any, task: Any, a: Any, low: Any, high: Any) -> Any:
    """Compute all costs within a box; return the bound.

    Only leaves that `count` says are alive are looked at; those out of reach are moved behind.
    """
    for s in range(r.slot_feature.size):
        f = r.slot_feature[s]
        _price_slot(a, s, r.rank_start[f], low[f], high[f])
    bound = task.base
    for t in range(r.tree_id.size):
        least, first, n = GONE, r.leaf_start[t], a.count[t]
        at = first
        while at < first + n:
            leaf = a.alive[at]
            cost = task.value[leaf]
            for s in range(r.slot_start[t], r.slot_start[t + 1]):
                paid = _most(a, a.cut.pair_start[s] + leaf - first)
                if paid == -GONE:
                    cost = GONE
                    break
                cost -= paid
            a.cost[leaf] = cost
            if cost == GONE:
                n -= 1
                a.alive[at], a.alive[first + n] = a.alive[first + n], leaf
                continue
            least = min(least, cost)
            at += 1
        a.count[t] = n
        a.least[t] = least
        bound += least
    return bound


@bare
def _collect_costs(r: Any, a: Any, s: int) -> None:
    """Give a slot its message back and add what its segments cost to the steps of the total."""
    t, pair = r.slot_tree[s], a.cut.pair_start[s] - r.leaf_start[r.slot_tree[s]]
    begin, end = a.cut.start[s], a.cut.start[s + 1]
    for k in range(begin, end):
        a.seg_least[k] = GONE
    for i in range(r.leaf_start[t], r.leaf_start[t] + a.count[t]):
        leaf = a.alive[i]
        if a.cost[leaf] == GONE:
            continue
        cost = a.cost[leaf] + _most(a, pair + leaf)
        a.cost[leaf] = cost
        at = np.uintp(pair + leaf)
        last = np.uintp(a.cut.pair_last[at])
        for k in range(np.uintp(a.cut.pair_first[at]), last + np.uintp(1)):
            a.seg_least[k] = min(a.seg_least[k], cost)
    for k in range(begin, end):
        if a.seg_least[k] != GONE:  # outside of the box, the last agreement stands
            a.toll[k] = a.seg_least[k]
        a.total[a.cut.first[k]] += a.toll[k]
        a.total[a.cut.last[k] + 1] -= a.toll[k]


@bare
def _send(r: Any, a: Any, s: int, start: int, low: int, high: int) -> None:
    """Take the new message of a slot from the cost of its tree's leaves."""
    t, pair = r.slot_tree[s], a.cut.pair_start[s] - r.leaf_start[r.slot_tree[s]]
    _price_slot(a, s, start, low, high)
    for i in range(r.leaf_start[t], r.leaf_start[t] + a.count[t]):
        leaf = a.alive[i]
        if a.cost[leaf] != GONE:
            paid = _most(a, pair + leaf)
            a.cost[leaf] = GONE if paid == -GONE else a.cost[leaf] - paid


@bare
def _add_up(a: Any, start: int, width: int, count: int) -> None:
    """Make the steps a total per rank, and a fare of each total."""
    total, part = 0, 1.0 / count
    for rank in range(width):
        total += a.total[rank]
        a.total[rank] = total
        each = np.int64(total * part)
        while each * count > total:  # the product was rounded; any fare below is valid
            each -= 1
        a.fare[0, start + rank] = each
    _layer(a, start, width)


@bare
def recall(r: Any, a: Any, memory: Any) -> None:
    """Go back to messages that were remembered."""
    n_segments = a.toll.size
    for k in range(n_segments):
        a.toll[k] = memory[k]
    for at in range(r.rank_low.size):
        a.fare[0, at] = memory[n_segments + at]
    for f in range(r.feature_id.size):
        _layer(a, r.rank_start[f], r.rank_start[f + 1] - r.rank_start[f])


@bare
def remember(a: Any, memory: Any) -> None:
    """Write the messages down."""
    n_segments = a.toll.size
    for k in range(n_segments):
        memory[k] = a.toll[k]
    for at in range(a.fare.shape[1]):
        memory[n_segments + at] = a.fare[0, at]


@bare
def _layer(a: Any, start: int, width: int) -> None:
    """Fill the table of least fares of a feature."""
    for level in range(1, a.level[width] + 1):
        half = 1 << (level - 1)
        for at in range(start, start + width + 1 - 2 * half):
            a.fare[level, at] = min(a.fare[level - 1, at], a.fare[level - 1, at + half])


@bare
def agree(r: Any, task: Any, a: Any, low: Any, high: Any, f: int, bound: int) -> Any:
    """Choose the messages to one feature anew and cut its ranks off; return the bound.

    The bound is the barrier if no rank is left.
    """
    begin, end = r.slots_of_start[f], r.slots_of_start[f + 1]
    start, width = r.rank_start[f], r.rank_start[f + 1] - r.rank_start[f]
    for rank in range(width + 1):
        a.total[rank] = 0
    rest = bound
    for i in range(begin, end):
        rest -= a.least[r.slot_tree[r.slots_of[i]]]
        _collect_costs(r, a, r.slots_of[i])
    _add_up(a, start, width, end - begin)
    while low[f] <= high[f] and rest + a.total[low[f]] >= task.barrier:
        low[f] += 1
    while low[f] <= high[f] and rest + a.total[high[f]] >= task.barrier:
        high[f] -= 1
    if low[f] > high[f]:
        return task.barrier
    a.pick[f] = low[f] + np.argmin(a.total[low[f] : high[f] + 1])
    each = _least_fare(a, start + low[f], start + high[f])
    for i in range(begin, end):
        _send(r, a, r.slots_of[i], start, low[f], high[f])
        a.least[r.slot_tree[r.slots_of[i]]] = each
    return rest + (end - begin) * each


@bare
def squeeze(r: Any, task: Any, a: Any, low: Any, high: Any) -> Any:
    """Raise the bound of a box for as long as that pays; return it. Narrows low and high."""
    for f in range(low.size):
        a.pick[f] = low[f]
    bound = price(r, task, a, low, high)
    for sweep in range(MOST_SWEEPS):
        before = bound
        for f in range(low.size):
            if bound >= task.barrier:
                return bound
            if low[f] < high[f]:
                bound = agree(r, task, a, low, high, f, bound)
        if sweep > 0 and (bound - before) * LEAST_SHARE < task.barrier - bound:
            break
    return bound
